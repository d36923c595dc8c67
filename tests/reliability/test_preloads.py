"""Nodes behind several commands that load a library each (`tests.integration.nodes`)."""

from tests.integration.nodes import with_all_libraries


def test_libraries_of_several_commands_are_all_loaded() -> None:
    """`env` sets a variable, whatever was in it: a disk that fails and a clock that is wrong need each other's."""
    disk, clock = ["env", "LD_PRELOAD=disk.so", "A=1"], ["env", "LD_PRELOAD=clock.so", "B=2"]
    assert with_all_libraries([*disk, *clock, "mayfly"]) == [
        "env", "LD_PRELOAD=disk.so:clock.so", "A=1", "env", "LD_PRELOAD=disk.so:clock.so", "B=2", "mayfly",
    ]  # fmt: skip
    assert with_all_libraries(["mayfly", "node"]) == ["mayfly", "node"]
