"""The members of the cluster and the plan of who votes where: the part of the catalog that operators change.

The plan follows the members by `cluster.host.placement.replanned`; every replica comes to the same one.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mayfly.cluster.host.placement import Plan, first_plan, replanned
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog.commands import AddMember, FoundCluster, PlaceGroup, PreferLeader
from mayfly.node.catalog.records import MemberRecord, MemberState
from mayfly.node.catalog.results import Refusal
from mayfly.node.numbers import CATALOG_GROUP

_HIGHEST_NODE_ID = 0xFFFF
STILL_THERE = "is still there"
"""In the refusal of a node that comes as another one's successor too early."""


def _refused(text: str) -> Refusal:
    return Refusal(PRECONDITION_FAILED, text)


class StoredMembers(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of `Members`."""

    version: int = 0
    replication_factor: int = 0
    next_id: int = 1
    members: tuple[MemberRecord, ...] = ()
    plan: tuple[tuple[int, tuple[int, ...]], ...] = ()
    pinned: tuple[int, ...] = ()


class Members:
    """Who belongs to the cluster. `version` is replicated and grows with every change."""

    def __init__(self, shard_count: int, stored: StoredMembers | None = None) -> None:
        stored = stored or StoredMembers()
        self._groups = range(shard_count + 1)
        self.version: int = stored.version
        self.replication_factor: int = stored.replication_factor
        self._next_id = stored.next_id
        self._records = {record.id: record for record in stored.members}
        self._pinned = dict.fromkeys(stored.pinned)
        self.plan: Plan = dict(stored.plan)
        self._led: dict[int, list[int]] = {}
        self._led_version = -1

    def stored(self) -> StoredMembers:
        """For the snapshot."""
        return StoredMembers(
            self.version, self.replication_factor, self._next_id, tuple(self._records.values()),
            tuple(self.plan.items()), tuple(self._pinned),
        )

    # Reading

    @property
    def founded(self) -> bool:
        """Whether the catalog knows its members yet."""
        return bool(self._records)

    def all(self) -> Iterable[MemberRecord]:
        """All that ever were, by id."""
        return self._records.values()

    def get(self, id: int) -> MemberRecord | None:
        """The member with that id, a removed one too."""
        return self._records.get(id)

    def with_replicas(self) -> list[MemberRecord]:
        """All but the removed ones, by id."""
        return [record for record in self._records.values() if record.state != "removed"]

    def shards_led_by(self, id: int) -> Sequence[int]:
        """The shards of which the plan has the node the leader."""
        if self._led_version != self.version:
            self._led_version = self.version
            self._led = {}
            for group, voters in self.plan.items():
                if group != CATALOG_GROUP and voters:
                    self._led.setdefault(voters[0], []).append(group)
        return self._led.get(id, ())

    def pinned(self, group: int) -> bool:
        """Whether an operator has chosen the group's voters."""
        return group in self._pinned

    def find(self, name: str) -> MemberRecord:
        """The present member with that name, or that id. Raises Refusal."""
        present = self.with_replicas()
        for record in present:
            if record.name == name:
                return record
        for record in present:
            if str(record.id) == name:
                return record
        known = ", ".join(record.name for record in present)
        raise Refusal(404, f"no member '{name}'; there are {known}")

    # Applying

    def found(self, command: FoundCluster, time_ms: int) -> bool:
        """The first members; False when they are known. Raises Refusal."""
        if self._records:
            return False
        ids = [id for id, _, _ in command.members]
        if not ids or len(set(ids)) != len(ids) or min(ids) < 1 or max(ids) > _HIGHEST_NODE_ID:
            raise _refused(f"members with the ids {ids}, different ones from 1 to {_HIGHEST_NODE_ID} expected")
        if command.replication_factor < 1:
            raise _refused(f"replication_factor {command.replication_factor}, at least 1 expected")
        for id, name, address in command.members:
            self._records[id] = MemberRecord(id, name, address, "member", changed_ms=time_ms)
        self._next_id = max(self._records) + 1
        self.replication_factor = command.replication_factor
        self.plan = first_plan(self._groups, sorted(self._records), self.replication_factor)
        self.version += 1
        return True

    def add(
        self, command: AddMember, time_ms: int, is_up: Callable[[int], bool] = lambda id: True
    ) -> MemberRecord:
        """A new member, or the one that it is already. Raises Refusal.

        A member that has the same name and address can't be another one: its data is gone, and it is replaced, as soon
        as it is not `is_up` any more. Nodes that come with a name of their own only: others are not known again.
        """
        if not self._records:
            raise _refused("the cluster has not been founded yet; try again")
        if not command.store:
            raise _refused("a node that joins names its data")
        for record in self._records.values():
            if record.store == command.store:
                if record.state == "removed":
                    raise _refused(f"{record.name} (node {record.id}) was removed; empty its data folder")
                return record
        for record in self.with_replicas():
            if command.name and (record.name, record.address) == (command.name, command.address):
                self._succeeded(record, time_ms, is_up)
        for record in self.with_replicas():
            if record.name == command.name:
                raise _refused(f"there is a member '{record.name}' (node {record.id}); remove it first")
            if record.address == command.address:
                raise _refused(f"{record.name} (node {record.id}) is at {record.address}; remove it first")
        id = self._next_id
        if id > _HIGHEST_NODE_ID:
            raise _refused("all node ids have been used")
        self._next_id += 1
        name = command.name or f"node{id}"
        record = self._records[id] = MemberRecord(id, name, command.address, "joining", command.store, time_ms)
        self.version += 1
        return record

    def _succeeded(self, record: MemberRecord, time_ms: int, is_up: Callable[[int], bool]) -> None:
        """A node with new data takes a member's name and address: the member goes. Raises Refusal while it is up.

        It has no address any more: what is sent there now would come to the wrong node."""
        if is_up(record.id):
            raise _refused(f"{record.name} (node {record.id}) at {record.address} {STILL_THERE}; try again")
        if record.state != "leaving":
            self.remove(str(record.id), time_ms)
        old = self._records[record.id]
        self._put(msgspec.structs.replace(old, name=f"{record.name}-was-{record.id}", address=""), time_ms)

    def started(
        self, id: int, name: str, address: str, store: str, time_ms: int, failure_domain: str = ""
    ) -> None:
        """A node says what it is called, where it is, what its data is called and what it may be lost together with; a
        joining one has joined."""
        known = self._records.get(id)
        if known is None or known.state == "removed":
            return
        now = msgspec.structs.replace(
            known,
            name=name or known.name,
            address=address or known.address,
            store=known.store or store,
            state="member" if known.state == "joining" else known.state,
            failure_domain=failure_domain or known.failure_domain,
        )
        if now != known:
            self._put(now, time_ms)
            moved = now.failure_domain != known.failure_domain and self._all_domains_known()
            if now.state != known.state or moved:
                self._replan()

    def _all_domains_known(self) -> bool:
        """Whether all that vote have said where they are. Before that, two of one machine would be taken for two that
        can't be lost together, and votes be moved to one that has not spoken, only to be moved again."""
        return all(record.failure_domain for record in self._records.values() if record.state == "member")

    def remove(self, name: str, time_ms: int) -> bool:
        """Begin to take a member out; False when that has begun. Raises Refusal."""
        record = self.find(name)
        if record.state == "leaving":
            return False
        if not any(other.state == "member" and other.id != record.id for other in self._records.values()):
            raise _refused(f"{record.name} is the last member")
        self._put(_in_state(record, "leaving"), time_ms)
        self._replan()
        return True

    def gone(self, id: int, time_ms: int) -> bool:
        """A leaving member is out; False when it is not leaving."""
        record = self._records.get(id)
        if record is None or record.state != "leaving":
            return False
        self._put(_in_state(record, "removed"), time_ms)
        return True

    def place(self, command: PlaceGroup) -> bool:
        """Choose a group's voters, or let them be worked out again. Raises Refusal."""
        self._known_group(command.group)
        if not command.voters:
            if command.group not in self._pinned:
                return False
            del self._pinned[command.group]
            self._replan()
            return True
        chosen = [self.find(name) for name in command.voters]
        for record in chosen:
            if record.state != "member":
                raise _refused(f"{record.name} is {record.state}")
        ids = tuple(dict.fromkeys(record.id for record in chosen))
        if len(ids) != len(chosen):
            raise _refused("a node is named twice")
        if self.plan[command.group] == ids and command.group in self._pinned:
            return False
        self._pin(command.group, ids)
        return True

    def prefer(self, command: PreferLeader) -> bool:
        """Choose which of a group's voters leads it. Raises Refusal."""
        self._known_group(command.group)
        record = self.find(command.leader)
        voters = self.plan[command.group]
        if record.id not in voters:
            raise _refused(f"{record.name} does not vote in group {command.group}; move the shard there first")
        if voters[0] == record.id:
            return False
        self._pin(command.group, (record.id, *(id for id in voters if id != record.id)))
        return True

    def _known_group(self, group: int) -> None:
        if group not in self.plan:
            raise Refusal(404, f"no group {group}; there are 0 (the catalog) to {self._groups[-1]}")

    def _pin(self, group: int, voters: tuple[int, ...]) -> None:
        self.plan[group] = voters
        self._pinned[group] = None
        self.version += 1

    def _put(self, record: MemberRecord, time_ms: int) -> None:
        self._records[record.id] = msgspec.structs.replace(record, changed_ms=time_ms)
        self.version += 1

    def _replan(self) -> None:
        """Follow the members. Groups whose chosen voters are gone are worked out from now on."""
        domains = {record.id: record.failure_domain for record in self._records.values() if record.state == "member"}
        voting = list(domains)
        if not voting:
            return
        present = set(voting)
        self._pinned = {group: None for group in self._pinned if present.issuperset(self.plan[group])}
        self.plan = replanned(self.plan, voting, self.replication_factor, tuple(self._pinned), domains)
        self.version += 1


def _in_state(record: MemberRecord, state: MemberState) -> MemberRecord:
    return msgspec.structs.replace(record, state=state)
