"""Disks that forget what was not synced: an ext4 file system for each node, on a loop device, that is stopped as by a
loss of power.

Linux, root, `losetup`, `mkfs.ext4`: `why_impossible` says which is missing. A cut is ext4's own shutdown without
a flush of its journal (EXT4_IOC_SHUTDOWN): from then on nothing gets to the device, and what was written and not
synced, data, names and lengths alike, is not there when the file system is mounted again. What the device was given
stays, in the order in which it was given: a disk that loses what it said it has, or writes later things first, is not
in it.

A file system is only gone when it is in no mount namespace any more, and processes in namespaces of their own (hosts of
`network`, containers) begin with a copy of all mounts. So they are mounted in a place that is shared with those.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.waiting import BOUND_S, wait_for

_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSH: Final = struct.pack("I", 2)
_SIZE: Final = 4 << 30
"""Sparse: it takes what was written."""
_COMMIT_EVERY_S: Final = 300
"""So long ext4 may keep to itself what nobody asked it to sync."""


class DiskError(Exception):
    """A command that sets up a disk failed; the text has its words."""


def why_impossible() -> str:
    """Why this machine can have no such disk; empty when it can."""
    if sys.platform != "linux":
        return f"loop devices are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "loop devices take root"
    for command, package in (("losetup", "mount"), ("mount", "mount"), ("mkfs.ext4", "e2fsprogs")):
        if shutil.which(command) is None:
            return f"there is no `{command}` (Debian: apt-get install {package})"
    with tempfile.TemporaryDirectory(prefix="mayfly-disk-") as folder:
        try:
            disks = Disks(Path(folder), [1])
            try:
                disks.cut(1)
                disks.come_back(1)
            finally:
                disks.close()
        except (DiskError, OSError) as error:
            return str(error)
    return ""


class Disks:
    """One disk for each node."""

    def __init__(self, folder: Path, ids: Sequence[int]) -> None:
        """Raises DiskError, and leaves nothing mounted, if that can't be had."""
        self._folder = folder
        self._disks = folder / "disks"
        self._mounted: set[int] = set()
        self._disks.mkdir(parents=True)
        _run("mount", "--bind", str(self._disks), str(self._disks))
        try:
            _run("mount", "--make-shared", str(self._disks))
            for id in ids:
                self._make(id)
        except BaseException:
            self.close()
            raise

    def data_folder(self, id: int) -> Path:
        """Where the node keeps its data: not the disk's uppermost folder, where lost+found is."""
        return self._place(id) / f"node{id}"

    def cut(self, id: int) -> None:
        """From now on nothing gets to the disk; whatever writes to it fails."""
        descriptor = os.open(self._place(id), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(descriptor)

    def come_back(self, id: int) -> None:
        """What had got to the disk is there again. No process may have a file open there."""
        self._unmount(id)
        # Mounted while it is held somewhere, it would be as it was: stopped.
        image = str(self._image(id))
        wait_for(lambda: not _run("losetup", "--associated", image), f"{image} is unmounted and in use no more")
        self._mount(id)

    def close(self) -> None:
        """Leave no disk mounted; the images stay with what is on them."""
        for id in list(self._mounted):
            self._unmount(id)
        _run("umount", str(self._disks))

    def _place(self, id: int) -> Path:
        return self._disks / f"disk{id}"

    def _image(self, id: int) -> Path:
        return self._folder / f"disk{id}.image"

    def _make(self, id: int) -> None:
        self._place(id).mkdir(parents=True)
        with self._image(id).open("wb") as image:
            image.truncate(_SIZE)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self._image(id)))
        self._mount(id)

    def _mount(self, id: int) -> None:
        options = f"loop,commit={_COMMIT_EVERY_S}"
        _run("mount", "-o", options, str(self._image(id)), str(self._place(id)))
        self._mounted.add(id)

    def _unmount(self, id: int) -> None:
        # Pages of a process that was just killed may still be let go of.
        ends_s = time.monotonic() + BOUND_S
        while True:
            try:
                _run("umount", str(self._place(id)))
                break
            except DiskError:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.01)
        self._mounted.discard(id)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DiskError(f"`{' '.join(words)}`: {(done.stderr or done.stdout).strip()}")
    return done.stdout
