"""Hosts where groups have replicas on some nodes: clients of the others lose nothing, and are told nothing twice."""

import gc
from collections import Counter
from functools import partial

import pytest

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.sessions import KIND_FED, KIND_SESSION
from mayfly.cluster.host import feeding
from mayfly.cluster.host.feeding import _FEED, _RESUME, KINDS, BadFeeding
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.changing import Changing
from tests.cluster.host.three_hosts import LOST

GROUP = 1


class Talk:
    """One node gives a group numbered commands; it has to hear of each once, in order: the answer and the effect."""

    def __init__(self, cluster: Changing, node: int, group: int = GROUP) -> None:
        self.cluster = cluster
        self.node = node
        self.group = group
        self.sent: list[bytes] = []
        self.heard: list[object] = []

    def say(self, times: int = 1) -> None:
        for _ in range(times):
            self.sent.append(b"%04d" % len(self.sent))
            self.cluster.nodes[self.node].host.submit(self.group, [self.sent[-1]], 4, True, self.heard.append)

    def over_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.say()
            self.cluster.step()

    @property
    def is_answered(self) -> bool:
        return len(self.heard) == len(self.sent)

    def check(self) -> None:
        self.cluster.run_until(lambda: self.is_answered, 800)
        assert LOST not in self.heard
        assert self.cluster.nodes[self.node].effects == self.sent
        assert self.cluster.nodes[self.node].sessions_lost == 0
        leader = self.cluster.leader(self.group)
        assert self.cluster.nodes[leader].machines[self.group].commands == self.sent


def placed(size: int = 5, **options: int) -> Changing:
    """Five nodes, three replicas of each group but 0; at rest."""
    cluster = Changing(size, everywhere=False, **options)
    cluster.run_until(cluster.settled)
    return cluster


def without(cluster: Changing, group: int = GROUP) -> int:
    """A node that has no replica of the group."""
    return next(id for id in cluster.members if id not in cluster.plan[group])


def test_a_node_hosts_what_is_planned_on_it_and_no_more() -> None:
    cluster = placed()
    for id, node in cluster.nodes.items():
        assert sorted(node.host.groups) == [group for group in range(3) if id in cluster.replicas(group)]
        assert all(node.host.leader_of(group) == cluster.plan[group][0] for group in range(3)), "all know who leads"


def test_a_node_without_a_replica_is_answered_once_and_in_order() -> None:
    cluster = placed()
    talk = Talk(cluster, without(cluster))
    talk.over_steps(30)
    talk.check()


def test_when_the_leader_dies_the_next_one_goes_on_where_it_was() -> None:
    cluster = placed()
    talk = Talk(cluster, without(cluster))
    talk.over_steps(10)
    dead = cluster.leader(GROUP)
    talk.say(3)
    cluster.exchange()
    cluster.kill(dead)
    talk.over_steps(40)
    talk.check()


def test_what_was_on_its_way_when_the_stream_broke_is_told_again_and_nothing_twice() -> None:
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(5)
    for _ in range(6):
        cluster.cut = {node}
        talk.over_steps(2)
        cluster.cut = set()
        leader = cluster.leader(GROUP)
        cluster.nodes[node].host.peer_up(leader, cluster.now)
        cluster.nodes[leader].host.peer_up(node, cluster.now)
        talk.over_steps(3)
    talk.check()


def test_what_was_lost_without_a_word_is_asked_for_again() -> None:
    """Frames are dropped when too much waits for a peer; the next heartbeat shows the gap."""
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    # The commands arrive; what follows of them does not.
    talk.say()
    cluster._pump()
    cluster._mail, mail = [], cluster._mail
    for sender, to, frame in mail:
        if to in cluster.nodes:
            cluster.nodes[to].host.receive(sender, frame, cluster.now)
    cluster.cut = {node}
    for _ in range(3):
        cluster.exchange()
    cluster.cut = set()
    talk.check()


def test_a_session_whose_past_nobody_has_kept_ends_and_the_next_goes_on() -> None:
    """Its node was cut off; all that has a replica was made from a snapshot of later."""
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    for id in cluster.plan[GROUP]:
        feed = cluster.nodes[id].host.groups[GROUP].feeds.get(node)
        assert feed is not None
        feed.entries.clear()
        feed.base = 1 << 40
    leader = cluster.leader(GROUP)
    cluster.nodes[node].host.peer_up(leader, cluster.now)
    cluster.nodes[leader].host.peer_up(node, cluster.now)
    cluster.run_until(lambda: cluster.nodes[node].sessions_lost == 1)
    before = len(cluster.nodes[node].effects)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    assert LOST not in talk.heard, "all was answered before"
    assert cluster.nodes[node].effects[before:] == talk.sent[-5:]


@pytest.mark.parametrize("compact_entries", [12, 1 << 40])
def test_replicas_move_under_load_and_no_client_notices(compact_entries: int) -> None:
    """One that gains a replica, one that loses it, one that has none: every command once, every effect once."""
    cluster = placed(compact_entries=compact_entries)
    talks = [Talk(cluster, id, group) for id in cluster.members for group in (1, 2)]
    heard_by = {id: [talk for talk in talks if talk.node == id] for id in cluster.members}

    def over_steps(steps: int) -> None:
        for _ in range(steps):
            for talk in talks:
                talk.say()
            cluster.step()

    over_steps(10)
    for plan in ((2, 4, 5), (1, 3, 5), (4, 5, 1), (2, 3, 4)):
        cluster.plan[GROUP] = plan
        cluster.follow()
        over_steps(10)
        cluster.run_until(cluster.settled)
        over_steps(5)
    cluster.run_until(lambda: all(talk.is_answered for talk in talks), 800)
    for id, node in cluster.nodes.items():
        assert node.sessions_lost == 0
        assert all(LOST not in talk.heard for talk in heard_by[id])
        effects = [effect for effect in node.effects if isinstance(effect, bytes)]
        assert sorted(effects) == sorted(word for talk in heard_by[id] for word in talk.sent)
    for group in (1, 2):
        commands = cluster.nodes[cluster.leader(group)].machines[group].commands
        assert sorted(commands) == sorted(word for talk in talks if talk.group == group for word in talk.sent)


def test_a_replica_that_was_given_up_leaves_its_word_and_nothing_else() -> None:
    """Term and vote bind the node should it vote again; the log is gone, after a restart, too."""
    cluster = placed()
    loser = cluster.plan[GROUP][0]
    Talk(cluster, loser).over_steps(5)
    term = cluster.nodes[loser].host.groups[GROUP].term
    others = [id for id in cluster.members if id != loser]
    cluster.plan[GROUP] = (others[0], others[1], others[2])
    cluster.follow()
    cluster.run_until(cluster.settled)
    for _ in range(5):
        cluster.step()
    stored = cluster.stores[loser].load()[GROUP]
    assert not stored.entries and not stored.retained and stored.hard_state.term >= term
    cluster.kill(loser)
    cluster.start(loser)
    assert GROUP not in cluster.nodes[loser].host.groups
    talk = Talk(cluster, loser)
    cluster.nodes[loser].effects.clear()
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    assert LOST not in talk.heard and cluster.nodes[loser].effects == talk.sent


def others_than(cluster: Changing) -> list[Group]:
    """The replicas in this process that no node of the cluster has."""
    here = {id(group) for node in cluster.nodes.values() for group in node.host.groups.values()}
    return [each for each in gc.get_objects() if isinstance(each, Group) and id(each) not in here]


def test_a_replica_that_was_given_up_holds_no_memory() -> None:
    """Nor does it wait for the collector, which does not come to what is old."""
    cluster = placed()
    talk = Talk(cluster, without(cluster))
    gc.disable()
    try:
        before = others_than(cluster)
        for _ in range(3):
            talk.over_steps(3)
            cluster.plan[GROUP] = (*cluster.plan[GROUP][:-1], without(cluster))
            cluster.follow()
            cluster.run_until(cluster.settled)
        for _ in range(5):
            cluster.step()
        assert len(others_than(cluster)) == len(before)
    finally:
        gc.enable()
    talk.check()


def given_up_by_one_that_was_counted() -> tuple[Changing, Talk, int, int, int]:
    """A group has moved from one node to another while a voter was sent no entries; its leader dies when the first node
    is to have a replica again. Who leads is that voter or nobody, as long as the new one is frozen."""
    cluster = placed(4)
    leader, behind, gone = cluster.plan[GROUP]
    comes = without(cluster)
    talk = Talk(cluster, comes)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    cluster.loses = lambda sender, to, message: to == behind and message.type in (MessageType.APP, MessageType.SNAP)
    cluster.plan[GROUP] = (leader, behind, comes)
    cluster.follow()
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered and GROUP not in cluster.nodes[gone].host.groups)
    cluster.plan[GROUP] = (leader, comes, gone)
    cluster.kill(leader)
    cluster.frozen = {comes}
    return cluster, talk, behind, gone, comes


@pytest.mark.parametrize("restarts", [False, True])
def test_a_replica_that_was_given_up_and_came_again_elects_nobody_who_lacks_what_it_had(restarts: bool) -> None:
    """It was counted for what is committed; a voter that has not heard of the move may ask it still (Raft 5.4.1)."""
    cluster, talk, behind, gone, comes = given_up_by_one_that_was_counted()
    for _ in range(3):
        cluster.step()
    if restarts:
        cluster.kill(gone)
        cluster.start(gone)
    cluster.follow()
    assert GROUP in cluster.nodes[gone].host.groups
    for _ in range(60):
        cluster.step()
        assert not cluster.nodes[behind].host.groups[GROUP].leads
    cluster.loses = lambda sender, to, message: False
    cluster.frozen = set()
    cluster.run_until(lambda: cluster.leader(GROUP))
    talk.over_steps(3)
    cluster.run_until(lambda: talk.is_answered)
    assert all(cluster.nodes[id].machines[GROUP].commands == talk.sent for id in (behind, comes))


def test_a_replica_that_came_again_and_goes_again_keeps_to_what_it_first_had() -> None:
    cluster, _, _, gone, _ = given_up_by_one_that_was_counted()
    had = cluster.stores[gone].load()[GROUP]
    assert had.snapshot is not None and had.snapshot.metadata.index > 1
    cluster.follow()
    host = cluster.nodes[gone].host
    assert host.groups[GROUP].raw.last_index == 0
    host.replicas._give_up(host.groups[GROUP])
    for _ in range(3):
        cluster.step()
    assert cluster.stores[gone].load()[GROUP].snapshot == had.snapshot


@pytest.mark.parametrize("entries", [1 << 40, 3])
def test_a_replica_that_came_again_is_sent_what_its_leader_thinks_it_has(entries: int) -> None:
    """A leader that heard late what the replica before it had waits for nothing before that to be sent again."""
    cluster = placed(4, compact_entries=entries)
    leader = cluster.leader(GROUP)
    gone = next(id for id in cluster.plan[GROUP] if id != leader)
    talk = Talk(cluster, without(cluster))
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    had = cluster.nodes[gone].host.groups[GROUP].raw
    late = RaftMessage(MessageType.APP_RESP, leader, gone, had.term, index=had.last_index)
    before = cluster.plan[GROUP]
    cluster.plan[GROUP] = (leader, *(id for id in cluster.members if id not in (leader, gone)))
    cluster.follow()
    cluster.run_until(lambda: cluster.settled() and GROUP not in cluster.nodes[gone].host.groups)
    cluster.plan[GROUP] = before
    cluster.loses = lambda sender, to, message: to == gone
    cluster.follow()
    host = cluster.nodes[leader].host
    cluster.run_until(lambda: gone in host.groups[GROUP].conf_state.learners)
    assert host.groups[GROUP].leads and host.groups[GROUP].term == late.term
    frame = Frame(cluster.now)
    frame.raft.append((GROUP, late))
    host.receive(gone, frame, cluster.now)
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: cluster.nodes[gone].host.log_lost or cluster.settled(), 400)
    assert cluster.nodes[gone].host.log_lost is None
    talk.over_steps(3)
    cluster.run_until(lambda: talk.is_answered)
    cluster.run_until(lambda: cluster.nodes[gone].machines[GROUP].commands == talk.sent)


def replace(cluster: Changing, loser: int) -> None:
    """The place of a node that is down is taken by others."""
    others = [id for id in cluster.members if id != loser]
    cluster.plan[GROUP] = (others[0], others[1], others[2])
    cluster.follow()

    def is_replaced() -> bool:
        leader = cluster.leader(GROUP)
        return bool(leader) and not cluster.nodes[leader].host.groups[GROUP].has_member(loser)

    cluster.run_until(is_replaced)


def test_a_read_that_waits_at_a_replica_that_is_given_up_is_answered() -> None:
    """Others took its place while its node was down: by its own log it is a member still."""
    cluster = placed()
    loser = cluster.plan[GROUP][-1]
    cluster.kill(loser)
    replace(cluster, loser)
    cluster.start(loser)
    host = cluster.nodes[loser].host
    heard: list[object] = []
    host.read_index(GROUP, heard.append)
    cluster.run_until(lambda: GROUP not in host.groups)
    assert heard == [LOST]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_damaged_replica_that_nobody_wants_any_more_is_given_up(comes_back: bool) -> None:
    """Others took its place while its node was down: nobody will send it the state that it asks for."""
    cluster = placed()
    loser = cluster.plan[GROUP][-1]
    talk = Talk(cluster, without(cluster))
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    had = cluster.nodes[loser].host.groups[GROUP]
    index, term = had.raw.last_index, had.term
    cluster.kill(loser)
    cluster.stores[loser].rot(GROUP, index)
    before = cluster.plan[GROUP]
    replace(cluster, loser)
    cluster.start(loser)
    host = cluster.nodes[loser].host
    assert host.groups[GROUP].rebuild is not None
    cluster.run_until(lambda: GROUP not in host.groups)
    for _ in range(3):
        cluster.step()
    stored = cluster.stores[loser].load()[GROUP]
    assert not stored.damage and not stored.entries
    # What it had acknowledged binds the node still, though nobody knows any more of which term that was.
    assert stored.snapshot is not None and stored.snapshot.metadata.index == index
    assert stored.snapshot.metadata.term >= term and stored.hard_state.term >= term
    if comes_back:
        cluster.plan[GROUP] = before
        cluster.follow()
        cluster.run_until(cluster.settled)
        assert cluster.nodes[loser].machines[GROUP].commands == talk.sent
    talk.over_steps(3)
    talk.check()


@pytest.mark.parametrize("is_later", [False, True])
def test_a_damaged_replica_takes_no_older_word_that_its_node_is_out(is_later: bool) -> None:
    """It may have been made a member by an entry that its log has no more."""
    cluster = placed()
    loser = cluster.plan[GROUP][-1]
    talk = Talk(cluster, loser)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    leader = cluster.leader(GROUP)
    index, term = cluster.nodes[loser].host.groups[GROUP].raw.last_index, cluster.nodes[leader].host.groups[GROUP].term
    cluster.kill(loser)
    cluster.stores[loser].rot(GROUP, index)
    cluster.loses = lambda sender, to, message: to == loser
    cluster.start(loser)
    host = cluster.nodes[loser].host
    group = host.groups[GROUP]
    assert group.rebuild is not None and group.raw.last_index < index
    host.set_members(cluster.members, {**cluster.plan, GROUP: (leader, 98, 99)}, cluster.now)
    host._feeding._leaders[GROUP] = (leader, term)
    host._feeding._excluded_at[GROUP] = index if is_later else index - 1
    assert host._feeding.is_out(group) is is_later


def test_an_old_word_that_a_node_is_out_takes_nothing_from_it() -> None:
    """It was said before the node was made a member, and comes late."""
    cluster = placed()
    node = without(cluster)
    leader = cluster.leader(GROUP)
    said: list[bytes] = []
    feeding = cluster.nodes[leader].host._feeding
    send = feeding._send

    def listening(peer: int, kind: int, data: bytes) -> None:
        if peer == node and kind == notice_kinds.LEADS:
            said.append(data)
        send(peer, kind, data)

    feeding._send = listening
    cluster.run_until(lambda: bool(said))
    feeding._send = send
    stays = next(id for id in cluster.plan[GROUP] if id != leader)
    cluster.plan[GROUP] = (leader, stays, node)
    cluster.follow()
    cluster.run_until(cluster.settled)
    # The plan moves on, and before the leader has carried that out the old word arrives.
    host = cluster.nodes[node].host
    host.set_members(cluster.members, {**cluster.plan, GROUP: (leader, stays, 99)}, cluster.now)
    host._take_feeding(leader, notice_kinds.LEADS, said[0], cluster.now)
    assert GROUP in host.groups


def test_a_replica_that_is_behind_what_its_node_was_told_does_not_tell_it_again() -> None:
    """A leader told the node more than its own replica, which is coming, has applied by now."""
    cluster = placed()
    host = cluster.nodes[cluster.plan[GROUP][1]].host
    group, session = host.groups[GROUP], host.sessions[GROUP]
    session.sender.restart(session.sender.incarnation + 1)
    session.is_told_by_feeds(group.applied + 1)
    assert not group.tell_session()
    session.is_told_by_feeds(group.applied)
    assert group.tell_session()


class BehindItsReplica:
    """A node that has been given a replica by a snapshot, which leads before its session has been told what was before
    that: other replicas have kept it."""

    def __init__(self, shall_go: bool = False, is_able: bool = True) -> None:
        """`shall_go`: it leads when the plan has another one in its place. `is_able`: others could lead."""
        self.cluster = cluster = placed(compact_entries=12)
        self.node = without(cluster)
        self.talk = Talk(cluster, self.node)
        self.talk.over_steps(5)
        cluster.run_until(lambda: self.talk.is_answered)
        self.host = cluster.nodes[self.node].host
        own = self.host._feeding
        take, own._take_feed = own._take_feed, lambda peer, data, now_ms: []  # type: ignore[method-assign]
        self.talk.say()
        cluster.step()
        others = cluster.plan[GROUP][:2]
        Talk(cluster, others[0]).over_steps(80)
        self.plan(*others, self.node)
        cluster.run_until(lambda: self.votes() and self.is_behind())
        for node in cluster.nodes.values():
            node.host.reconfigure = lambda now_ms: None  # type: ignore[method-assign]
            node.host.leadership.balance = lambda now_ms: []  # type: ignore[method-assign]
        if shall_go:
            self.plan(*others, next(id for id in cluster.members if id not in (*others, self.node)))
        if not is_able:
            self.host.leadership._able = lambda group, now_ms: []  # type: ignore[method-assign]
        before = cluster.nodes[cluster.leader(GROUP)].host
        group = before.groups[GROUP]
        self.term = group.term + 1
        group.raw.transfer_leader(self.node)
        before._has_work(GROUP)
        cluster.run_until(lambda: group.term >= self.term, 20)
        own._take_feed = take  # type: ignore[method-assign]

    def plan(self, *voters: int) -> None:
        self.cluster.plan[GROUP] = voters
        self.cluster.follow()

    def votes(self) -> bool:
        group = self.host.groups.get(GROUP)
        leader = self.cluster.nodes.get(self.cluster.leader(GROUP))
        if group is None or leader is None:
            return False
        conf = group.conf_state
        return leader.host.groups[GROUP].conf_state == conf and not conf.learners and self.node in conf.voters

    def is_behind(self) -> bool:
        feed = self.host.groups[GROUP].feeds.get(self.node)
        return feed is not None and feed.base > self.host.sessions[GROUP].cursor

    def check(self) -> None:
        self.cluster.run_until(lambda: self.talk.is_answered)
        assert self.cluster.nodes[self.node].sessions_lost == 0 and LOST not in self.talk.heard
        own = [effect for effect in self.cluster.nodes[self.node].effects if effect in self.talk.sent]
        assert own == self.talk.sent


@pytest.mark.skipif(feeding.__file__.endswith(".so"), reason="a method of a compiled class stays what it is")
@pytest.mark.parametrize("shall_go", [False, True])
def test_a_leader_that_has_not_kept_what_its_own_session_misses_lets_another_one_lead(shall_go: bool) -> None:
    """That one tells the session, whose replica goes on from there if it stays."""
    behind = BehindItsReplica(shall_go)
    behind.talk.say()
    behind.check()
    assert behind.host.groups[GROUP].term == behind.term + 1
    session = behind.host.sessions[GROUP]
    for _ in range(20):
        behind.cluster.step()
    assert session.is_fed is shall_go
    behind.talk.over_steps(3)
    behind.check()


@pytest.mark.skipif(feeding.__file__.endswith(".so"), reason="a method of a compiled class stays what it is")
@pytest.mark.parametrize("shall_go", [False, True])
def test_if_nobody_takes_over_the_session_ends(shall_go: bool) -> None:
    """And the next one goes on, in the same term."""
    behind = BehindItsReplica(shall_go, is_able=False)
    behind.cluster.run_until(lambda: behind.cluster.nodes[behind.node].sessions_lost == 1)
    before = len(behind.talk.heard)
    behind.talk.over_steps(3)
    behind.cluster.run_until(lambda: len(behind.talk.heard) >= before + 3)
    assert behind.host.groups[GROUP].leads and behind.host.groups[GROUP].term == behind.term


def test_where_every_node_has_every_group_nothing_is_fed() -> None:
    cluster = Changing(5)
    cluster.run_until(cluster.settled)
    talk = Talk(cluster, 5)
    talk.over_steps(5)
    talk.check()
    for node in cluster.nodes.values():
        assert not any(session.is_fed for session in node.host.sessions.values())
        assert not any(group.feeds for group in node.host.groups.values())
        assert {session.sender.kind for session in node.host.sessions.values()} == {KIND_SESSION}


def test_a_session_says_how_it_is_told_before_it_is_told_so() -> None:
    cluster = placed()
    node = without(cluster)
    Talk(cluster, node).over_steps(3)
    session = cluster.nodes[node].host.sessions[GROUP]
    assert session.is_fed and session.sender.kind == KIND_FED
    leader = cluster.leader(GROUP)
    assert not cluster.nodes[leader].host.sessions[GROUP].is_fed


def test_one_feeds_a_session_at_a_time() -> None:
    """Whoever else says that there is nothing for it, up to some place, is passed over."""
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(3)
    cluster.run_until(lambda: talk.is_answered)
    host = cluster.nodes[node].host
    session = host.sessions[GROUP]
    nothing = _FEED.pack(GROUP, session.sender.incarnation, session.cursor, session.cursor + 1000, 0, True)
    other = next(id for id in cluster.members if id not in (node, cluster.leader(GROUP)))
    assert host._feeding.take(other, notice_kinds.FEED, nothing, cluster.now) == []
    talk.over_steps(3)
    talk.check()


def test_a_session_that_heard_more_than_its_leader_told_it_goes_on() -> None:
    """What the leader before had on its way when the next one was asked came after that."""
    cluster = placed()
    node, leader = without(cluster), cluster.leader(GROUP)
    talk, other = Talk(cluster, node), Talk(cluster, leader)
    talk.over_steps(3)
    cluster.run_until(lambda: talk.is_answered)
    other.say(3)
    cluster.run_until(lambda: other.is_answered)
    session, feeding = cluster.nodes[node].host.sessions[GROUP], cluster.nodes[leader].host._feeding
    applied = cluster.nodes[leader].host.groups[GROUP].applied
    at = feeding._told[GROUP][node]
    assert at.cursor < applied, "there was nothing for it"
    session.tell_all([], applied, lambda index: b"")
    cursors = _RESUME.pack(GROUP, session.sender.incarnation, session.cursor)
    feeding.take(node, notice_kinds.CURSORS, cursors, cluster.now)
    talk.sent += other.sent
    talk.cluster.nodes[node].effects += other.sent
    talk.heard += other.heard
    talk.over_steps(3)
    talk.check()


def test_a_leader_tells_once_it_has_applied_an_entry_of_its_own_term() -> None:
    """Before that it does not know what the leaders before it have told the session, and how it stands."""
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(3)
    cluster.run_until(lambda: talk.is_answered)
    session = cluster.nodes[node].host.sessions[GROUP]
    cluster.kill(cluster.leader(GROUP))

    def new() -> int:
        """A node that leads the group, and does not know yet what is decided."""
        for id, other in cluster.nodes.items():
            group = other.host.groups.get(GROUP)
            if group is not None and group.leads and not group.established:
                return id
        return 0

    for _ in range(200):
        cluster.step(new)
        if new():
            break
    feeding = cluster.nodes[new()].host._feeding
    # A cursor of a session that this replica can't have heard of.
    request = _RESUME.pack(GROUP, session.sender.incarnation + 1, session.cursor)
    assert feeding.take(node, notice_kinds.RESUME, request, cluster.now) == []
    assert feeding._early == {GROUP: {node: request}} and not feeding._told.get(GROUP), "it waits"
    cluster.run_until(lambda: GROUP not in feeding._early)
    talk.over_steps(3)
    talk.check()


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff" * 7, b"\xff" * 41])
def test_notices_that_nobody_sends_are_refused_or_passed_over(kind: int, data: bytes) -> None:
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(3)
    for host in (cluster.nodes[node].host, cluster.nodes[cluster.leader(GROUP)].host):
        try:
            host._feeding.take(3, kind, data, cluster.now)
        except BadFeeding:
            continue
    for id in cluster.members:
        partial(cluster.nodes[id].host._take_feeding, 3, kind, data, cluster.now)()
    talk.over_steps(3)
    talk.check()


def test_what_an_earlier_life_of_a_node_began_ends_though_it_has_nothing_to_say() -> None:
    """A node that starts again within the session timeout, and has no replica that would speak for it."""
    cluster = placed()
    node = without(cluster)
    talk = Talk(cluster, node)
    talk.over_steps(5)
    cluster.run_until(lambda: talk.is_answered)
    sessions = cluster.nodes[cluster.leader(GROUP)].host.groups[GROUP].sessions
    assert node in dict(sessions.open_sessions())
    cluster.kill(node)
    cluster.start(node)
    for other in cluster.nodes.values():
        other.host.has_started(node, (cluster.incarnations[node] - 1) << 20)
    cluster.run_until(lambda: node not in dict(sessions.open_sessions()), 60)
    again = Talk(cluster, node)
    again.over_steps(30)
    cluster.run_until(lambda: again.is_answered)
    assert LOST not in again.heard
    assert cluster.nodes[node].sessions_lost == 0, "the life that is now is not ended with it"


class Counting(Changing):
    """Counts the frames that leave."""

    def __init__(self) -> None:
        self.frames: Counter[tuple[int, int]] = Counter()
        super().__init__(5, everywhere=False)

    def _pump(self) -> None:
        before = len(self._mail)
        super()._pump()
        self.frames.update((sender, to) for sender, to, _ in self._mail[before:])


def test_who_has_nothing_to_say_is_heard_less_often_but_in_time() -> None:
    """At rest: leaders and their followers at each heartbeat, others twice in an election timeout."""
    cluster = Counting()
    cluster.run_until(cluster.settled)
    for _ in range(20):
        cluster.step()
    led = {group: cluster.leader(group) for group in cluster.plan}
    talk = {(led[group], id) for group in cluster.plan for id in cluster.replicas(group)}
    cluster.frames.clear()
    for _ in range(40):
        cluster.step()
        for id, node in cluster.nodes.items():
            assert all(node.host.liveness.heard_within(other, cluster.now, 250) for other in cluster.nodes), id
    pairs = {(one, other) for one in cluster.nodes for other in cluster.nodes if one != other}
    quiet = {(one, other) for one, other in pairs if (one, other) not in talk and (other, one) not in talk}
    assert quiet and {cluster.frames[pair] for pair in quiet} == {10}
    assert min(cluster.frames[pair] for pair in pairs - quiet) >= 20


def test_a_node_that_is_connected_again_is_told_at_once_who_leads() -> None:
    cluster = placed()
    leader, outside = cluster.leader(GROUP), without(cluster)
    host = cluster.nodes[outside].host
    host.peer_down(leader, cluster.now)
    assert host.leader_of(GROUP) == 0
    cluster.nodes[leader].host.peer_up(outside, cluster.now)
    cluster.exchange()
    assert host.leader_of(GROUP) == leader
