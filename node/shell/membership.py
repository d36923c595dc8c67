"""The part of a running node's shell that is about membership: who is let in."""

import logging
from collections.abc import Callable, Sequence

import grpc

from mayfly.cluster.transport.admission import Objection
from mayfly.cluster.transport.joining import JoinAnswer, JoinRequest
from mayfly.cluster.versions import VersionRange, level_fault
from mayfly.node.catalog import AddMember, MemberAdded, Refusal, RemoveMember
from mayfly.node.catalog.members import STILL_THERE
from mayfly.node.engine.engine import Engine
from mayfly.node.membership.forming import FOREIGN, FORMING, TAKEN, UNSURE, AbandonedPlaces, stance_towards
from mayfly.node.membership.identity import Identity, KnownMembers
from mayfly.node.numbers import CATALOG_GROUP, STARTS_SHIFT
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.settings import is_any_host
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.arrival import start_text

log = logging.getLogger("mayfly.node")


class MembershipShell:
    """What the running node says to peers about membership. Implements `cluster.transport.admission.Admission`."""

    def __init__(
        self, engine: Engine, identity: Identity, cluster: ClusterControl, fail: Callable[[str, bool], None],
        known: KnownMembers, is_empty: Callable[[], bool],
    ) -> None:
        """`known` are the members as this node last heard of them before it started; `fail(why, removed)` is told when
        others send it away; `is_empty` says whether its own data has never been a cluster's."""
        self._known = known
        self._abandoned = AbandonedPlaces()
        self._is_empty = is_empty
        self._engine = engine
        self._identity = identity
        self._cluster = cluster
        self._fail = fail

    def objection(self, node_id: int, store: str, starts: int, earlier_starts: Sequence[int]) -> Objection | None:
        """See `Admission.objection`."""
        catalog = self._engine.catalog
        member = catalog.members.get(node_id)
        named = (member.store if member is not None else "") or self._known.stores.get(node_id, "")
        who = f"node {node_id} ({member.name})" if member is not None else f"node {node_id}"
        anew = "to come back, it joins as a new member with an empty data folder"
        if member is not None and member.state == "removed":
            return Objection(grpc.StatusCode.NOT_FOUND, f"{who} was removed from the cluster; {anew}")
        if store and named and store != named:
            text = f"{who} comes back with other data than it had: remove it from the cluster first; {anew}"
            return Objection(grpc.StatusCode.DATA_LOSS, text)
        applied = catalog.node(node_id)
        # A majority of older copies is not to be heard out: here the last start was known before it agreed on less.
        last_known = max(
            0 if applied is None else applied.incarnation >> STARTS_SHIFT, self._known.starts.get(node_id, 0)
        )
        before = max((start for start in earlier_starts if start < last_known), default=0)
        if (
            starts not in (0, last_known) and last_known not in earlier_starts and last_known
            and (before or not earlier_starts)
        ):
            text = (
                f"{who} comes back with data of an earlier time: it knows of a start at {start_text(before)}, node "
                f"{self._identity.node} of one at {start_text(last_known)}. If copies were put back: all "
                "nodes need copies of the same stop, or one new cluster is made of all copies with mayfly restore. "
                f"Else remove it from the cluster first; {anew}"
            )
            return Objection(grpc.StatusCode.DATA_LOSS, text)
        return None

    def level_fault(self, levels: VersionRange) -> str:
        """See `Admission.level_fault`."""
        catalog = self._engine.catalog
        return level_fault(levels, catalog.level) if catalog.members.founded else ""

    def is_newcomer(self, node_id: int) -> bool:
        """See `Admission.is_newcomer`: ids grow, so one above all that are known was given out since."""
        return all(record.id < node_id for record in self._engine.catalog.members.all())

    def refused(self, peer: int, text: str, removed: bool) -> None:
        """See `Admission.refused`."""
        self._fail(f"node {peer} says: {text}", removed)

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """See `Admission.join`."""
        if request.cluster and request.cluster != self._identity.cluster:
            return self._not_yet(
                f"cluster {self._identity.cluster} is here, which those seeds have not founded; to come into this one, "
                "start with join and without seeds", FOREIGN,
            )
        stance = ""
        if request.founder:
            refusal = await self._refusal_of_founder(request)
            if refusal is not None:
                return refusal
            stance = TAKEN
        if self._engine.host.groups[CATALOG_GROUP].leader == 0:
            return self._not_yet("the catalog has no leader at present", stance)
        for record in self._engine.catalog.members.with_replicas():
            if record.address and is_any_host(Address.parse(record.address).host):
                return JoinAnswer.refused(f"{record.name} can't be reached at {record.address}: give it "
                                          "an advertised_peer_address")
        fault = self.level_fault(request.levels)
        if fault:
            return JoinAnswer.refused(f"the node can't be let in: {fault}")
        levels = (request.levels.lowest, request.levels.highest)
        answer = await self._cluster.command(AddMember(request.name, request.address, request.store, levels))
        if isinstance(answer, Refusal):
            again = "founded yet" in answer.text or STILL_THERE in answer.text
            if STILL_THERE in answer.text:
                present = self._engine.catalog.members.with_replicas()
                place = self._abandoned.claimed(present, request.name, request.address, request.store)
                if place:
                    await self._cluster.command(RemoveMember(str(place)))
            return self._not_yet(answer.text, stance) if again else JoinAnswer.refused(answer.text)
        if not isinstance(answer, MemberAdded):
            return self._not_yet("the catalog did not answer in time", stance)
        members = self._engine.catalog.members
        member, identity = answer.member, self._identity
        log.info("node %d (%s) at %s joins", member.id, member.name, member.address)
        return JoinAnswer(
            node_id=member.id, node_name=member.name, cluster_id=identity.cluster, shards=identity.shards,
            replication_factor=identity.replication_factor, members_version=members.version,
            members={record.id: (record.name, record.address) for record in members.with_replicas()},
        )

    async def _refusal_of_founder(self, request: JoinRequest) -> JoinAnswer | None:
        """What an empty founder is told that would begin as one; None: its place is taken."""
        members = self._engine.catalog.members
        if not members.founded and self._is_empty():
            return self._not_yet("no cluster yet: its founders come together", FORMING)
        # What the cluster knows, not only what this node has heard: the asker may have come and been emptied since.
        led = self._engine.host.groups[CATALOG_GROUP].leader != 0
        if led and await self._cluster.behind((CATALOG_GROUP,)):
            return self._not_yet("the catalog did not answer in time", UNSURE)
        if not members.founded:
            return self._not_yet("this node does not know its cluster yet", UNSURE)
        record = members.get(request.founder)
        named = (record.store if record is not None else "") or self._known.stores.get(request.founder, "")
        present = record is not None and record.state != "removed"
        started = self._engine.catalog.node(request.founder) is not None
        stance = stance_towards(request.store, named, started, present, led)
        if stance == TAKEN:
            return None
        return self._not_yet("it is a founder's place" if led else "the catalog has no leader at present", stance)

    def _not_yet(self, text: str, stance: str = "") -> JoinAnswer:
        return JoinAnswer.refused(text, True, stance, self._identity.store)
