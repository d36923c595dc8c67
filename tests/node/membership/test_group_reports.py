"""What the catalog's leader believes of what it was told."""

import msgspec
import pytest

from mayfly.node.membership.group_reports import KEPT_MS, GroupReport, KnownGroups, encode_reports


def known(*reports: GroupReport, version: int = 5) -> KnownGroups:
    groups = KnownGroups()
    groups.told(encode_reports(version, reports), 0)
    return groups


def test_a_group_is_as_planned_when_its_leader_has_said_so_of_this_plan() -> None:
    groups = known(GroupReport(1, 2), GroupReport(2, 2, 0, (1, 2)))
    assert groups.moving([1, 2, 3], 5, 0) == {2: (1, 2), 3: ()}
    assert groups.moving([1], 6, 0) == {1: ()}, "it spoke of an earlier plan"
    assert groups.moving([1], 5, KEPT_MS + 1) == {1: ()}, "it may have no leader any more"


def test_a_later_leader_is_believed() -> None:
    groups = known(GroupReport(1, 3, 40))
    groups.told(encode_reports(5, [GroupReport(1, 2, 10, (4,))]), 1)
    assert groups.loads() == {1: 40} and groups.moving([1], 5, 1) == {}
    groups.told(encode_reports(5, [GroupReport(1, 4, 10, (4,))]), 2)
    assert groups.loads() == {1: 10} and groups.moving([1], 5, 2) == {1: (4,)}
    groups.forget()
    assert groups.loads() == {}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 9, b"\x92\x05\x91\x93\x01\xa1x\x00"])
def test_what_can_not_be_read_says_nothing(data: bytes) -> None:
    groups = known(GroupReport(1, 3, 40))
    groups.told(data, 1)
    assert groups.loads() == {1: 40}


def test_releases_that_know_nothing_of_queues_understand_the_others_and_are_understood() -> None:
    """Those of before read four fields of each group and wrote four."""

    class Report(msgspec.Struct, frozen=True, array_like=True):
        group: int
        term: int
        load: int = 0
        voters: tuple[int, ...] = ()

    class Told(msgspec.Struct, frozen=True, array_like=True):
        version: int
        groups: list[Report]

    report = GroupReport(1, 2, 40, (3,), ((7, 30), (9, 10)))
    read = msgspec.msgpack.decode(encode_reports(5, [report, report]), type=Told)
    assert read == Told(5, [Report(1, 2, 40, (3,))] * 2)
    groups = known(report)
    assert groups.busiest() == {1: ((7, 30), (9, 10))}
    groups.told(msgspec.msgpack.encode(Told(5, [Report(1, 2, 50), Report(2, 1, 60)])), 1)
    assert groups.busiest() == {} and groups.loads() == {1: 50, 2: 60}
