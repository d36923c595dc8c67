"""How sessions of nodes without a replica are told what became of their commands (pure).

    LEADS     leader -> nodes that are not in the group           (group u16, term u64, last index u64)*
    RESUME    node -> leader     tell me from behind my cursor     group u16, incarnation u64, cursor u64
    FEED      leader -> node     what lies behind `after`          group u16, incarnation u64, after u64, up to u64,
                                                                   number u32, last u8, part
    UNKEPT    leader -> node     nobody can tell it any more       group u16, incarnation u64
    CURSORS   node -> replicas   I was told so far                 (group u16, incarnation u64, cursor u64)*

A node's batches go to the leader as always, and to the next one when there is one. With LEADS, as soon as it has
applied an entry of its own term, when a stream opens, and as often as all peers hear of its node, a leader says where
that is. The node asks each new one to resume; any replica could tell it, for it tells what the log says, but only an
established leader is known to have applied as much as the one before. A gap in the numbers, a new stream, or no answer
for a while: it asks again.

An entry that does not fit into one notice comes in parts; nothing of it is told before the last one is here.

UNKEPT is the end of a session: its node has it closed through the log, and learns by a FEED how far it went.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.fed_entry import FedEntry, FeedCodec, MalformedFeed
from mayfly.cluster.group.feeds import can_resume
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.sessions import is_open
from mayfly.cluster.limits import FEED_PART_BYTES
from mayfly.cluster.log.batch import LogError
from mayfly.cluster.raft import RaftError

_LEADS: Final = struct.Struct("<HQQ")
_RESUME: Final = struct.Struct("<HQQ")
_FEED: Final = struct.Struct("<HQQQIB")
_UNKEPT: Final = struct.Struct("<HQ")
_FEED_BYTES: Final[int] = _FEED.size
"""Of a FEED before its part."""

KINDS: Final = frozenset(
    (notice_kinds.LEADS, notice_kinds.RESUME, notice_kinds.FEED, notice_kinds.UNKEPT, notice_kinds.CURSORS)
)

Leader = tuple[int, int]
"""(node, term)."""
NO_LEADER: Final[Leader] = (0, 0)


class BadFeeding(Exception):
    """A notice of these kinds that no node of this version sends."""


class _Fed:
    """What this node knows of the feed of one of its sessions."""

    __slots__ = ("asked", "heard_ms", "is_answered", "parts", "reported")

    def __init__(self) -> None:
        self.asked: Leader = NO_LEADER
        """Whom it asked to resume."""
        self.is_answered: bool = False
        self.heard_ms: int = 0
        """When it asked, or was told something, last."""
        self.parts: list[bytes] = []
        """Of an entry whose last part has not come."""
        self.reported: tuple[int, int] = (0, 0)
        """The incarnation and cursor that it reported last."""


class _Told:
    """What this leader knows of the session of a node that it feeds."""

    __slots__ = ("cursor", "incarnation")

    def __init__(self, incarnation: int, cursor: int) -> None:
        self.incarnation: int = incarnation
        self.cursor: int = cursor
        """Up to where it was told."""


class Feeding:
    """Both ends: the sessions of this node that are fed, and those of other nodes that this node's leaders feed."""

    def __init__(
        self,
        node: int,
        groups: Mapping[int, Group],
        sessions: Mapping[int, OwnSession],
        codec: FeedCodec,
        send: Callable[[int, int, bytes], None],
    ) -> None:
        """`groups` and `sessions` may grow and shrink. `send(peer, kind, notice)`."""
        self._node = node
        self._groups = groups
        self._sessions = sessions
        self._codec = codec
        self._send = send
        self._leaders: dict[int, Leader] = {}
        """Of groups, as their leaders say to nodes that are not members."""
        self._excluded_at: dict[int, int] = {}
        """How long the log was when such a leader said so."""
        self._fed: dict[int, _Fed] = {}
        self._told: dict[int, dict[int, _Told]] = {}
        """Group -> node -> what of its session is told from here."""
        self._early: dict[int, dict[int, bytes]] = {}
        """Group -> node -> its request to resume that came before this leader had applied an entry of its own term."""
        self._announced: dict[int, int] = {}
        """Group -> the term in which this node, leading it, has said so."""

    # ------------------------------------------------------------------ on the leader

    def applied(self, group: Group, peers: Collection[int]) -> None:
        """A group of this node may have applied something: tell those who are told from here."""
        id = group.id
        if not group.established:
            # Most replicas lead nothing, and have nothing of all this.
            if id in self._told:
                del self._told[id]
            if id in self._announced:
                del self._announced[id]
            if self._early and not group.leads:
                self._early.pop(id, None)
            return
        if self._announced.get(id) != group.term:
            self._announced[id] = group.term
            self._say_leads([group], peers)
            for peer, request in self._early.pop(id, {}).items():
                self._resume(peer, request)
        told = self._told.get(id)
        if told:
            lost: list[int] = []
            for peer, at in told.items():
                if not self._tell(group, peer, at):
                    lost.append(peer)
            for peer in lost:
                del told[peer]

    def _tell(self, group: Group, peer: int, at: _Told) -> bool:
        """Tell a session what it was not told yet; whether that goes on from here."""
        feed = group.feeds.get(peer)
        if feed is None or feed.incarnation != at.incarnation:
            return True
        cursor = at.cursor
        if feed.base > cursor:
            self._send(peer, notice_kinds.UNKEPT, _UNKEPT.pack(group.id, at.incarnation))
            return False
        entries = feed.behind(cursor)
        if entries:
            at.cursor = entries[-1].index
            return self._send_entries(group, peer, at.incarnation, cursor, entries)
        return True

    def _send_entries(self, group: Group, peer: int, incarnation: int, cursor: int, entries: list[FedEntry]) -> bool:
        """Whether they could be told."""
        try:
            parts = self._codec.encode(entries, group.log, FEED_PART_BYTES)
        except (LogError, RaftError, LookupError):
            # What an answer refers to is not here any more: this replica can't tell it.
            self._send(peer, notice_kinds.UNKEPT, _UNKEPT.pack(group.id, incarnation))
            return False
        after, place, number = cursor, 0, 0
        for ending, part in parts:
            place += ending
            up_to = entries[place - 1].index if ending else after
            part.insert(0, _FEED.pack(group.id, incarnation, after, up_to, number, bool(ending)))
            self._send(peer, notice_kinds.FEED, b"".join(part))
            after, number = up_to, 0 if ending else number + 1
        return True

    def _resume(self, peer: int, data: bytes) -> None:
        id, incarnation, cursor = _RESUME.unpack(data)
        group = self._groups.get(id)
        if group is not None and group.leads and not group.established:
            self._early.setdefault(id, {})[peer] = data
        if group is None or not group.established:
            return  # It asks whoever leads by then.
        feed, row = group.feeds.get(peer), group.row(peer)
        over = row is not None and row[1] == incarnation and not is_open(row[3])
        kept = feed is not None and feed.incarnation == incarnation and feed.base <= cursor
        if over and not (kept and feed is not None and feed.behind(cursor)):
            end = FedEntry(group.applied)
            end.ended = row
            self._send_entries(group, peer, incarnation, cursor, [end])
        elif kept or can_resume(feed, row, (peer, incarnation), cursor):
            at = _Told(incarnation, cursor)
            told = self._told.setdefault(id, {})
            told[peer] = at
            if not (kept and feed is not None and feed.behind(cursor)):
                self._tell_nothing(group, peer, at)
            elif not self._tell(group, peer, at):
                del told[peer]
        else:
            self._send(peer, notice_kinds.UNKEPT, _UNKEPT.pack(id, incarnation))

    def _take_cursors(self, peer: int, data: bytes) -> None:
        for id, incarnation, cursor in _RESUME.iter_unpack(data):
            group = self._groups.get(id)
            if group is None:
                continue
            cursor = min(cursor, group.applied)
            group.is_told((peer, incarnation), cursor)
            at = self._told.get(id, {}).get(peer)
            if at is not None and at.incarnation == incarnation and at.cursor < cursor:
                # It had asked before it heard what was still on its way to it: that is not kept any more, nor needed.
                at.cursor = cursor

    # ------------------------------------------------------------------ where groups are led

    def leader_of(self, id: int) -> Leader:
        """The node that leads a group and its term, as far as this node knows; (0, 0): it knows of none."""
        group = self._groups.get(id)
        told = self._leaders.get(id, NO_LEADER)
        if group is not None and group.leader and group.term >= told[1]:
            return group.leader, group.term
        return told

    def _take_leads(self, peer: int, data: bytes) -> list[int]:
        led: list[int] = []
        for id, term, last_index in _LEADS.iter_unpack(data):
            if id in self._sessions and term >= self._leaders.get(id, NO_LEADER)[1]:
                self._leaders[id] = (peer, term)
                self._excluded_at[id] = last_index
                led.append(id)
        return led

    def is_out(self, group: Group) -> bool:
        """Whether the leader that is known of has said that this node is no member of a group, later than anything that
        the replica here has heard: its log would else go further, with the change that made it one."""
        term = self._leaders.get(group.id, NO_LEADER)[1]
        return term >= group.term and self._excluded_at.get(group.id, -1) >= group.last_index

    # ------------------------------------------------------------------ on the node that is fed

    def attend(self, session: OwnSession, leader: Leader, now_ms: int, repeat_after_ms: int) -> None:
        """Have a session that is fed told by whoever leads its group."""
        if leader[0] in (0, self._node) or not session.sender.has_given:
            return
        fed = self._fed.get(session.group)
        if fed is None:
            fed = self._fed[session.group] = _Fed()
        waits = session.is_broken or not session.sender.idle or not fed.is_answered
        if fed.asked == leader and not (waits and now_ms - fed.heard_ms >= repeat_after_ms):
            return
        fed.asked, fed.is_answered, fed.heard_ms = leader, False, now_ms
        fed.parts.clear()
        request = _RESUME.pack(session.group, session.sender.incarnation, session.cursor)
        self._send(leader[0], notice_kinds.RESUME, request)

    def rests(self, session: OwnSession) -> None:
        """A session is told by the replica here as long as that goes: nobody else is asked."""
        fed = self._fed.get(session.group)
        if fed is not None:
            fed.asked, fed.is_answered = NO_LEADER, True

    def waits(self, session: OwnSession) -> bool:
        """Whether somebody was asked to tell a session the rest, and has not answered."""
        fed = self._fed.get(session.group)
        return fed is not None and not fed.is_answered

    def _take_feed(self, peer: int, data: bytes, now_ms: int) -> list[int]:
        id: int
        incarnation: int
        after: int
        up_to: int
        number: int
        last: int
        id, incarnation, after, up_to, number, last = _FEED.unpack_from(data)
        session, fed = self._sessions.get(id), self._fed.get(id)
        if session is None or fed is None or not session.is_fed or session.sender.incarnation != incarnation:
            return []
        if fed.asked[0] != peer:
            return []  # Of one that was asked before.
        if after > session.cursor:
            fed.asked = NO_LEADER
            fed.parts.clear()
            return [id]
        fed.is_answered, fed.heard_ms = True, now_ms
        if number != len(fed.parts):
            fed.parts.clear()
            if number:
                return []  # What is left of an answer to a request before the last.
        if len(data) > _FEED_BYTES:
            fed.parts.append(data[_FEED_BYTES:])
        if not last:
            return []
        entries: list[FedEntry] = []
        payloads: dict[int, bytes] = {}
        parts = fed.parts
        if parts:
            fed.parts = []
            entries, payloads = self._codec.decode(parts, session.key)
        session.tell_all(entries, up_to, payloads.__getitem__)
        if session.sender.incarnation != incarnation:
            # It ended; the next one begins with whoever leads.
            fed.asked = NO_LEADER
        return [id]

    def _take_unkept(self, peer: int, data: bytes) -> list[int]:
        id, incarnation = _UNKEPT.unpack(data)
        session = self._sessions.get(id)
        if session is None or not session.is_fed or session.sender.incarnation != incarnation:
            return []
        session.is_broken = True
        return [id]

    # ------------------------------------------------------------------ for the host

    def take(self, peer: int, kind: int, data: bytes, now_ms: int) -> list[int]:
        """A notice of a peer, of one of KINDS; the groups in which something is to be done by it. Raises
        BadFeeding."""
        try:
            if kind == notice_kinds.LEADS:
                return self._take_leads(peer, data)
            if kind == notice_kinds.FEED:
                return self._take_feed(peer, data, now_ms)
            if kind == notice_kinds.UNKEPT:
                return self._take_unkept(peer, data)
            if kind == notice_kinds.RESUME:
                self._resume(peer, data)
            else:
                self._take_cursors(peer, data)
        except (struct.error, MalformedFeed) as error:
            raise BadFeeding(f"notice of kind {kind} in {len(data)} bytes: {error}") from error
        return []

    def heartbeat(self, peers: Collection[int], replicas: Callable[[int], Collection[int]], to_all: bool) -> None:
        """A heartbeat is due: say what is led here, if all peers hear something now, how far those were told who heard
        nothing, and how far this node was told. `replicas(group)`: the nodes that shall have it."""
        if to_all:
            self._say_leads(self._groups.values(), peers)
        for group in self._groups.values():
            if group.established:
                self._move_on(group)
        cursors: dict[int, list[bytes]] = {}
        for id, fed in self._fed.items():
            session = self._sessions[id]
            at = (session.sender.incarnation, session.cursor)
            if session.is_fed and at != fed.reported:
                fed.reported = at
                for peer in {*replicas(id), self.leader_of(id)[0]}:
                    if peer and peer != self._node:
                        cursors.setdefault(peer, []).append(_RESUME.pack(id, *at))
        for peer, told in cursors.items():
            self._send(peer, notice_kinds.CURSORS, b"".join(told))

    def _say_leads(self, groups: Iterable[Group], peers: Collection[int]) -> None:
        """Tell peers where those of these groups are led in which they are no members, if it is here."""
        leads: dict[int, list[bytes]] = {}
        for group in groups:
            if group.established:
                said = _leads(group)
                for peer in peers:
                    if not group.has_member(peer):
                        leads.setdefault(peer, []).append(said)
        for peer, told in leads.items():
            self._send(peer, notice_kinds.LEADS, b"".join(told))

    def peer_up(self, peer: int) -> None:
        """The stream to a peer opened: it is told at once what is led here."""
        self._say_leads(self._groups.values(), (peer,))

    def _move_on(self, group: Group) -> None:
        """Cursors of sessions for which nothing happened follow the log all the same: a replica that is made from a
        snapshot has kept nothing from before it."""
        for peer, at in self._told.get(group.id, {}).items():
            feed, cursor = group.feeds.get(peer), at.cursor
            if feed is None or feed.incarnation != at.incarnation or feed.base > cursor or feed.behind(cursor):
                continue
            if group.applied > cursor or feed.base < cursor:
                # What was sent and not confirmed may be lost: then this one shows a gap.
                self._tell_nothing(group, peer, at)

    def _tell_nothing(self, group: Group, peer: int, at: _Told) -> None:
        """There is nothing more up to what is applied here."""
        cursor = at.cursor
        at.cursor = max(cursor, group.applied)
        notice = _FEED.pack(group.id, at.incarnation, cursor, at.cursor, 0, True)
        self._send(peer, notice_kinds.FEED, notice)

    def peer_changed(self, peer: int) -> list[int]:
        """The stream to a peer opened or broke: what was on it may be lost. The groups that were led there, or whose
        leader it was said to be."""
        for told in self._told.values():
            told.pop(peer, None)
        for early in self._early.values():
            early.pop(peer, None)
        changed = [id for id, leader in self._leaders.items() if leader[0] == peer]
        for id, fed in self._fed.items():
            if fed.asked[0] == peer:
                fed.asked = NO_LEADER
                fed.parts.clear()
                changed.append(id)
        return changed

    def peer_lost(self, peer: int) -> None:
        """The stream to a peer broke: it is not known to lead anything."""
        for id, leader in list(self._leaders.items()):
            if leader[0] == peer:
                # The term stays, so that nobody from before it is believed.
                self._leaders[id] = (0, leader[1])


def _leads(group: Group) -> bytes:
    return _LEADS.pack(group.id, group.term, group.raw.last_index)
