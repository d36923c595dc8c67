"""What the leaders of groups tell the catalog's leader, who plans: which groups are as planned, and what load they are.

    notice    MessagePack: [version of the members that the sender knows, [[group, term, load, voters, queues], ...]]

`voters` is empty where a group has those of the plan, and no replica is still to come or to go; else it is who votes in
it now. `load` is in thousandths of a core. `queues` has the busiest queues of a hot shard that may move, each with its
load. (A release from before that says nothing of them, and passes over what others say.) What is told may get lost, and
nothing is kept over a change of the catalog's leader: it is told again soon.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mayfly.cluster.host.host import Host
from mayfly.node.catalog import Members
from mayfly.node.membership.queue_balance import QueueLoad

REPEAT_MS: Final = 5_000
"""How often it is told though nothing but loads has changed."""
KEPT_MS: Final = 3 * REPEAT_MS
"""What was told of a group for the last time so long ago counts no more: it may have no leader."""


class GroupReport(msgspec.Struct, frozen=True, array_like=True):
    """Of one group, by its leader."""

    group: int
    term: int
    load: int = 0
    voters: tuple[int, ...] = ()
    queues: tuple[QueueLoad, ...] = ()


class _Told(msgspec.Struct, frozen=True, array_like=True):
    version: int
    groups: list[GroupReport]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[_Told]] = msgspec.msgpack.Decoder(_Told)


def encode_reports(version: int, reports: Sequence[GroupReport]) -> bytes:
    """The notice."""
    return _encoder.encode(_Told(version, list(reports)))


def reports_of_led(
    host: Host, members: Members, loads: Mapping[int, int], busiest: Callable[[int], tuple[QueueLoad, ...]]
) -> list[GroupReport]:
    """Of all groups that are led here."""
    reports = []
    for id, group in host.groups.items():
        planned = members.plan.get(id)
        if planned is None or not group.established:
            continue
        present = group.conf_state
        settled = not present.voters_outgoing and set(present.voters) == set(planned)
        if present.learners and not host.leadership.is_everywhere(id):
            settled = False  # A replica is still to go.
        now = () if settled else tuple(sorted({*present.voters, *present.voters_outgoing}))
        reports.append(GroupReport(id, group.term, loads.get(id, 0), now, busiest(id)))
    return reports


class KnownGroups:
    """What the catalog's leader was told."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[GroupReport, int, int]] = {}
        """Group -> its report, the version that this goes by, and when it came."""

    def forget(self) -> None:
        """Somebody else plans."""
        self._known.clear()

    def told(self, data: bytes, now_ms: int) -> None:
        """A notice came; what can't be read says nothing."""
        try:
            told = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        self.take(told.version, told.groups, now_ms)

    def take(self, version: int, reports: Iterable[GroupReport], now_ms: int) -> None:
        """Believe these, unless a later leader of a group has said something."""
        for report in reports:
            known = self._known.get(report.group)
            if known is None or known[0].term <= report.term:
                self._known[report.group] = (report, version, now_ms)

    def loads(self) -> dict[int, int]:
        """Of all groups that were told of, in thousandths of a core."""
        return {group: max(0, report.load) for group, (report, _, _) in self._known.items()}

    def busiest(self) -> dict[int, tuple[QueueLoad, ...]]:
        """The busiest queues of hot shards."""
        return {group: report.queues for group, (report, _, _) in self._known.items() if report.queues}

    def moving(self, groups: Iterable[int], version: int, now_ms: int) -> dict[int, Collection[int]]:
        """Those of the groups that are not known to have the voters of the plan of that version, with those that they
        have; with nobody if that is not known."""
        moving: dict[int, Collection[int]] = {}
        for group in groups:
            known = self._known.get(group)
            if known is None or known[1] < version or now_ms - known[2] > KEPT_MS:
                moving[group] = ()
            elif known[0].voters:
                moving[group] = known[0].voters
        return moving
