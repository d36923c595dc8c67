"""Which changes of the plan come next, while a cluster runs (pure).

A plan is not changed to what it should be at once: replicas would be copied from everywhere to everywhere.
`next_changes` gives a few that can begin now, and is asked again when something has come of them. In this order:

1. Who is away or leaves is replaced where it votes, and groups with too few voters get more.
2. Voters are spread over failure domains, zones first.
3. Votes, and then preferred leaderships, are evened out by what they weigh.

A change moves one vote of a group or its preferred leadership. One replica at a time comes to a node, and one goes from
it, except that from a node that is not there nothing has to be taken. A group is changed only when it has the voters
that the plan names, and a majority of them is there: of another one every replica may be needed. What comes first goes
first: nothing is evened out while somebody is to be replaced or spread.

Each change makes something better that no later one makes worse again unless for something before it in that order,
so for loads that stay there is an end. Loads change all the time, so it takes more than a little of them to move
anything.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mayfly.cluster.host.failure_domains import Domain, FailureDomains, Path

IDLE_WEIGHT: Final = 20
"""What a group weighs that has nothing to do; to it comes its load, in thousandths of a core."""

VOTES_APART: Final = 2
LEADS_APART: Final = 1
"""By so many idle groups two nodes may differ for good, as in a first plan..."""

VOTES_LOAD_PART: Final = 2
LEADS_LOAD_PART: Final = 4
"""...and by one of so many parts of the load that each node would have if all had the same. A replica is copied to be
moved, a leadership is only handed over."""

MOST_CHANGES: Final = 8
"""Groups changed at once."""

Change = tuple[int, tuple[int, ...]]
"""A group and who shall vote in it, the preferred leader first."""


NO_LOADS: Final[Mapping[int, int]] = MappingProxyType({})
NONE_MOVING: Final[Mapping[int, Collection[int]]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Situation:
    """What the next changes follow from.

    `nodes` are those that may vote, of them those in `away` were silent for too long. Nodes in `down`, be they among
    them or not, are not there at the moment. `failure_domains` says where nodes are. `loads` are groups' loads in
    thousandths of a core. `moving` maps groups that do not have the voters of the plan yet, as far as is known, to
    those they have; to nobody if that is not known. Unless `domains_known`, nothing is moved only to be spread or
    evened out."""

    plan: Mapping[int, Sequence[int]]
    nodes: Sequence[int]
    replication_factor: int
    failure_domains: Mapping[int, Path]
    pinned: Collection[int] = ()
    away: Collection[int] = ()
    down: Collection[int] = ()
    loads: Mapping[int, int] = field(default_factory=lambda: NO_LOADS)
    moving: Mapping[int, Collection[int]] = field(default_factory=lambda: NONE_MOVING)
    domains_known: bool = True
    count: int = field(init=False)
    """How many voters a group is to have."""
    domains: FailureDomains = field(init=False)
    missing: set[int] = field(init=False)
    usable: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = sorted(self.nodes)
        self.count = min(self.replication_factor, len(self.nodes))
        self.domains = FailureDomains(
            sorted({*self.nodes, *(node for voters in self.plan.values() for node in voters)}), self.failure_domains
        )
        self.pinned = set(self.pinned)
        self.away = set(self.away)
        self.missing = {*self.away, *self.down}
        self.usable = [node for node in self.nodes if node not in self.missing]

    def weight(self, group: int) -> int:
        """What a vote or a leadership of the group weighs."""
        return IDLE_WEIGHT + self.loads.get(group, 0)

    def has_majority(self, voters: Collection[int]) -> bool:
        """Whether a majority of these voters is there."""
        return 2 * sum(node not in self.missing for node in voters) > len(voters)


def left_alone(plan: Mapping[int, Sequence[int]], missing: Collection[int]) -> list[int]:
    """The groups in which nothing can be decided without one of those that are missing."""
    return [
        group for group, voters in plan.items() if 2 * sum(node not in missing for node in voters) <= len(voters)
    ]


def next_changes(situation: Situation) -> list[Change]:
    """What can begin now, at most MOST_CHANGES groups; nothing if all is as it should be, or is being done."""
    return _Planner(situation).changes()


def owed(situation: Situation) -> list[int]:
    """The groups in which somebody is to be replaced or added, or voters to be spread, now or later."""
    planner = _Planner(situation)
    return [group for group in situation.plan if planner.is_owed(group)]


class _Planner:
    """The plan while changes are looked for."""

    def __init__(self, situation: Situation) -> None:
        self._is = situation
        self._plan = {group: list(voters) for group, voters in situation.plan.items()}
        self._changed: dict[int, None] = {}
        self._receiving: set[int] = set()
        self._giving: set[int] = set()
        for group, present in situation.moving.items():
            planned = self._plan.get(group, [])
            self._receiving.update(node for node in planned if present and node not in present)
            self._giving.update(node for node in present if node not in planned)
        self._population = situation.domains.population_of(situation.usable)
        self._ranked: list[int] = []
        """Who may vote: who is not busy first, and who has the fewest votes; empty if that has changed."""
        self._votes = dict.fromkeys(situation.nodes, 0)
        self._leads = dict.fromkeys(situation.nodes, 0)
        for group, voters in self._plan.items():
            self._count(group, voters, 1)

    def _count(self, group: int, voters: Sequence[int], sign: int) -> None:
        weight = sign * self._is.weight(group)
        for node in voters:
            if node in self._votes:
                self._votes[node] += weight
        if voters and voters[0] in self._leads:
            self._leads[voters[0]] += weight

    def changes(self) -> list[Change]:
        """See `next_changes`."""
        waits = False
        for group in self._plan:
            if len(self._changed) < MOST_CHANGES:
                waits |= self._repair(group)
        if self._is.domains_known and not self._changed and not waits:
            for group in self._plan:
                if len(self._changed) < MOST_CHANGES:
                    waits |= self._spread(group)
            if not self._changed and not waits:
                while len(self._changed) < MOST_CHANGES and (self._even_votes() or self._even_leads()):
                    pass
        return [(group, tuple(self._plan[group])) for group in self._changed]

    def is_owed(self, group: int) -> bool:
        """See `owed`."""
        voters = self._plan[group]
        if self._wanted(group, voters) is not None:
            return self._is.has_majority(self._is.moving.get(group) or voters)
        return self._is.domains_known and bool(self._ways_to_spread(group))

    # ------------------------------------------------------------------ what may be done

    def _may_change(self, group: int) -> bool:
        return (
            group not in self._is.moving
            and group not in self._changed
            and self._is.has_majority(self._plan[group])
        )

    def _may_move(self, group: int) -> bool:
        """Whether the group may be changed only for the sake of evenness."""
        voters = self._plan[group]
        return (
            self._may_change(group)
            and group not in self._is.pinned
            and len(voters) == self._is.count
            and all(node in self._votes and node not in self._is.missing for node in voters)
        )

    def _may_go(self, node: int) -> bool:
        return node not in self._giving or node in self._is.missing

    def _candidates(self, voters: Sequence[int]) -> list[int]:
        """Who could vote as well; some of them may be busy."""
        return [node for node in self._is.usable if node not in voters]

    def _put(self, group: int, voters: list[int], receiver: int | None, giver: int | None) -> None:
        self._count(group, self._plan[group], -1)
        self._plan[group] = voters
        self._count(group, voters, 1)
        self._changed[group] = None
        self._ranked = []
        if receiver is not None:
            self._receiving.add(receiver)
        if giver is not None:
            self._giving.add(giver)

    # ------------------------------------------------------------------ 1: who is away or leaves

    def _repair(self, group: int) -> bool:
        """Replace one voter that has to be, or add one; True: that is to be done, but not now."""
        voters = self._plan[group]
        wanted = self._wanted(group, voters)
        present = self._is.moving.get(group) or voters
        if wanted is None or not self._is.has_majority(present):
            return False
        kept, giver = wanted
        # A move to a node that has gone meanwhile would never end: the next one takes its place.
        if group in self._changed or (group in self._is.moving and (giver is None or giver in present)):
            return True
        if giver is not None and not self._may_go(giver):
            return True
        receiver: int | None = None
        candidates = self._candidates(voters)
        if len(kept) < self._is.count and candidates:
            crowding = {node: self._is.domains.crowding(kept, node) for node in candidates}
            least = min(crowding.values())
            free = [node for node in candidates if crowding[node] == least and node not in self._receiving]
            if not free:
                return True
            receiver = min(free, key=lambda node: (self._votes[node], node))
        self._put(group, self._led(kept if receiver is None else [*kept, receiver]), receiver, giver)
        return False

    def _wanted(self, group: int, voters: list[int]) -> tuple[list[int], int | None] | None:
        """Who stays, and who goes (None: one is to come without that); None: all is well."""
        leaving = [node for node in voters if node not in self._votes]
        others = self._candidates(voters)
        if leaving and len(voters) > 1:
            return [node for node in voters if node != leaving[-1]], leaving[-1]
        if leaving and others:
            return [], leaving[0]
        away = [node for node in voters if node in self._is.away]
        if away and others:
            return [node for node in voters if node != away[-1]], away[-1]
        if group in self._is.pinned:
            return None
        if len(voters) < self._is.count and others:
            return voters, None
        if len(voters) > self._is.count:
            return voters[:-1], voters[-1]
        if voters[0] in self._is.away and self._led(voters) != voters:
            return voters, None
        return None

    def _led(self, voters: list[int]) -> list[int]:
        """The same voters; the preferred leader is not one that is away, if another one is there."""
        if voters[0] not in self._is.away:
            return voters
        there = [node for node in voters if node not in self._is.missing and node in self._votes]
        if not there:
            return voters
        first = min(there, key=lambda node: (self._leads[node], node))
        return [first, *(node for node in voters if node != first)]

    # ------------------------------------------------------------------ 2: failure domains

    def _spread(self, group: int) -> bool:
        """Move one vote to where it is spread better; True: that is to be done, but not now."""
        voters = self._plan[group]
        moves = self._ways_to_spread(group)
        free = [move for move in moves if move[2] not in self._receiving and self._may_go(move[5])]
        if not free or not self._may_change(group):
            return bool(moves)
        best = min(free)
        self._put(group, _replaced(voters, best[5], best[2]), best[2], best[5])
        return False

    def _ways_to_spread(self, group: int) -> list[tuple[tuple[int, ...], int, int, bool, int, int]]:
        """What each move would gain and cost, the third is who would vote in the place of the last: of those who are
        as good as each other one, who is not busy if there is such, and has the fewest votes."""
        voters = self._plan[group]
        if group in self._is.pinned or any(node in self._is.missing or node not in self._votes for node in voters):
            return []
        if self._is.domains.all_apart(voters):
            return []
        spread = self._is.domains.spread_of(voters)
        kinds = spread.kinds(self._population)
        best: dict[tuple[int, Domain], int] = {}
        for node in self._by_rank():
            if len(best) == kinds:
                break
            if node not in voters:
                best.setdefault(spread.likeness(node), node)
        return [
            (gain, self._votes[light], light, heavy == voters[0], -self._votes[heavy], heavy)
            for light in best.values()
            for heavy in voters
            if (gain := spread.gain(heavy, light)) < self._is.domains.no_gain
        ]

    def _by_rank(self) -> list[int]:
        if not self._ranked:
            self._ranked = sorted(self._is.usable, key=lambda node: (node in self._receiving, self._votes[node], node))
        return self._ranked

    # ------------------------------------------------------------------ 3: evenness

    def _bearable(self, apart: int, part: int) -> int:
        load = sum(self._is.loads.get(group, 0) for group in self._plan)
        return apart * IDLE_WEIGHT + load // (part * max(1, len(self._is.usable)))

    def _even_votes(self) -> bool:
        bearable = self._bearable(VOTES_APART, VOTES_LOAD_PART)
        votes_of: dict[int, list[int]] = {node: [] for node in self._is.nodes}
        for group, voters in self._plan.items():
            if self._may_move(group):
                for node in voters:
                    votes_of[node].append(group)
        for heavy, light in self._unequal(self._votes, bearable):
            if light in self._receiving or not self._may_go(heavy):
                continue
            groups = [
                group
                for group in votes_of[heavy]
                if light not in self._plan[group]
                and self._is.domains.gain(self._plan[group], heavy, light) <= self._is.domains.no_gain
            ]
            best = self._best(groups, self._votes[heavy] - self._votes[light], heavy)
            if best is not None:
                self._put(best, _replaced(self._plan[best], heavy, light), light, heavy)
                return True
        return False

    def _even_leads(self) -> bool:
        bearable = self._bearable(LEADS_APART, LEADS_LOAD_PART)
        for heavy, light in self._unequal(self._leads, bearable):
            groups = [
                group
                for group, voters in self._plan.items()
                if voters[0] == heavy and light in voters and self._may_move(group)
            ]
            best = self._best(groups, self._leads[heavy] - self._leads[light], heavy)
            if best is not None:
                self._put(best, [light, *(node for node in self._plan[best] if node != light)], None, None)
                return True
        return False

    def _best(self, groups: Sequence[int], apart: int, heavy: int) -> int | None:
        """Of these groups the one that evens out most of a difference; None: none does it by as much as it weighs."""
        ranked = [(abs(apart - 2 * self._is.weight(group)), self._plan[group][0] == heavy, group) for group in groups]
        if not ranked:
            return None
        left, _, group = min(ranked)
        return group if apart - left >= self._is.weight(group) else None

    def _unequal(self, load: Mapping[int, int], bearable: int) -> Iterator[tuple[int, int]]:
        """Pairs (more, less) of those that are there, the most different first."""
        usable = self._is.usable
        pairs = [(heavy, light) for heavy in usable for light in usable if load[heavy] - load[light] > bearable]
        yield from sorted(pairs, key=lambda pair: (load[pair[1]] - load[pair[0]], pair))


def _replaced(voters: Sequence[int], old: int, new: int) -> list[int]:
    return [new if node == old else node for node in voters]
