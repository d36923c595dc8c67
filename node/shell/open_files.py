"""How many files the operating system lets this process have open, and what they are kept for.

A connection is a file to the system. So that the log, other nodes and operators have theirs when clients come without
end, clients get what is left besides these.
"""

import os
import sys
from typing import Final, NamedTuple

from mayfly.node.limits import CONNECTIONS, HTTP_CONNECTIONS, SURPLUS_CONNECTIONS

# Enough for whatever a node does; the customary soft limit of 1024 would be the limit of clients.
_WANTED: Final = 1_048_576

KEPT_FOR_NODE: Final = 320
"""Files that clients and HTTP leave to the node itself. Counted in /proc on nodes at rest: 34 alone (loop, gRPC, log,
write-ahead files, listeners), and 6 more for each peer. Strangers at the ports for peers take up to 128
(`cluster.limits.MAX_STRANGERS` at each; one that speaks to gRPC takes three). So two dozen peers leave some twenty
under an attack, and 150 otherwise, for snapshots under way, copies of the data, certificates, names that are looked up,
and streams that are made anew while the old ones end."""

KEPT_AT_LAST: Final = 64
"""Of these the last, which no client gets even where the node itself has taken more than its own: what some two dozen
peers leave. The shares alone see to it that these are free."""

_LEAST_HTTP: Final = 16
_HTTP_PART: Final = 8
"""HTTP gets an eighth, up to what it may have."""

LEAST_FILES: Final = 448
"""With fewer a node does not start."""

_HOW: Final = "ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of docker"


class FileShares(NamedTuple):
    """How many files may be open at once, and how many connections fit in."""

    allowed: int | None
    """None where the system has no limit, or more than is ever needed."""
    http: int
    clients: int

    @property
    def first_kept(self) -> int | None:
        """The first descriptor that no client gets; None where there is no limit."""
        return None if self.allowed is None else self.allowed - KEPT_AT_LAST

    @property
    def fault(self) -> str | None:
        """Why a node can't work with so few, and what would be right."""
        if self.allowed is None or self.allowed >= LEAST_FILES:
            return None
        return (
            f"this process may have {self.allowed} files open, a node needs at least {LEAST_FILES}, and "
            f"{FILES_FOR_ALL} for {CONNECTIONS} clients: raise the limit of open files ({_HOW})"
        )

    @property
    def warning(self) -> str | None:
        """That clients will be refused earlier than elsewhere; None where they will not."""
        if self.clients >= CONNECTIONS:
            return None
        return (
            f"this process may have {self.allowed} files open: enough for {self.clients} clients; for {CONNECTIONS} "
            f"raise the limit of open files to {FILES_FOR_ALL} ({_HOW})"
        )


FILES_FOR_ALL: Final = CONNECTIONS + SURPLUS_CONNECTIONS + HTTP_CONNECTIONS + KEPT_FOR_NODE
"""With so many no client is refused for want of files."""


def share_out(allowed: int | None) -> FileShares:
    """What so many files are used for."""
    if allowed is None:
        return FileShares(None, HTTP_CONNECTIONS, CONNECTIONS)
    http = min(HTTP_CONNECTIONS, max(_LEAST_HTTP, allowed // _HTTP_PART))
    clients = allowed - KEPT_FOR_NODE - http - SURPLUS_CONNECTIONS
    return FileShares(allowed, http, max(0, min(CONNECTIONS, clients)))


def allowed_files() -> int | None:
    """How many files this process may have open now; None where there is no limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def open_files() -> int | None:
    """How many files this process has open; None where that can't be known."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as this process may."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    while soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has a bound below its hard limit.
            wanted //= 2
        else:
            return
