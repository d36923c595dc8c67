"""Bugs made on purpose: each breaks one promise by a change of a few characters, and must not get past the checks.

A bug replaces a text in one source file. The text must be there exactly once: when the source has changed so that
it is not, `broken_source` raises, and the bug has to be written anew.
"""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster", "mayfly", "node", "simulation")


class Bug:
    """What is changed where, the narrowest check that catches it, and what that check says then."""

    def __init__(self, name: str, path: str, before: str, after: str, check: str, says: str) -> None:
        self.name: str = name
        self.path: str = path
        self.before: str = before
        self.after: str = after
        self.check: str = check
        """A pytest node id, from the root of the repository."""
        self.says: str = says
        """A part of what pytest prints, so that it isn't caught by accident."""

    def __repr__(self) -> str:
        return self.name

    def in_text(self, text: str) -> str:
        """The text of its file with the bug in it. Raises LookupError when that has changed."""
        times = text.count(self.before)
        if times != 1:
            raise LookupError(
                f"the bug {self.name!r} replaces a text that is {times} times in {self.path}, once is right: write the "
                f"bug anew for the source as it is now\n{self.before}"
            )
        return text.replace(self.before, self.after)


def sound_source(folder: Path) -> None:
    """A copy of the source tree as it is, with the tests as they are beside it."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    shutil.copy(ROOT / "pyproject.toml", folder)


def broken_source(bug: Bug, folder: Path) -> None:
    """A copy of the source tree with the bug in it. Raises LookupError when the source has changed."""
    sound_source(folder)
    source = folder / bug.path
    source.write_text(bug.in_text(source.read_text(encoding="utf-8")), encoding="utf-8")


def reused_source(folder: Path) -> None:
    """A copy of the source tree in which bugs come and go (`with_bug`), and Python's caches stay: with them, a check
    takes half the CPU. The tests are links one by one, so that their caches are of this copy alone: pytest's say where
    the file was."""
    sound_source(folder)
    (folder / "tests").unlink()
    shutil.copytree(
        ROOT / "tests", folder / "tests", copy_function=_link, ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )


def _link(source: str, copy: str) -> None:
    Path(copy).symlink_to(source)


@contextlib.contextmanager
def with_bug(bug: Bug, folder: Path) -> Iterator[None]:
    """The bug is in that copy meanwhile. Raises LookupError when the source has changed."""
    source = folder / bug.path
    broken = bug.in_text(source.read_text(encoding="utf-8"))
    # Two texts of one length that were written within a second have one cache.
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.unlink(missing_ok=True)
    try:
        source.write_text(broken, encoding="utf-8")
        yield
    finally:
        cache.unlink(missing_ok=True)
        shutil.copy2(ROOT / bug.path, source)
