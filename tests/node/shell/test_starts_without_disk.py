"""A disk that is full or broken at a start: the process says so in a line, and may be started again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mayfly.cluster.log.batch import DiskFailed, DiskFull
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.node.command_line.node_command import _serve
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("put_meta", DiskFull("no room for 16 bytes")),
        ("put_meta", DiskFailed("Input/output error")),
        ("write_together", DiskFailed("Input/output error")),
        ("load", DiskFailed("Input/output error")),
    ],
)
def test_an_error_of_the_disk_is_a_line_and_not_the_end_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, error: Exception
) -> None:
    def fails(*arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(LmdbLogStore, call, fails)
    here = Address("127.0.0.1", 0)
    settings = NodeSettings(
        name="one", data_dir=tmp_path, amqp_address=here, http_address=here, peer_address=here, frames_address=here,
        shards=1,
    )  # fmt: skip
    assert asyncio.run(_serve(settings, supervised=False)) == 1
    assert caplog.messages[-1] == f"one cannot start: {error}"
