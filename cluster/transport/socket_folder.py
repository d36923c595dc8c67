"""The folder with the socket that an acceptor passes connections on to; those of killed processes are taken away."""

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "mayfly-peers-"
_SOCKET: Final = "grpc"


class SocketFolder:
    """A new folder that its user alone may open, with a lock that its process holds from construction to `close`."""

    def __init__(self) -> None:
        """Raises `OSError`."""
        _take_away_left()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        try:
            # Before there is a socket. That alone doesn't tell a folder in use from one that was left: for a moment, or
            # longer on a busy machine, a socket is there and nobody listens at it yet.
            self._lock = _lock(Path(self._folder.name))
        except OSError:
            self._folder.cleanup()
            raise
        self.socket: Final = Path(self._folder.name) / _SOCKET
        """Where to listen; there is nothing yet."""

    def close(self) -> None:
        """Take it away."""
        self._folder.cleanup()
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """The descriptor that holds a folder's lock. Raises `OSError`, also if another one holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _take_away_left() -> None:
    """Folders of processes that were killed: each has a socket of this user at which nobody listens any more, and a
    lock that nobody holds. Where the system's folder for such things lasts, as a container's volume does, they would
    become ever more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (folder / _SOCKET).is_socket():
                _take_away_unless_used(folder)


def _take_away_unless_used(folder: Path) -> None:
    """Raises `OSError` if it is in use. One with a socket has been locked by now, if its process goes on."""
    lock = _lock(folder)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            asking.connect(str(folder / _SOCKET))  # Earlier releases hold no lock.
    except ConnectionRefusedError:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
