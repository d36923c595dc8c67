"""How a node arrives: who it is by what its data says, or how it comes into a cluster when it has none.

An empty node listens at its peer address and shows its health over HTTP while it asks: `node.membership.forming`
decides.
"""

import asyncio
import hashlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.join_listener import JoinListener
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.cluster.versions import LEVELS, level_fault
from mayfly.node.http.server import HttpServer, HttpSettings, PagePorts
from mayfly.node.membership.forming import FORMING, FOUND, Forming
from mayfly.node.membership.identity import Identity, KnownMembers, MalformedIdentity
from mayfly.node.operating.ports.metrics import Metric
from mayfly.node.operating.ports.outlook import ForecastWish
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.data_folder import DataFolder, OwnRecord, random_name

log = logging.getLogger("mayfly.node")

LOOK_S: Final = 0.1
"""How often an asking node looks whether somebody is to be asked, or enough have answered; at once when it was asked or
answered."""
BEGINNING_OF_2026_S: Final = 1_767_225_600
_FIRST_VERSION: Final = 0

Place = tuple[Identity, KnownMembers]


class NodeRefused(Exception):
    """The node can't start with these settings on this data; the text says what would be right."""


def peer_tls_files(settings: NodeSettings) -> PeerTlsFiles | None:
    """TLS between nodes, if it is on."""
    files = settings.peer_tls
    return PeerTlsFiles(files.certificate, files.key, files.authority) if files and files.authority else None


async def establish_identity(
    settings: NodeSettings, record: OwnRecord, known: ClusterSecrets = NO_SECRET
) -> tuple[Identity, KnownMembers]:
    """Who this node is: as stored, or as it joins, or as a first member. Raises NodeRefused, OSError. `known` is the
    cluster secret.

    An empty node asks (`node.membership.forming`) until it is taken in or refused, or founds; it can be cancelled
    meanwhile.
    """
    _check_level(settings, record)
    try:
        stored = record.identity()
        if stored is not None:
            _check(settings, stored)
            return stored, record.members() or _first_members(settings)
    except MalformedIdentity as error:
        raise NodeRefused(f"the data in {settings.data_dir} can't be used: {error}") from None
    # Made up before the first question, so that a second one is known as the same node's.
    name = record.store_name()
    place = await _come_in(settings, name, known)
    if place is not None:
        identity, members = place
    else:
        identity, members = _first(settings, name), _first_members(settings)
        record.begin_unproven()
    record.arrived(identity, members)
    DataFolder(settings.data_dir).arrived()
    return identity, members


def _check_level(settings: NodeSettings, record: OwnRecord) -> None:
    level = record.level()
    fault = level_fault(LEVELS, level) if level is not None else ""
    if fault:
        raise NodeRefused(f"this node can't go on with the data in {settings.data_dir}: {fault}")


def start_text(starts: int) -> str:
    """When about a start with this count was, for people."""
    if not starts:
        return "no time"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(starts + BEGINNING_OF_2026_S))


def next_start(record: OwnRecord) -> tuple[tuple[int, ...], int]:
    """Count the starts of processes on the data: (the counts at the last ones before, the count now).

    The count never falls behind the seconds since 2026 (30 bits are meant for it), so that a node that comes
    back without its data does not take the name of a session that it had before: it would take the end of old
    batches for that of new ones.
    """
    earlier = record.earlier_starts()
    starts = max(record.starts() + 1, int(time.time()) - BEGINNING_OF_2026_S)
    record.keep_starts(starts)
    return earlier, starts


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
    listener = JoinListener(str(settings.peer_address), peer_tls_files(settings), arrival.answer, known)
    http = HttpServer(PagePorts(arrival), HttpSettings(settings.http_address, settings.http_open_pages))
    try:
        await listener.open()
        await http.start()
        return await arrival.ask_around()
    finally:
        await http.stop()
        await listener.close()


class _Arrival:
    """A node that asks for a place. Implements `StatusProvider`: it lives, and is not ready."""

    def __init__(self, settings: NodeSettings, store: str, known: ClusterSecrets = NO_SECRET) -> None:
        self._settings = settings
        self._known = known
        self._own = settings.reachable_peer_address
        self._cluster = _founded(settings)
        self._store = store
        may_found = not settings.joins and not DataFolder(settings.data_dir).joins_again()
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
                DataFolder(settings.data_dir).join_again()
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

    async def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
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

    async def forecast_metrics(self, wish: ForecastWish) -> Sequence[Metric]:
        """None."""
        return []

    async def rabbitmq_metrics(self, wanted: MetricsSelection) -> Sequence[Metric]:
        """None."""
        return []

    def rabbitmq_queue_metrics(self, rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> Sequence[Metric]:
        """None."""
        return []

    async def metrics_snapshot(self) -> Sequence[Metric]:
        """None."""
        return []


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
