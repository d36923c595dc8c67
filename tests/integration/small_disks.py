"""Small file systems, which tests can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(disk: Path, size_bytes: int) -> Iterator[None]:
    """One at that folder, which is made; the test is skipped where that takes rights that it does not have."""
    disk.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "mayfly-test", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"a small tmpfs cannot be mounted here (this takes root): {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=10)
