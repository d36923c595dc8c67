"""The files of a folder as a process wrote them, by the list of its system calls (strace), and what a crash after any
of them may leave.

What was written is on the disk once a later sync of its file has returned; until then any of its sectors may be, or an
older text of them. A write through a descriptor with O_DSYNC is on the disk when it has returned. Files come and get
other names in order, and surely once the folder was synced.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR_BYTES = 512
RENAMES = ("rename", "renameat", "renameat2")
"""Not every machine has each of them."""
CALLS = "openat,write,writev,pwrite64,pwritev,lseek,ftruncate,fallocate,fsync,fdatasync,?" + ",?".join(RENAMES)
OPTIONS = ("-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={CALLS}")
NO_CONTENT = ("lock.mdb", "in-use")
"""What they hold means nothing once their process has ended."""
ANSWER = b"answered"
"""The process says so, with a number, on its standard output."""

_FILE = re.compile(r"^(\d+)<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(slots=True)
class Change:
    """Octets from a place on; or, if there are none, a length of the file."""

    start: int
    octets: bytes
    returned: bool = False
    synced: bool = False


@dataclass(slots=True)
class NameChange:
    """A file that came, or has another name now."""

    name: str
    before: str
    changes: list[Change]
    synced: bool = False


@dataclass(slots=True)
class RecordedDisk:
    """All that was done so far. `forgets_syncs_of`: a file whose syncs do nothing, for a disk that lies."""

    folder: str
    forgets_syncs_of: str = ""
    answered: int = 0
    files: dict[str, list[Change]] = field(default_factory=dict)
    names: list[NameChange] = field(default_factory=list)
    _durable: set[str] = field(default_factory=set)
    _places: dict[str, int] = field(default_factory=dict)
    _under_way: dict[str, tuple[str, list[Change]]] = field(default_factory=dict)

    def follow(self, listing: str) -> Iterator[None]:
        """Do what the list says, and stop after each beginning or end of a call that changed something."""
        for line in listing.splitlines():
            process, _, call = line.partition(" ")
            call = call.strip()
            if call.startswith("<... "):
                text, changes = self._under_way.pop(process)
                text += call.partition(" resumed>")[2]
            elif "(" in call and not call.startswith(("+++", "---")):
                text = call.removesuffix("<unfinished ...>")
                changes = self._begin(text)
                if changes:
                    yield
                if call.endswith("<unfinished ...>"):
                    self._under_way[process] = (text, changes)
                    continue
            else:
                continue
            if self._end(text, changes):
                yield

    def _name(self, path: str) -> str:
        """Of a file in the folder that matters; "." for the folder itself, "" for all others."""
        path = _plain(path).decode()
        if path == self.folder:
            return "."
        inside = path.startswith(self.folder + "/") and not path.endswith(NO_CONTENT)
        return path[len(self.folder) + 1 :] if inside else ""

    def _target(self, text: str) -> tuple[str, str, str, str]:
        """Call, descriptor, name of the file, and the other arguments."""
        call, _, arguments = text.partition("(")
        found = _FILE.match(arguments)
        if found is None:
            return call, "", "", arguments
        return call, found[1], self._name(found[2]), arguments[found.end() :]

    def _begin(self, text: str) -> list[Change]:
        """What a call changes, or makes durable."""
        call, descriptor, name, arguments = self._target(text)
        if call in ("fsync", "fdatasync"):
            lies = name == self.forgets_syncs_of
            return [each for each in self.files.get(name, []) if each.returned and not lies]
        if not name:
            return []
        changes: list[Change] = []
        if call in ("write", "writev", "pwrite64", "pwritev"):
            octets = b"".join(_plain(part) for part in _TEXT.findall(arguments))
            if call.startswith("p"):
                start = _last_number(arguments)
            else:
                start = self._places[descriptor]
                self._places[descriptor] += len(octets)
            changes = [Change(start, octets)]
        elif call in ("ftruncate", "fallocate"):
            changes = [Change(_last_number(arguments), b"")]
        self.files[name] += changes
        return changes

    def _end(self, text: str, changes: list[Change]) -> bool:
        """What is so once a call has returned. Whether that matters."""
        call, descriptor, name, arguments = self._target(text)
        result = arguments.rpartition(") ")[2].strip(" =")
        if call == "openat" and not result.startswith("-1"):
            self._opened(arguments, result)
        elif call in RENAMES:
            before, after = (self._name(path) for path in _TEXT.findall(arguments))
            if before:
                self.files[after] = self.files.pop(before)
                self.names.append(NameChange(after, before, self.files[after]))
        elif call == "lseek":
            if name:
                self._places[descriptor] = int(result)
        elif call in ("fsync", "fdatasync"):
            for change in changes:
                change.synced = True
            if name == ".":
                for named in self.names:
                    named.synced = True
        elif call == "write" and not name:
            self._hear(arguments)
        else:
            for change in changes:
                change.returned = True
                change.synced = descriptor in self._durable
        return call not in ("openat", "lseek", "write") or bool(changes)

    def _opened(self, arguments: str, result: str) -> None:
        found = _FILE.match(result)
        name = "" if found is None else self._name(found[2])
        if found is None or name in ("", "."):
            return
        if name not in self.files:
            self.files[name] = []
            self.names.append(NameChange(name, "", self.files[name]))
        self._places[found[1]] = 0
        self._durable.discard(found[1])
        if "O_DSYNC" in arguments:
            self._durable.add(found[1])

    def _hear(self, arguments: str) -> None:
        said = b"".join(_plain(part) for part in _TEXT.findall(arguments)).split()
        if said[:1] == [ANSWER]:
            self.answered = int(said[1])

    def crash(self, folder: Path, random: Random) -> None:
        """Write what a crash now may leave into an empty folder."""
        there: dict[str, list[Change]] = {}
        last = random.choice((0, len(self.names), random.randint(0, len(self.names))))
        for number, named in enumerate(self.names):
            if not named.synced and number >= last:
                break
            there.pop(named.before, None)
            there[named.name] = named.changes
        for name, changes in there.items():
            descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
            kept = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
            for change in changes:
                _write(descriptor, change, 1.0 if change.synced else kept, random)
            os.close(descriptor)


def _write(descriptor: int, change: Change, kept: float, random: Random) -> None:
    if not change.octets:
        if random.random() < kept and os.fstat(descriptor).st_size < change.start:
            os.ftruncate(descriptor, change.start)
        return
    place, end = change.start, change.start + len(change.octets)
    while place < end:
        following = min(end, place - place % SECTOR_BYTES + SECTOR_BYTES)
        if random.random() < kept:
            os.pwrite(descriptor, change.octets[place - change.start : following - change.start], place)
        place = following


def _last_number(arguments: str) -> int:
    """The last argument of a call, which may not have returned yet."""
    found = re.search(r", (\d+)(?:\s*$|\) +=)", arguments)
    assert found is not None, arguments[-100:]
    return int(found[1])


def _plain(text: str) -> bytes:
    """Octets as strace writes them with -xx; paths of descriptors are not written so by every strace."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()
