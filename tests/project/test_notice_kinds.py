"""The kinds of notices of both layers go through one channel: a number that two of them had would be misread."""

from types import ModuleType

from mayfly.cluster import notice_kinds as of_hosts
from mayfly.node import notice_kinds as of_nodes


def kinds_of(module: ModuleType) -> list[int]:
    return [kind for name, kind in vars(module).items() if name.isupper()]


def test_every_kind_has_a_number_of_its_own() -> None:
    kinds = kinds_of(of_hosts) + kinds_of(of_nodes)
    assert len(kinds_of(of_hosts)) >= 4 and len(kinds_of(of_nodes)) >= 12
    assert len(set(kinds)) == len(kinds)
    assert all(0 < kind < 256 for kind in kinds)
