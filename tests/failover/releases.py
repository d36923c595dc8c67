"""What the release in an image reads, speaks and writes, and what follows for a way from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mayfly.cluster.versions import VersionRange

ASKING: Final = (
    "from importlib.util import find_spec\n"
    "if find_spec('mayfly'):\n"
    " import mayfly.cluster.versions as v\n"
    "elif find_spec('cluster.versions'):\n"
    " import cluster.versions as v\n"
    "if 'v' in globals():\n"
    " print(v.PROTOCOL_LOWEST, v.PROTOCOL_HIGHEST, v.LEVEL_LOWEST, v.LEVEL_HIGHEST, v.LAYOUT_OLDEST, v.LAYOUT_VERSION)"
)
"""A program that prints the versions of the release it runs in; nothing where that has none of these."""


@dataclass(frozen=True)
class Release:
    """An image, and the versions (`cluster.versions`) of what is in it."""

    image: str
    protocols: VersionRange
    levels: VersionRange
    layouts: VersionRange
    """Of data folders that it can read; it writes the highest."""

    @classmethod
    def of(cls, image: str, said: str) -> Release:
        """What `ASKING` has printed in the image; the first version of each where it printed nothing."""
        words = said.split() or ["1"] * 6
        numbers = [int(word) for word in words]
        return cls(image, VersionRange(*numbers[:2]), VersionRange(*numbers[2:4]), VersionRange(*numbers[4:6]))


@dataclass(frozen=True)
class Upgrade:
    """From which release to which."""

    old: Release
    new: Release

    def fault(self) -> str:
        """Why nodes can't go from one to the other in turn; "" if they can."""
        old, new = self.old, self.new
        for what, known, needed in (
            ("speak protocol", (old.protocols, new.protocols), old.protocols.common(new.protocols)),
            ("know feature level", (old.levels, new.levels), new.levels.knows(old.levels.highest)),
            ("read format", (old.layouts, new.layouts), new.layouts.knows(old.layouts.highest)),
        ):
            if not needed:
                return f"{old.image} and {new.image} {what} {known[0]!r} and {known[1]!r}"
        return ""

    @property
    def can_go_back(self) -> bool:
        """Whether the old release has to take the data again after all nodes were new."""
        return self.old.levels.knows(self.new.levels.highest) and self.old.layouts.knows(self.new.layouts.highest)

    @property
    def can_be_held(self) -> bool:
        """Whether the level rises beyond what the old release knows, and nothing but that closes the way back."""
        old, new = self.old, self.new
        return not old.levels.knows(new.levels.highest) and old.layouts.knows(new.layouts.highest)
