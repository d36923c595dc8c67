"""The part of a node's shell that is about membership: its identity, joining, who is let in, operators' commands."""

import asyncio
import hashlib
import logging
import random
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc

from cluster.log.batch import LogStore
from cluster.transport.gate import Objection
from cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from cluster.transport.tls import TlsFiles
from cluster.versions import LEVELS, VersionRange, level_fault
from node.broker.cluster_facade import SESSION_LOST
from node.catalog import AddMember, CatalogCommand, MemberAdded, Refusal
from node.catalog.members import STILL_THERE
from node.engine import CATALOG_GROUP, Engine
from node.identity import Identity, KnownMembers, MalformedIdentity, decode_identity, decode_members
from node.operating.current_replicas import CurrentReplicas
from node.settings import NodeSettings, is_any_host
from node.settings.kinds import Address

log = logging.getLogger("mayfly.node")

JOIN_AGAIN_S: Final = 1.0
COMMAND_TIMEOUT_S: Final = 10.0
BEGINNING_OF_2026_S: Final = 1_767_225_600
STARTS_SHIFT: Final = 20
"""An incarnation is the number of starts shifted by this, and counts up while the process runs."""
_FIRST_VERSION: Final = 0
_UNPROVEN: Final = "unproven"
"""Under this meta key something stands from the time at which a founder begins until it serves."""
_LEVEL: Final = "level"
"""The cluster's feature level as last heard of, under this meta key: a node that does not know it does not start."""
_JOIN_AGAIN: Final = "join-again"
"""A file of this name in the data folder has a founder join, see `begin_anew`."""


class NodeRefused(Exception):
    """The node can't start with these settings on this data; the text says what would be right."""


def peer_tls_files(settings: NodeSettings) -> TlsFiles | None:
    """TLS between nodes, if it is on."""
    files = settings.peer_tls
    return TlsFiles(files.certificate, files.key, files.authority) if files and files.authority else None


async def establish_identity(settings: NodeSettings, store: LogStore) -> tuple[Identity, KnownMembers]:
    """Who this node is: as stored, or as it joins, or as a first member. Raises NodeRefused.

    A node that is to join asks until it is taken in or refused; it can be cancelled meanwhile.
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
    if settings.joins or joins_again(settings.data_dir):
        # Made up before the first question, so that a second one is known as the same node's.
        name = store.get_meta("store")
        if name is None:
            name = _random_name().encode()
            store.put_meta("store", name)
        identity, members_now = await _join(settings, name.decode())
    else:
        identity, members_now = _first(settings), _first_members(settings)
        store.put_meta(_UNPROVEN, b"1")
    store.put_meta("members", members_now.encode())
    store.put_meta("identity", identity.encode())
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
    """Give up the data of a founder that came too late: the next start joins the cluster as a new member."""
    (data_dir / _JOIN_AGAIN).touch()
    for folder in ("log", "snapshots"):
        shutil.rmtree(data_dir / folder, ignore_errors=True)


def joins_again(data_dir: Path) -> bool:
    """Whether a node that is among the seeds has to join all the same."""
    return (data_dir / _JOIN_AGAIN).exists()


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


def _freshness(late: list[int]) -> dict[str, Any]:
    """What pages say of how new they are when no leader has answered for these groups."""
    if not late:
        return {"current": True}
    groups = ", ".join(map(str, late))
    return {"current": False, "reason": f"no leader answered for groups {groups}; they are shown as this node has them"}


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


def _random_name() -> str:
    return random.SystemRandom().randbytes(8).hex()


def _first(settings: NodeSettings) -> Identity:
    founded = _founded(settings)
    return Identity(
        founded or _random_name(), settings.node_id, settings.name, _random_name(), settings.shards,
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


async def _addresses_to_join(settings: NodeSettings) -> list[Address]:
    """Where to ask for a place: the other seeds, and all that the name in `join` stands for."""
    own = settings.reachable_peer_address
    found = [seed for seed in settings.seeds if seed != own]
    join = settings.join
    if join is not None:
        if settings.peer_tls is not None:
            return [*found, join]  # certificates are checked against names
        try:
            loop = asyncio.get_running_loop()
            known = await loop.getaddrinfo(join.host, join.port, type=socket.SOCK_STREAM)
            found += sorted({Address(str(entry[4][0]), join.port) for entry in known})
        except OSError as error:
            log.info("can't join through %s yet: %s", join, error)
    return list(dict.fromkeys(found))


async def _join(settings: NodeSettings, store: str) -> tuple[Identity, KnownMembers]:
    request = JoinRequest(settings.name, str(settings.reachable_peer_address), store)
    complaints: dict[Address, str] = {}
    while True:
        for seed in await _addresses_to_join(settings):
            joined = await _ask(settings, seed, request, complaints)
            if joined is not None:
                return joined
        await asyncio.sleep(JOIN_AGAIN_S)


async def _ask(
    settings: NodeSettings, seed: Address, request: JoinRequest, complaints: dict[Address, str]
) -> tuple[Identity, KnownMembers] | None:
    """Ask one member once; None: somebody else, or later. Raises NodeRefused."""
    try:
        answer = await ask_to_join(str(seed), request, peer_tls_files(settings))
    except JoinRefused as refusal:
        if not refusal.again:
            raise NodeRefused(f"can't join through {seed}: {refusal}") from None
        if str(refusal) != complaints.get(seed):
            complaints[seed] = str(refusal)
            log.info("can't join through %s yet: %s", seed, refusal)
        return None
    log.info(
        "joined cluster %s through %s as node %d (%s)", answer.cluster_id, seed, answer.node_id, answer.node_name
    )
    identity = Identity(
        answer.cluster_id, answer.node_id, answer.node_name, request.store, answer.shards, answer.replication_factor,
        joined=True,
    )
    return identity, KnownMembers(answer.members_version, answer.members)


class MembershipShell:
    """What the running node says to peers and operators about membership. Implements `cluster.transport.gate.Gate`."""

    def __init__(
        self, engine: Engine, identity: Identity, settings: NodeSettings, pump: Callable[[], None],
        fail: Callable[[str], None], known_stores: Mapping[int, str],
    ) -> None:
        """`known_stores` says what the data of members was called when this node last heard of it."""
        self._known_stores = known_stores
        self._engine = engine
        self._identity = identity
        self._settings = settings
        self.current: CurrentReplicas = CurrentReplicas(engine.host.read_index, pump)
        self._pump = pump
        self._fail = fail

    # ------------------------------------------------------------------ Gate

    def objection(self, node_id: int, store: str, starts: int, previous: int) -> Objection | None:
        """See `Gate.objection`."""
        catalog = self._engine.catalog
        member = catalog.members.get(node_id)
        named = (member.store if member is not None else "") or self._known_stores.get(node_id, "")
        who = f"node {node_id} ({member.name})" if member is not None else f"node {node_id}"
        anew = "to come back, it joins as a new member with an empty data folder"
        if member is not None and member.state == "removed":
            return Objection(grpc.StatusCode.NOT_FOUND, f"{who} was removed from the cluster; {anew}")
        if store and named and store != named:
            text = f"{who} comes back with other data than it had: remove it from the cluster first; {anew}"
            return Objection(grpc.StatusCode.DATA_LOSS, text)
        known = catalog.node(node_id)
        last_known = 0 if known is None else known.incarnation >> STARTS_SHIFT
        if starts not in (0, last_known) and previous < last_known:
            text = f"{who} comes back with data of an earlier time: remove it from the cluster first; {anew}"
            return Objection(grpc.StatusCode.DATA_LOSS, text)
        return None

    def level_fault(self, levels: VersionRange) -> str:
        """See `Gate.level_fault`."""
        catalog = self._engine.catalog
        return level_fault(levels, catalog.level) if catalog.members.founded else ""

    def is_newcomer(self, node_id: int) -> bool:
        """See `Gate.is_newcomer`: ids grow, so one above all that are known was given out since."""
        return all(record.id < node_id for record in self._engine.catalog.members.all())

    def refused(self, peer: int, text: str) -> None:
        """See `Gate.refused`."""
        self._fail(f"node {peer} says: {text}")

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """See `Gate.join`."""
        if self._engine.host.groups[0].leader == 0:
            return JoinAnswer.refused("the catalog has no leader at present", again=True)
        for record in self._engine.catalog.members.with_replicas():
            if record.address and is_any_host(Address.parse(record.address).host):
                return JoinAnswer.refused(f"{record.name} can't be reached at {record.address}: give it "
                                          "an advertised_peer_address")
        fault = self.level_fault(request.levels)
        if fault:
            return JoinAnswer.refused(f"the node can't be let in: {fault}")
        levels = (request.levels.lowest, request.levels.highest)
        answer = await self.command(AddMember(request.name, request.address, request.store, levels))
        if isinstance(answer, Refusal):
            return JoinAnswer.refused(answer.text, again="founded yet" in answer.text or STILL_THERE in answer.text)
        if not isinstance(answer, MemberAdded):
            return JoinAnswer.refused("the catalog did not answer in time", again=True)
        members = self._engine.catalog.members
        member, identity = answer.member, self._identity
        log.info("node %d (%s) at %s joins", member.id, member.name, member.address)
        return JoinAnswer(
            node_id=member.id, node_name=member.name, cluster_id=identity.cluster, shards=identity.shards,
            replication_factor=identity.replication_factor, members_version=members.version,
            members={record.id: (record.name, record.address) for record in members.with_replicas()},
        )

    # ------------------------------------------------------------------ operators

    async def command(self, command: CatalogCommand) -> object:
        """Put a command into the catalog; what it answers, or None if that took too long."""
        answers: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def answered(result: object) -> None:
            if not answers.done():
                answers.set_result(None if result is SESSION_LOST else result)

        self._engine.submit_catalog(command, answered)
        self._pump()
        return await _or_none(answers)

    async def spread(self) -> None:
        """Wait until the connected nodes have what was changed here, but not for one that hangs."""
        everywhere: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def told(_: object) -> None:
            if not everywhere.done():
                everywhere.set_result(True)

        self._engine.catalog_spread(told)
        await _or_none(everywhere)

    async def freshness(self) -> dict[str, Any]:
        """Bring all replicas here up to date, and say whether they are: `current`, and the `reason` if not."""
        return _freshness(await self.current.behind(self._engine.host.groups))

    async def freshness_of(self, vhost: str, name: str) -> dict[str, Any]:
        """The same for one queue: for the catalog and the queue's shard."""
        catalog = self._engine.catalog
        record = catalog.queue(vhost, name)
        groups = {CATALOG_GROUP} if record is None or not record.replicated else {CATALOG_GROUP, record.shard}
        late = await self.current.behind(groups)
        found = catalog.queue(vhost, name)
        if not late and found is not None and found.replicated and found.shard not in groups:
            late = await self.current.behind((found.shard,))
        return _freshness(late)

    def members(self, now_ms: int) -> list[dict[str, Any]]:
        """All members, removed ones too, with what they hold."""
        engine = self._engine
        plan = engine.catalog.members.plan
        groups = engine.host.groups.values()
        rows = []
        for record in engine.catalog.members.all():
            present = record.state != "removed"
            node = engine.catalog.node(record.id)
            rows.append({
                "id": record.id,
                "name": record.name,
                "address": record.address,
                "failure_domain": record.failure_domain,
                "state": record.state,
                "up": present and engine.host.heard_within(record.id, now_ms, engine.host.settings.election_timeout_ms),
                "draining": present and engine.host.drains(record.id, now_ms),
                "votes": sum(record.id in group.conf_state.voters for group in groups),
                "votes_planned": sum(record.id in voters for voters in plan.values()),
                "leads": sum(group.leader == record.id for group in groups),
                "levels": list(node.levels) if node is not None else [],
            })
        return rows

    @property
    def level(self) -> int:
        """The cluster's feature level."""
        return self._engine.catalog.level

    def groups(self) -> list[dict[str, Any]]:
        """Every group: who votes, who shall vote, who leads."""
        members = self._engine.catalog.members
        return [
            {
                "group": group.id,
                "leader": group.leader,
                "voters": list(group.conf_state.voters),
                "learners": list(group.conf_state.learners),
                "changing": bool(group.conf_state.voters_outgoing),
                "plan": list(members.plan.get(group.id, ())),
                "pinned": members.pinned(group.id),
            }
            for group in self._engine.host.groups.values()
        ]


async def _or_none(answer: Awaitable[object]) -> object:
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            return await answer
    except TimeoutError:
        return None
