"""Snapshots on their way in: files in a folder, so that a transfer that broke goes on where it stopped.

A file is named after its snapshot, and as long as what has come of it; nothing else is kept about it. Whatever happens
to the file - a crash, a damaged disk - shows when all has come and is compared with the digest in the name.
"""

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster import limits
from mayfly.cluster.transport.codec import DIGEST_BYTES, SnapshotName

_FILE: Final = re.compile(rf"(\d+)-(\d+)-(\d+)-(\d+)-([0-9a-f]{{{2 * DIGEST_BYTES}}})\.part")


class SpoolFile:
    """An open file, closed when nobody uses it any more, in whatever thread; without a name its room is free then."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError`."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes from an offset on, fewer only at the end."""
        parts: list[bytes] = []
        while size:
            part = os.pread(self._descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Put data at an offset. Raises `OSError`."""
        left = memoryview(data)
        while left:
            written = os.pwrite(self._descriptor, left, offset)
            offset += written
            left = left[written:]

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class SnapshotStream:
    """A call that brings a snapshot: from which node, and of which term the message is that carries it."""

    def __init__(self, peer: int, term: int) -> None:
        self.peer = peer
        self.term = term

    def gives_way_to(self, other: "SnapshotStream") -> bool:
        """A sender has given up on its earlier streams; and the leader of a later term has the last word."""
        return other.peer == self.peer or other.term > self.term


class PartialSnapshot:
    """What has come of one snapshot. One stream at a time brings more: its `owner`."""

    def __init__(self, name: SnapshotName, path: Path, received_bytes: int) -> None:
        self.name = name
        self.path = path
        self.received_bytes = received_bytes
        self.owner: SnapshotStream | None = None
        self.reading: asyncio.Timeout | None = None
        """The bound within which the owner waits for its next piece."""
        self.expiry: asyncio.TimerHandle | None = None
        self.expected: bool = False
        """Whether the rest of it was found to have room, and comes in now."""
        self._file: SpoolFile | None = None

    def file(self) -> SpoolFile:
        """The file; it can be read also after the partial snapshot is dropped. Raises `OSError`."""
        if self._file is None:
            self._file = SpoolFile(self.path)
        return self._file

    def close(self) -> None:
        """Give the open file up."""
        self._file = None


class SnapshotSpool:
    """The partial snapshots of a node, at most one of each group. Everything but reading and writing
    their files happens in one event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._partials: dict[int, PartialSnapshot] = {}

    def start(self) -> None:
        """Find what an earlier process kept. Raises `OSError` when the folder can't be used."""
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        for path in sorted(self.folder.iterdir()):
            name = _name_of(path)
            size_bytes = path.stat().st_size
            usable = name is not None and size_bytes <= name.total_bytes <= limits.MAX_SNAPSHOT_BYTES
            if name is None or not usable or name.group in self._partials or self._full():
                path.unlink()
                continue
            self._partials[name.group] = PartialSnapshot(name, path, size_bytes)
            self._rest(self._partials[name.group])

    def stop(self) -> None:
        """Leave everything for the next start."""
        for partial in self._partials.values():
            partial.close()
            if partial.expiry is not None:
                partial.expiry.cancel()
        self._partials.clear()

    def claim(self, name: SnapshotName, stream: SnapshotStream) -> PartialSnapshot | str:
        """What is there of a snapshot, from now on owned by this stream; the one that had it, or that brings another
        snapshot of the group, is told to end. A text: why not."""
        partial = self._partials.get(name.group)
        if partial is not None:
            if partial.owner is not None and not partial.owner.gives_way_to(stream):
                return f"node {partial.owner.peer} is bringing a snapshot of group {name.group}"
            self._interrupt(partial)
            if partial.name != name:
                self.drop(partial)
                partial = None
        if partial is None:
            if self._full() and not self._drop_one_at_rest():
                return f"{limits.MAX_SNAPSHOTS_KEPT} other snapshots are on their way"
            path = self.folder / f"{name.group}-{name.index}-{name.term}-{name.total_bytes}-{name.digest.hex()}.part"
            partial = self._partials[name.group] = PartialSnapshot(name, path, 0)
        if partial.expiry is not None:
            partial.expiry.cancel()
        # The one that rested longest is the first in the order.
        self._partials[name.group] = self._partials.pop(name.group)
        partial.expiry, partial.owner, partial.expected = None, stream, False
        return partial

    def leave(self, partial: PartialSnapshot, stream: SnapshotStream) -> None:
        """A stream has ended: what it brought waits for another one to go on."""
        if partial.owner is stream:
            partial.owner = partial.reading = None
            partial.expected = False
            if self._partials.get(partial.name.group) is partial:
                self._rest(partial)

    def drop(self, partial: PartialSnapshot) -> None:
        """Forget a partial snapshot and free its room."""
        if self._partials.get(partial.name.group) is partial:
            del self._partials[partial.name.group]
            partial.owner = None
            if partial.expiry is not None:
                partial.expiry.cancel()
            partial.close()
            with suppress(FileNotFoundError):
                partial.path.unlink()

    def free_bytes(self, partial: PartialSnapshot) -> int:
        """How much this snapshot may still take of the disk; the rest of others that come in is theirs. Raises
        `OSError`."""
        system = os.statvfs(self.folder)
        taken_bytes = limits.SNAPSHOT_DISK_RESERVE_BYTES
        for other in self._partials.values():
            if other.expected and other is not partial:
                taken_bytes += other.name.total_bytes - other.received_bytes
        return max(0, system.f_bavail * system.f_frsize - taken_bytes)

    def _rest(self, partial: PartialSnapshot) -> None:
        partial.close()
        if partial.received_bytes == 0:
            self.drop(partial)
            return
        loop = asyncio.get_running_loop()
        partial.expiry = loop.call_later(limits.SNAPSHOT_KEPT_SECONDS, self.drop, partial)

    def _interrupt(self, partial: PartialSnapshot) -> None:
        partial.owner = None
        reading, partial.reading = partial.reading, None
        if reading is not None and not reading.expired():
            reading.reschedule(asyncio.get_running_loop().time())

    def _full(self) -> bool:
        return len(self._partials) >= limits.MAX_SNAPSHOTS_KEPT

    def _drop_one_at_rest(self) -> bool:
        for partial in self._partials.values():
            if partial.owner is None:
                self.drop(partial)
                return True
        return False


def _name_of(path: Path) -> SnapshotName | None:
    match = _FILE.fullmatch(path.name)
    if match is None:
        return None
    group, index, term, total_bytes = (int(match[number]) for number in range(1, 5))
    return SnapshotName(group, index, term, total_bytes, bytes.fromhex(match[5]))
