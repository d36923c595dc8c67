"""Disks that are slow or fail while a process runs on them: a library in C (`failing_disk.c`) in front of its calls.

Linux and a C compiler: `why_impossible` says which is missing. A node that is started behind the words of its disk has
all calls to files of its data folder pass through the library; what the disk does is switched while the node runs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.reliability import preloaded

_SOURCE: Final = Path(__file__).with_name("failing_disk.c")


def why_impossible() -> str:
    """Why this machine can have no such disk; empty when it can."""
    return preloaded.why_impossible("disks are made to fail")


class FailingDisks:
    """One disk for each node, all well at first."""

    def __init__(self, folder: Path, data_folder: Callable[[int], Path]) -> None:
        """The library and the switches are kept in `folder`; `data_folder(id)` is what lies on the disk of a node."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._data_folder = data_folder
        self._library = preloaded.build_library(_SOURCE, folder)

    def words(self, id: int) -> list[str]:
        """The words before the command of a node whose data are on that disk."""
        return [
            "env", f"LD_PRELOAD={self._library}", f"FAILING_DISK_SWITCH={self._switch(id)}",
            f"FAILING_DISK_FOLDER={self._data_folder(id).resolve()}",
        ]  # fmt: skip

    def slow(self, id: int, added_ms: int) -> None:
        """Every sync takes so much longer from now on."""
        self._turn(id, f"slow {added_ms} 0")

    def fail(self, id: int, what: str) -> None:
        """All of these calls fail from now on: "write", "sync" or "read" with EIO, "open" with EMFILE; or looks at a
        "map", with SIGBUS."""
        self._turn(id, f"{what} 0 0")

    def heal(self, id: int) -> None:
        """All is well again; a map that failed stays as it is until its process has ended."""
        self._switch(id).unlink(missing_ok=True)

    def _turn(self, id: int, text: str) -> None:
        draft = self._folder / f"node{id}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._switch(id))

    def _switch(self, id: int) -> Path:
        return self._folder / f"node{id}.switch"
