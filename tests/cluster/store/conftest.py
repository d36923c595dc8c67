"""What several tests of the log need."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder where syncs cost nothing, if the system has one: for damage that is made, not left by a crash."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as path:
        yield Path(path)
