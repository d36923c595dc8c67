"""The members of the cluster and the plan of who votes where: the part of the catalog that operators change.

Below LEVEL_PLANS the plan follows the members by `cluster.host.placement.replanned`; every replica comes to the
same one. From there on that is so while nothing would have to be moved for it, as long as there are no queues. Then the
catalog's leader changes the plan, a few groups at a time (`node.membership.plan_duty`), and the log says what it has
come to.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mayfly.cluster.host.failure_domains import Path, path_of, whole
from mayfly.cluster.host.placement import Plan, first_plan, replanned
from mayfly.cluster.host.plan_moves import NO_LOADS, NONE_MOVING, Situation, left_alone, owed
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog.commands import AddMember, FoundCluster, PlaceGroup, PlanGroups, PreferLeader
from mayfly.node.catalog.records import MemberRecord, MemberState
from mayfly.node.catalog.results import Refusal
from mayfly.node.limits import SHARDS
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
    added_shards: tuple[tuple[int, ...], ...] = ()


class Members:
    """Who belongs to the cluster. `version` is replicated and grows with every change."""

    def __init__(self, founding_shards: int, stored: StoredMembers | None = None) -> None:
        stored = stored or StoredMembers()
        self._founding_shards = founding_shards
        self._added_shards = list(stored.added_shards)
        """Of each shard that was added, in order, who voted in it at first."""
        self.version: int = stored.version
        self.replication_factor: int = stored.replication_factor
        self._next_id = stored.next_id
        self._records = {record.id: record for record in stored.members}
        self._pinned = dict.fromkeys(stored.pinned)
        self.plan: Plan = dict(stored.plan)
        self._led: dict[int, list[int]] = {}
        self._led_version = -1
        self.has_domain_paths: bool = False
        """Whether failure domains have parts; set by who changes the members, as the next is."""
        self.is_gradual: bool = False
        """Whether the plan waits for those who change it step by step."""

    def stored(self) -> StoredMembers:
        """For the snapshot."""
        return StoredMembers(
            self.version, self.replication_factor, self._next_id, tuple(self._records.values()),
            tuple(self.plan.items()), tuple(self._pinned), tuple(self._added_shards),
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

    @property
    def shard_count(self) -> int:
        """The number of shards; they are the groups from 1 on."""
        return self._founding_shards + len(self._added_shards)

    def first_voters(self, shard: int) -> tuple[int, ...] | None:
        """Of an added shard: with whom as its voters it began, the preferred leader first. None: it is there since the
        founding, or not at all.

        It is kept for good, whoever votes there now. Each of these nodes begins its replica with exactly these voters,
        also one that was down when the shard was added and hears of it late, perhaps by a snapshot of the catalog: an
        empty log whose node has never voted is what Raft takes it for, whatever the others have done meanwhile.
        Beginning with the present voters instead would be another group's beginning.
        """
        number = shard - self._founding_shards - 1
        return self._added_shards[number] if 0 <= number < len(self._added_shards) else None

    def shards_led_by(self, id: int) -> Sequence[int]:
        """The shards of which the plan has the node the leader."""
        if self._led_version != self.version:
            self._led_version = self.version
            self._led = {}
            for group, voters in self.plan.items():
                if group != CATALOG_GROUP and voters:
                    self._led.setdefault(voters[0], []).append(group)
        return self._led.get(id, ())

    def voting(self) -> list[int]:
        """Those that may vote."""
        return [record.id for record in self._records.values() if record.state == "member"]

    def those_away(self) -> list[int]:
        """Members that were silent for too long, and are to vote nowhere as far as others can."""
        return [record.id for record in self._records.values() if record.away and record.state == "member"]

    def failure_domains(self, read: Callable[[str], Path] = path_of) -> dict[int, Path]:
        """Of those that may vote."""
        return {record.id: read(record.failure_domain) for record in self._records.values() if record.state == "member"}

    @property
    def all_domains_known(self) -> bool:
        """Whether all that vote have said where they are. Before that, two of one machine would be taken for two that
        can't be lost together, and votes be moved to one that has not spoken, only to be moved again."""
        return all(record.failure_domain for record in self._records.values() if record.state == "member")

    def situation(
        self,
        down: Collection[int],
        loads: Mapping[int, int] = NO_LOADS,
        moving: Mapping[int, Collection[int]] = NONE_MOVING,
    ) -> Situation:
        """What changes of the plan follow from, with what the catalog does not know: see `Situation`."""
        domains = self.failure_domains()
        return Situation(
            self.plan, self.voting(), self.replication_factor, domains, self.all_pinned(), self.those_away(), down,
            loads, moving,
            # Where nobody has one there is nobody to wait for.
            self.all_domains_known or not any(domains.values()),
        )

    def owed(self, down: Collection[int] = ()) -> list[int]:
        """The groups in which the plan is still to be changed for more than evenness."""
        return owed(self.situation(down))

    def left_alone(self) -> list[int]:
        """The groups most of whose voters are away: nothing is planned in them."""
        return left_alone(self.plan, self.those_away())

    def still_planned_on(self, id: int) -> int:
        """In how many groups the plan has the node vote."""
        return sum(id in voters for voters in self.plan.values())

    def to_move_from(self, id: int) -> int:
        """How many of its votes others are to have: all of one that leaves or is away."""
        record = self._records.get(id)
        goes = record is not None and (record.away or record.state == "leaving")
        return self.still_planned_on(id) if goes else 0

    def all_pinned(self) -> list[int]:
        """The groups whose voters an operator has chosen."""
        return list(self._pinned)

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
        self.plan = first_plan(range(self.shard_count + 1), sorted(self._records), self.replication_factor)
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
            moved = now.failure_domain != known.failure_domain and self.all_domains_known
            if now.state != known.state or moved:
                self._replan()

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
        if record is None or record.state != "leaving" or self.still_planned_on(id):
            return False
        self._put(_in_state(record, "removed"), time_ms)
        return True

    def away(self, id: int, time_ms: int) -> bool:
        """A member is silent; False when that is known, or nobody else is there."""
        record = self._records.get(id)
        if record is None or record.state != "member" or record.away:
            return False
        if set(self.voting()) == {id, *self.those_away()}:
            return False
        self._put(msgspec.structs.replace(record, away=True), time_ms)
        return True

    def back(self, id: int, time_ms: int) -> bool:
        """A member is there again; False when it was not away."""
        record = self._records.get(id)
        if record is None or not record.away:
            return False
        self._put(msgspec.structs.replace(record, away=False), time_ms)
        return True

    def plan_groups(self, command: PlanGroups) -> bool:
        """Who votes in some groups from now on; False if the members are not those that this was made for. Raises
        Refusal."""
        if command.version != self.version or not command.changes:
            return False
        away = set(self.those_away())
        fit = set(self.voting()) - away
        for group, voters in command.changes:
            self._known_group(group)
            before = self.plan[group]
            if not voters or len(set(voters)) != len(voters) or not fit.issuperset(set(voters) - set(before)):
                raise _refused(f"voters {list(voters)} for group {group}, different members that are there expected")
            if 2 * sum(id not in away for id in before) <= len(before):
                raise _refused(f"most voters of group {group} are away: it is left alone")
        for group, voters in command.changes:
            if set(voters) != set(self.plan[group]):
                self._pinned.pop(group, None)
            self.plan[group] = voters
        self.version += 1
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
            if record.state != "member" or record.away:
                raise _refused(f"{record.name} is {'away' if record.state == 'member' else record.state}")
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

    def add_shards(self, total: int, is_up: Callable[[int], bool]) -> bool:
        """There are to be so many shards; False when there are. Raises Refusal.

        The new ones go where the fewest votes are, in the order of `replanned`, and nothing else moves. Members that
        are not `is_up` vote in them only where the others are too few for all votes, and never as a majority; nor do
        those that are away, and have just come back, while there are others.
        """
        if not self._records:
            raise _refused("the cluster has not been founded yet; try again")
        present = self.shard_count
        if total == present:
            return False
        if not present < total <= SHARDS:
            raise _refused(
                f"total = {total}: from {present} shards, which there are and which stay, to {SHARDS} are expected"
            )
        domains = self._own_domains()
        added = range(present + 1, total + 1)
        wanted = {**self.plan, **dict.fromkeys(added, ())}
        made = replanned(
            wanted, self._voters_for_added(list(domains), is_up), self.replication_factor, tuple(self.plan), domains
        )
        for shard in added:
            self.plan[shard] = made[shard]
            self._added_shards.append(made[shard])
        self.version += 1
        return True

    def _voters_for_added(self, voting: list[int], is_up: Callable[[int], bool]) -> list[int]:
        """The members that may vote in added shards: those that are up and not away, or as many as vote in a shard."""
        voters = min(self.replication_factor, len(voting))
        there = [id for id in voting if is_up(id)]
        away = self.those_away()
        fit = [id for id in there if id not in away]
        if len(fit) >= voters:
            return fit
        if 2 * len(there) <= voters:
            raise _refused(
                f"{len(there)} of {len(voting)} members are up: a new shard has {voters} voters, "
                f"{voters // 2 + 1} of them have to be up"
            )
        others = [id for id in there if id in away] + [id for id in voting if id not in there]
        return fit + others[: voters - len(fit)]

    def _known_group(self, group: int) -> None:
        if group not in self.plan:
            raise Refusal(404, f"no group {group}; there are 0 (the catalog) to {self.shard_count}")

    def _pin(self, group: int, voters: tuple[int, ...]) -> None:
        self.plan[group] = voters
        self._pinned[group] = None
        self.version += 1

    def _put(self, record: MemberRecord, time_ms: int) -> None:
        self._records[record.id] = msgspec.structs.replace(record, changed_ms=time_ms)
        self.version += 1

    def _own_domains(self) -> dict[int, Path]:
        """The failure domains as the log reads them at its level."""
        return self.failure_domains(path_of if self.has_domain_paths else whole)

    def _replan(self) -> None:
        """Follow the members. Groups whose chosen voters are gone are worked out from now on."""
        voting = self.voting()
        if not voting:
            return
        present = set(voting)
        self._pinned = {group: None for group in self._pinned if present.issuperset(self.plan[group])}
        if not self.is_gradual:
            domains = self._own_domains()
            self.plan = replanned(self.plan, voting, self.replication_factor, tuple(self._pinned), domains)
        self.version += 1


def _in_state(record: MemberRecord, state: MemberState) -> MemberRecord:
    return msgspec.structs.replace(record, state=state)
