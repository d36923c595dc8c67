"""Between which releases a rolling upgrade is possible, and which can go back (docs/operations/upgrade.md)."""

import subprocess
import sys
from typing import Final

import pytest

from mayfly.cluster import versions
from mayfly.cluster.versions import VersionRange
from tests.failover.releases import ASKING, Release, Upgrade

OLD: Final = Release.of("old", "6 6 1 2 6 6")


def test_a_release_says_its_versions() -> None:
    said = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, check=True).stdout
    here = Release.of("here", said)
    assert (here.protocols, here.levels) == (versions.PROTOCOLS, versions.LEVELS)
    assert here.layouts == VersionRange(versions.LAYOUT_OLDEST, versions.LAYOUT_VERSION)


def test_one_from_before_there_were_versions_says_nothing() -> None:
    assert Release.of("first", "") == Release.of("first", "1 1 1 1 1 1")


@pytest.mark.parametrize("said", ["6 6 1 2 6 6", "6 7 1 2 6 6", "6 7 2 3 6 7"])
def test_upgrades_that_are_possible(said: str) -> None:
    assert Upgrade(OLD, Release.of("new", said)).fault() == ""


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("7 7 1 2 6 6", "old and new speak protocol 6 and 7"),
        ("6 6 3 4 6 6", "old and new know feature level 1 to 2 and 3 to 4"),
        ("6 6 1 2 7 8", "old and new read format 6 and 7 to 8"),
    ],
)
def test_upgrades_that_are_not(said: str, fault: str) -> None:
    assert Upgrade(OLD, Release.of("new", said)).fault() == fault


@pytest.mark.parametrize(
    ("said", "way_back"), [("6 6 1 2 6 6", True), ("6 7 1 2 6 6", True), ("6 6 1 3 6 6", False), ("6 6 1 2 6 7", False)]
)
def test_the_way_back_ends_with_a_level_or_a_format_that_the_old_one_does_not_know(said: str, way_back: bool) -> None:
    assert Upgrade(OLD, Release.of("new", said)).can_go_back is way_back


@pytest.mark.parametrize(
    ("said", "held"), [("6 6 1 2 6 6", False), ("6 7 1 3 6 6", True), ("6 6 2 4 6 6", True), ("6 6 1 3 6 7", False)]
)
def test_a_held_level_keeps_the_way_back_open_where_nothing_else_closes_it(said: str, held: bool) -> None:
    assert Upgrade(OLD, Release.of("new", said)).can_be_held is held
