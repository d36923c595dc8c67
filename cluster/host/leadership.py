"""Who should lead and vote in the groups of a host, and what its node does about that in those that it leads (pure).

A leader gives its group the members that the plan names (`reconfigure`), gives everything away before its node stops
(`drain`), and hands what somebody else is preferred for to that node (`balance`). Each of the three returns the groups
that have something to send or to write after it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mayfly.cluster.group.group import Group
from mayfly.cluster.host.draining import Draining
from mayfly.cluster.host.leader_balance import LeaderBalance
from mayfly.cluster.host.liveness import Liveness
from mayfly.cluster.host.membership_steps import HandOver, Step, next_step
from mayfly.cluster.host.placement import EVERYWHERE, Plan, first_plan
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.raft import ProposalDropped

CAUGHT_UP_ENTRIES: Final = 100
"""A member whose log is shorter than the leader's by no more than this can vote, or lead, without holding others up."""

class Leadership:
    """The members and leaders that the groups of one host should have; `groups` may grow."""

    def __init__(
        self,
        settings: HostSettings,
        groups: dict[int, Group],
        planned: Iterable[int],
        liveness: Liveness,
        draining: Draining,
    ) -> None:
        """`planned`: the groups that the first plan is made for."""
        self.groups: dict[int, Group] = groups
        self.plan: Plan = first_plan(list(planned), settings.nodes, settings.replication_factor)
        """Group -> the nodes that shall vote, the preferred leader first."""
        self._node = settings.node
        self._election_timeout_ms = settings.election_timeout_ms
        self._members: list[int] = list(settings.nodes)
        self._everywhere = settings.everywhere
        self._liveness = liveness
        self._draining = draining
        self._balance: LeaderBalance = LeaderBalance()

    def set_members(self, members: Sequence[int], plan: Mapping[int, Sequence[int]], everywhere: bool = False) -> None:
        """The cluster has these members from now on, and its groups shall be voted on according to the plan.
        `everywhere`: all members have a replica of every group, not of the catalog alone."""
        self._everywhere = everywhere
        self._members = sorted(members)
        self.plan = {group: tuple(chosen) for group, chosen in plan.items()}

    # ------------------------------------------------------------------ members

    def preferred(self, id: int) -> int:
        """The node that should lead a group."""
        chosen = self.plan.get(id)
        return chosen[0] if chosen else 0

    def replicas(self, id: int) -> Sequence[int]:
        """The nodes that shall have a replica of a group."""
        return self._members if self.is_everywhere(id) else self.plan.get(id, ())

    def is_everywhere(self, id: int) -> bool:
        """Whether all members shall have a replica of a group."""
        return self._everywhere or id == EVERYWHERE

    def reconfiguration(self, id: int, now_ms: int) -> Step:
        """What this node has to do as the leader of a group to give it the members it should have; None: nothing."""
        group = self.groups[id]
        chosen = self.plan.get(id)
        if not chosen or not group.established:
            return None
        if group.raw.lead_transferee or group.raw.has_pending_conf_change:
            return None
        return next_step(
            group.conf_state,
            chosen,
            self.replicas(id),
            self._node,
            lambda node: self._caught_up(group, node, now_ms),
            None if self.is_everywhere(id) else (lambda node: not group.tells(node)),
        )

    def reconfigure(self, now_ms: int) -> list[int]:
        """Take the next step of reconfiguration in every group that is led here and needs one."""
        changed: list[int] = []
        for id, group in self.groups.items():
            step = self.reconfiguration(id, now_ms)
            if step is None:
                continue
            if isinstance(step, HandOver):
                group.raw.transfer_leader(self._rather_than_draining(step.node, id, now_ms))
            else:
                try:
                    group.raw.propose_conf_change(step)
                except ProposalDropped:
                    continue
            changed.append(id)
        return changed

    def _rather_than_draining(self, node: int, id: int, now_ms: int) -> int:
        """The node, or if it wants no lead another one that shall vote in the group."""
        if not self._draining.wants_no_lead(node, now_ms):
            return node
        group = self.groups[id]
        others = [peer for peer in self.successors(group, now_ms) if peer in self.plan.get(id, ())]
        return others[0] if others else node

    def _caught_up(self, group: Group, node: int, now_ms: int) -> bool:
        """On the leader: whether a member is there, and its log nearly as long as this one."""
        match = group.raw.matched(node)
        if match == 0 or group.raw.last_index - match > CAUGHT_UP_ENTRIES:
            return False
        return self._liveness.heard_within(node, now_ms, self._election_timeout_ms)

    # ------------------------------------------------------------------ before a stop

    def drains(self, node: int, now_ms: int) -> bool:
        """Whether a node, this one or a peer that has said so a moment ago, is about to stop."""
        return self._draining.here if node == self._node else self._draining.drains(node, now_ms)

    def can_hand_over(self, now_ms: int) -> bool:
        """Whether something is led here that somebody else could lead."""
        return any(self._able(group, now_ms) for group in self.groups.values() if group.leads)

    def drain(self, now_ms: int) -> list[int]:
        """Hand what is led here to others, as far as they are there and have caught up."""
        handed: list[int] = []
        leads = self._lead_counts()
        for group in self.groups.values():
            if not group.established or group.raw.lead_transferee:
                continue
            able = [peer for peer in self._able(group, now_ms) if self._caught_up(group, peer, now_ms)]
            place = self._draining.attempt(group.id, len(able), now_ms) if able else -1
            if place >= 0:
                chosen = self._in_order(group, able, leads)[place]
                group.raw.transfer_leader(chosen)
                leads[self._node] -= 1
                leads[chosen] = leads.get(chosen, 0) + 1
                handed.append(group.id)
        return handed

    def hand_over(self, group: Group, but_not_to: int, now_ms: int) -> bool:
        """Let somebody else lead a group that is led here: it is the next term that is wanted. False if nobody can."""
        if not group.raw.lead_transferee:
            others = [peer for peer in self.successors(group, now_ms) if peer != but_not_to]
            able = [peer for peer in others if self._caught_up(group, peer, now_ms)]
            if not able:
                return False
            group.raw.transfer_leader(able[0])
        return True

    def successors(self, group: Group, now_ms: int) -> list[int]:
        """Who else could lead a group that is led here: voters that are there and want it. The preferred one
        first, then who leads the fewest groups."""
        return self._in_order(group, self._able(group, now_ms), self._lead_counts()) if group.leads else []

    def others_are_quick(self, group: Group, now_ms: int) -> bool:
        """Whether a majority of the group's voters are other nodes that are there and have not said that their disks
        are late: they could elect one of them, and go on, without waiting for a disk that is."""
        quick = [peer for peer in self._there(group, now_ms) if not self._draining.disk_is_late(peer, now_ms)]
        return 2 * len(quick) > len(group.conf_state.voters)

    def another_is_quick(self, group: Group, now_ms: int) -> bool:
        """Whether a majority of the group's voters are other nodes that are there, and one of them has not said that
        its disk is late: they could elect it, if not at once. A disk that is late may be no more than slow."""
        there = self._there(group, now_ms)
        return 2 * len(there) > len(group.conf_state.voters) and not all(
            self._draining.disk_is_late(peer, now_ms) for peer in there
        )

    def _there(self, group: Group, now_ms: int) -> list[int]:
        return [
            peer for peer in group.conf_state.voters if peer != self._node and self._liveness.is_there(peer, now_ms)
        ]

    def _able(self, group: Group, now_ms: int) -> list[int]:
        there = self._there(group, now_ms)
        able = [peer for peer in there if not self._draining.wants_no_lead(peer, now_ms)]
        if self._draining.here and not able:
            # Better a slow disk than none: who leads stops.
            return [peer for peer in there if not self._draining.drains(peer, now_ms)]
        return able

    def _in_order(self, group: Group, able: list[int], leads: dict[int, int]) -> list[int]:
        preferred = self.preferred(group.id)
        return sorted(able, key=lambda peer: (peer != preferred, leads.get(peer, 0), peer))

    def _lead_counts(self) -> dict[int, int]:
        """How many groups each node leads, or is about to. Looks at all groups: once for all that are handed over."""
        leads = dict.fromkeys(self._members, 0)
        for each in self.groups.values():
            leader = each.raw.lead_transferee or each.leader
            leads[leader] = leads.get(leader, 0) + 1
        return leads

    # ------------------------------------------------------------------ once a second

    def balance(self, now_ms: int) -> list[int]:
        """Hand groups to their preferred leaders, once those have been up for a while and have caught up."""
        handed: list[int] = []
        for group in self.groups.values():
            if not group.established or group.raw.lead_transferee:
                continue
            preferred = self.preferred(group.id)
            up_since_ms = self._liveness.up_since_ms(preferred)
            if preferred == self._node or up_since_ms is None or preferred not in group.conf_state.voters:
                continue
            if self._draining.wants_no_lead(preferred, now_ms):
                continue
            if self._balance.is_due(group.id, up_since_ms, now_ms) and self._caught_up(group, preferred, now_ms):
                self._balance.attempted(group.id, now_ms)
                group.raw.transfer_leader(preferred)
                handed.append(group.id)
        return handed
