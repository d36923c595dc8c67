"""How many files the operating system lets this process have open."""

import sys
from typing import Final

# A connection is a file to the system; the customary soft limit of 1024 would be the limit of clients.
_WANTED: Final = 1_048_576


def raise_open_files_limit() -> int | None:
    """Raise the limit of open files as far as this process may; the limit now, None where there is none."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
