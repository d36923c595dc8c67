"""How a node arrives: who it is by what its data says, or how it comes into a cluster when it has none.

An empty node listens at its peer address and shows its health over HTTP while it asks: `node.membership.forming`
decides.
"""

import asyncio
import hashlib
import logging
import random
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mayfly.cluster.log.batch import LogStore
from mayfly.cluster.store.folder import sync_folder
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.reception import Reception
from mayfly.cluster.transport.tls import TlsFiles
from mayfly.cluster.versions import LEVELS, level_fault
from mayfly.node.http.server import HttpServer
from mayfly.node.membership.forming import FORMING, FOUND, Forming
from mayfly.node.membership.identity import Identity, KnownMembers, MalformedIdentity, decode_identity, decode_members
from mayfly.node.operating.ports.metrics import Metric
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address

log = logging.getLogger("mayfly.node")

LOOK_S: Final = 0.1
"""How often an asking node looks whether somebody is to be asked, or enough have answered; at once when it was asked or
answered."""
BEGINNING_OF_2026_S: Final = 1_767_225_600
STARTS_SHIFT: Final = 20
"""An incarnation is the number of starts shifted by this, and counts up while the process runs."""
_FIRST_VERSION: Final = 0
_UNPROVEN: Final = "unproven"
"""Under this meta key something stands from the time at which a founder begins until it serves."""
_LEVEL: Final = "level"
"""The cluster's feature level as last heard of, under this meta key: a node that does not know it does not start."""
_JOIN_AGAIN: Final = "join-again"
"""A file of this name in the data folder has a founder join: it was told that its place is taken."""
_GIVEN_UP: Final = ("log", "snapshots")
"""The folders that a founder gives up that came too late."""

Place = tuple[Identity, KnownMembers]


class NodeRefused(Exception):
    """The node can't start with these settings on this data; the text says what would be right."""


def peer_tls_files(settings: NodeSettings) -> TlsFiles | None:
    """TLS between nodes, if it is on."""
    files = settings.peer_tls
    return TlsFiles(files.certificate, files.key, files.authority) if files and files.authority else None


async def establish_identity(
    settings: NodeSettings, store: LogStore, known: ClusterSecrets = NO_SECRET
) -> tuple[Identity, KnownMembers]:
    """Who this node is: as stored, or as it joins, or as a first member. Raises NodeRefused, OSError. `known` is the
    cluster secret.

    An empty node asks (`node.membership.forming`) until it is taken in or refused, or founds; it can be cancelled
    meanwhile.
    """
    _check_level(settings, store)
    stored = store.get_meta("identity")
    try:
        if stored is not None:
            identity = decode_identity(stored)
            _check(settings, identity)
            members = store.get_meta("members")
            return identity, decode_members(members) if members is not None else _first_members(settings)
    except MalformedIdentity as error:
        raise NodeRefused(f"the data in {settings.data_dir} can't be used: {error}") from None
    # Made up before the first question, so that a second one is known as the same node's.
    name = store.get_meta("store")
    if name is None:
        name = random_name().encode()
        store.put_meta("store", name)
    place = await _come_in(settings, name.decode(), known)
    if place is not None:
        identity, members_now = place
    else:
        identity, members_now = _first(settings, name.decode()), _first_members(settings)
        store.put_meta(_UNPROVEN, b"1")
    store.put_meta("members", members_now.encode())
    store.put_meta("identity", identity.encode())
    _drop_given_up(settings.data_dir)
    (settings.data_dir / _JOIN_AGAIN).unlink(missing_ok=True)
    return identity, members_now


def keep_level(store: LogStore, level: int) -> None:
    """The cluster's feature level, for the next start."""
    if store.get_meta(_LEVEL) != str(level).encode():
        store.put_meta(_LEVEL, str(level).encode())


def _check_level(settings: NodeSettings, store: LogStore) -> None:
    level = store.get_meta(_LEVEL)
    fault = level_fault(LEVELS, int(level)) if level else ""
    if fault:
        raise NodeRefused(f"this node can't go on with the data in {settings.data_dir}: {fault}")


def is_unproven(store: LogStore) -> bool:
    """Whether this node began as a founder and has never served since: nothing in its data is worth keeping when the
    others say that they have founded the cluster without it, or know its place as another one's."""
    return bool(store.get_meta(_UNPROVEN))


def is_proven(store: LogStore) -> None:
    """The node serves with this data."""
    if is_unproven(store):
        store.put_meta(_UNPROVEN, b"")


def begin_anew(data_dir: Path) -> None:
    """Give up the data of a founder that came too late: the next start joins the cluster as a new member.

    A crash leaves the old data whole or none of it, and once this has returned none. Raises OSError."""
    (data_dir / _JOIN_AGAIN).touch()
    sync_folder(data_dir)
    _drop_given_up(data_dir)
    for name in _GIVEN_UP:
        with suppress(FileNotFoundError):
            (data_dir / name).rename(data_dir / f"{name}.given-up")
    sync_folder(data_dir)
    _drop_given_up(data_dir)


def _drop_given_up(data_dir: Path) -> None:
    """Take away what `begin_anew` had put aside; a crash may have kept it from that."""
    for name in _GIVEN_UP:
        shutil.rmtree(data_dir / f"{name}.given-up", ignore_errors=True)


def joins_again(data_dir: Path) -> bool:
    """Whether a node that is among the seeds has to join all the same."""
    return (data_dir / _JOIN_AGAIN).exists()


def start_text(starts: int) -> str:
    """When about a start with this count was, for people."""
    if not starts:
        return "no time"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(starts + BEGINNING_OF_2026_S))


def next_start(store: LogStore) -> tuple[int, int]:
    """Count the starts of processes on the data: (the count at the start before, the count now).

    The count never falls behind the seconds since 2026 (30 bits are meant for it), so that a node that comes
    back without its data does not take the name of a session that it had before: it would take the end of old
    batches for that of new ones.
    """
    previous = int(store.get_meta("starts") or b"0")
    starts = max(previous + 1, int(time.time()) - BEGINNING_OF_2026_S)
    store.put_meta("starts", str(starts).encode())
    return previous, starts


def founders(settings: NodeSettings, identity: Identity) -> list[tuple[int, str, str]]:
    """The members that the cluster begins with; nobody on a node that joined one."""
    if identity.joined:
        return []
    if not settings.seeds:
        return [(identity.node, identity.name, str(settings.reachable_peer_address))]
    return [(id, f"node{id}", str(address)) for id, address in settings.nodes.items()]


def _founded(settings: NodeSettings) -> str:
    if not settings.seeds:
        return ""
    return hashlib.sha256(",".join(map(str, settings.seeds)).encode()).hexdigest()[:16]


def random_name() -> str:
    """A name that nothing else has."""
    return random.SystemRandom().randbytes(8).hex()


def _first(settings: NodeSettings, store: str) -> Identity:
    founded = _founded(settings)
    return Identity(
        founded or random_name(), settings.node_id, settings.name, store, settings.shards,
        settings.replication_factor, founded,
    )


def _first_members(settings: NodeSettings) -> KnownMembers:
    return KnownMembers(_FIRST_VERSION, {id: (f"node{id}", str(at)) for id, at in settings.nodes.items()})


def _check(settings: NodeSettings, identity: Identity) -> None:
    """Settings that the data was not made with would make another cluster of it."""
    if identity.joined:
        return
    given: dict[str, tuple[object, object]] = {"seeds": (identity.founded or "none", _founded(settings) or "none")}
    given["shards"] = (identity.shards, settings.shards)
    given["replication_factor"] = (identity.replication_factor, settings.replication_factor)
    if settings.seeds and not settings.joins:
        given["node"] = (identity.node, settings.node_id)
    for key, (made_with, says) in given.items():
        if made_with != says:
            what = "those hashed to " if key == "seeds" and made_with != "none" else ""
            raise NodeRefused(
                f"the data in {settings.data_dir} was made with {key} = {what}{made_with}, the settings say {says}: "
                "start with the settings it was made with, or with an empty data_dir"
            )


async def _come_in(settings: NodeSettings, store: str, known: ClusterSecrets = NO_SECRET) -> Place | None:
    """A place in a cluster; None: this node founds one, alone or with the other seeds. Raises NodeRefused, OSError."""
    if len(settings.nodes) == 1 and settings.join is None:
        return None
    arrival = _Arrival(settings, store, known)
    reception = Reception(str(settings.peer_address), peer_tls_files(settings), arrival.answer, known)
    http = HttpServer(
        arrival, settings.http_address.host, settings.http_address.port, open_pages=settings.http_open_pages
    )
    try:
        await reception.open()
        await http.start()
        return await arrival.ask_around()
    finally:
        await http.stop()
        await reception.close()


class _Arrival:
    """A node that asks for a place. Implements `StatusProvider`: it lives, and is not ready."""

    def __init__(self, settings: NodeSettings, store: str, known: ClusterSecrets = NO_SECRET) -> None:
        self._settings = settings
        self._known = known
        self._own = settings.reachable_peer_address
        self._cluster = _founded(settings)
        self._store = store
        may_found = not settings.joins and not joins_again(settings.data_dir)
        self._forming = Forming([str(seed) for seed in settings.seeds], str(self._own), store, may_found)
        self._complaints: dict[str, str] = {}
        self._others: set[str] = set()
        self._place: Place | None = None
        self._refused: NodeRefused | OSError | None = None
        self._described = ""
        self._heard = asyncio.Event()
        """Somebody asked or answered since it was last looked."""

    async def ask_around(self) -> Place | None:
        """See `_come_in`."""
        questions: set[asyncio.Task[None]] = set()
        try:
            while self._place is None and self._forming.decide(_now_ms()) != FOUND:
                if self._refused is not None:
                    raise self._refused
                addresses = await self._addresses()
                self._others = {*map(str, self._settings.seeds), *addresses} - {str(self._own)}
                for address in self._forming.whom_to_ask(addresses, _now_ms()):
                    question = asyncio.create_task(self._ask(address))
                    questions.add(question)
                    question.add_done_callback(questions.discard)
                self._say_what_is_missing()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._heard.wait()
                self._heard.clear()
        finally:
            for question in questions:
                question.cancel()
        if self._place is None:
            log.info("founding the cluster with %s", ", ".join(self._forming.willing(_now_ms())))
        return self._place

    def _say_what_is_missing(self) -> None:
        text = self._forming.describe(_now_ms())
        if text != self._described:
            self._described = text
            log.info("%s", text)

    async def _addresses(self) -> list[str]:
        """All that the name in `join` stands for now."""
        join = self._settings.join
        if join is None:
            return []
        if self._settings.peer_tls is not None:
            return [str(join)]  # certificates are checked against names
        try:
            loop = asyncio.get_running_loop()
            known = await loop.getaddrinfo(join.host, join.port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._complain(str(join), str(error))
            return []
        return sorted({str(Address(str(entry[4][0]), join.port)) for entry in known})

    async def _ask(self, address: str) -> None:
        """Ask once."""
        settings, forming = self._settings, self._forming
        place = settings.node_id if forming.may_found else 0
        request = JoinRequest(
            settings.name, str(self._own), self._store, cluster=self._cluster, founder=place
        )
        try:
            answer = await ask_to_join(address, request, peer_tls_files(settings), known=self._known)
        except JoinRefused as refusal:
            if not refusal.again and (not refusal.of_peer or self._others <= {address}):
                self._refused = NodeRefused(f"can't join through {address}: {refusal}")
            if refusal.store:
                forming.answered(address, refusal.stance, refusal.store, _now_ms())
            else:
                forming.unanswered(address, _now_ms())
            if self._cluster and not forming.may_found:
                (settings.data_dir / _JOIN_AGAIN).touch()
            self._complain(address, str(refusal))
        except OSError as error:
            self._refused = error
        else:
            self._taken_in(address, answer)
        self._heard.set()

    def _complain(self, address: str, text: str) -> None:
        if text != self._complaints.get(address):
            self._complaints[address] = text
            log.info("can't join through %s yet: %s", address, text)

    def _taken_in(self, address: str, answer: JoinAnswer) -> None:
        if self._place is not None:
            return
        log.info(
            "joined cluster %s through %s as node %d (%s)", answer.cluster_id, address, answer.node_id, answer.node_name
        )
        identity = Identity(
            answer.cluster_id, answer.node_id, answer.node_name, self._store, answer.shards, answer.replication_factor,
            joined=True,
        )
        self._place = identity, KnownMembers(answer.members_version, answer.members)

    def answer(self, request: JoinRequest) -> JoinAnswer:
        """What others are told that ask this node."""
        if request.founder and request.cluster == self._cluster:
            self._forming.asked(request.address, _now_ms())
            self._heard.set()
        if self._forming.may_found and request.founder and request.cluster == self._cluster:
            return JoinAnswer.refused("no cluster yet: its founders come together", True, FORMING, self._store)
        return JoinAnswer.refused("this node is in no cluster yet", True, "", self._store)

    # ------------------------------------------------------------------ StatusProvider

    def is_live(self) -> bool:
        """It waits for others: nothing that a new process would do better."""
        return True

    def readiness(self) -> tuple[bool, str]:
        """Not yet, and what is missing."""
        return False, self._forming.describe(_now_ms())

    def alarms(self) -> list[str]:
        """None."""
        return []

    async def status(self) -> dict[str, Any]:
        """What the node waits for, and what those said that it asked."""
        return {"name": self._settings.name, "waits": self._forming.describe(_now_ms()), "answers": self._complaints}

    def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        """It knows of none."""
        return None

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        """None."""
        return [], 0

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        """Nothing is known here."""
        return {"current": False, "reason": self._forming.describe(_now_ms())}

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        """None."""
        return []

    async def metrics_snapshot(self) -> Sequence[Metric]:
        """None."""
        return []


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
