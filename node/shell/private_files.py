"""What a node keeps is for its own user alone: messages, password hashes, keys. Folders 0700, files 0600.

New files are so because the process says so, whatever it was started with (`keeping_private`); those of an earlier
version are made so at the start (`make_private`), as far as they are this user's.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mayfly.node.shell.data_folder import OWN_FILES, OWN_FOLDERS, is_own

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def keeping_private() -> Iterator[None]:
    """What this process, and those that it starts, make meanwhile is for their user alone."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_private(data_dir: Path) -> list[str]:
    """Take away what others may do with a node's data; what others can still read, because it is another user's.

    The folder itself is left alone if anything is in it that is not the node's: others may need that. In a folder with
    the set-group-id bit its group keeps what it may do: somebody has chosen it (Kubernetes' `fsGroup` is how a pod that
    runs as another user comes to its data).
    """
    left = []
    for path in _own_paths(data_dir):
        try:
            if _take_away(path):
                left.append(str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(f"{path} ({error.strerror})")
    return left


def open_private(path: Path) -> int:
    """A descriptor of a file to append to, made if it is not there, for its owner alone. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # another user's: it was given to this one to write to
        os.fchmod(descriptor, 0o600)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Put the text into the place of the file, whole or not at all, for its owner alone. What is no file (a pipe, a
    terminal) is written to. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    path = path.resolve()  # a link stays one
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _own_paths(data_dir: Path) -> Iterator[Path]:
    try:
        inside = sorted(data_dir.iterdir())
    except FileNotFoundError:
        return
    if all(is_own(path.name) for path in inside):
        yield data_dir
    for path in inside:
        if path.name in OWN_FILES:
            yield path
        elif path.name in OWN_FOLDERS:
            yield path
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    yield Path(folder, name)


def _take_away(path: Path) -> bool:
    """Whether others can still come to what is there. Raises OSError."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return False
    group_is_chosen = path.parent.stat().st_mode & stat.S_ISGID or found.st_mode & stat.S_ISGID
    surplus = found.st_mode & (stat.S_IRWXO if group_is_chosen else _OTHERS)
    if not surplus:
        return False
    if found.st_uid != os.geteuid():
        return bool(surplus & stat.S_IRWXO)
    path.chmod(stat.S_IMODE(found.st_mode) & ~surplus)
    return False
