"""Time zones of the IANA database, as this machine has it: the system's, or else that of the package `tzdata`.

Machines may have different ones. What follows from a zone is therefore decided by one node and carried in the log.
"""

from __future__ import annotations

from datetime import tzinfo
from functools import lru_cache
from typing import Final

LONGEST: Final = 100
"""Characters of a name that is looked up."""
_REMEMBERED: Final = 256


@lru_cache(maxsize=_REMEMBERED)
def zone_named(name: str) -> tzinfo | None:
    """The zone with this name; None if there is none here."""
    if not 0 < len(name) <= LONGEST or not name.isascii() or not name.isprintable():
        return None
    # Half a megabyte, for those who name a zone.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None
