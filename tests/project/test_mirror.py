"""Where the tests of a package are: in the folder of the same name, and all folders of tests are called so."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

TESTED_ABOVE: Final = {
    "cluster/rpc": "it is generated: tests/cluster/transport sends what it makes",
    "node/broker/operations": "tests/node/broker asks for them as clients do",
    "node/operating/definitions": "tests/node/operating reads and writes files of definitions",
    "node/operating/ports": "they are Protocols",
    "node/shard/snapshot": "tests/node/shard restores shards of snapshots",
}
"""Packages without a folder of tests."""


def packages(top: Path) -> set[str]:
    """Folders with modules, below the folder `top`, from there on."""
    return {path.parent.relative_to(top).as_posix() for path in top.rglob("*.py")} - {"."}


def folders(top: Path) -> set[str]:
    """Folders with files, below the folder `top`, from there on; but for what Python keeps."""
    return {
        path.parent.relative_to(top).as_posix()
        for path in top.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } - {"."}


def test_folders_of_tests_are_called_as_the_packages() -> None:
    faults = [
        f"tests/{top}/{folder}"
        for top in ("cluster", "node")
        for folder in folders(ROOT / "tests" / top) - packages(ROOT / top)
    ]
    assert not faults, "\n".join(faults)


def test_every_package_has_a_folder_of_tests() -> None:
    without = {
        f"{top}/{package}"
        for top in ("cluster", "node")
        for package in packages(ROOT / top) - packages(ROOT / "tests" / top)
    }
    assert without == set(TESTED_ABOVE)


def test_folders_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "b/d/e.py", "f/g.json", "b/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert packages(tmp_path) == {"b", "b/d"}
    assert folders(tmp_path) == {"b", "b/d", "f"}
