"""What the files are used for that the system lets a node have open, and what is said where there are few."""

import asyncio
import resource
from pathlib import Path

import pytest

from mayfly.node.limits import CONNECTIONS, HTTP_CONNECTIONS, SURPLUS_CONNECTIONS
from mayfly.node.settings import NodeSettings
from mayfly.node.shell import open_files
from mayfly.node.shell.arrival import NodeRefused
from mayfly.node.shell.open_files import FILES_FOR_ALL, KEPT_FOR_NODE, LEAST_FILES, raise_open_files_limit, share_out
from mayfly.node.shell.process import NodeProcess

PEERS_AT_REST = 34 + 23 * 6
"""Files of a node among 23 others at rest: see `node.shell.open_files.KEPT_FOR_NODE`."""


@pytest.mark.parametrize("allowed", [LEAST_FILES, 512, 1024, 4096, 65_536, FILES_FOR_ALL - 1, FILES_FOR_ALL, 1 << 20])
def test_clients_and_http_leave_the_node_its_files(allowed: int) -> None:
    shares = share_out(allowed)
    assert shares.fault is None
    assert 0 < shares.clients <= CONNECTIONS and 0 < shares.http <= HTTP_CONNECTIONS
    assert shares.clients + SURPLUS_CONNECTIONS + shares.http + KEPT_FOR_NODE <= allowed
    in_use = shares.clients + SURPLUS_CONNECTIONS + shares.http + PEERS_AT_REST
    assert shares.first_kept is not None and in_use <= shares.first_kept, "clients are shut out below their limit"
    assert (shares.clients == CONNECTIONS) == (allowed >= FILES_FOR_ALL) == (shares.warning is None)


def test_without_a_limit_the_node_has_its_own_limits() -> None:
    shares = share_out(None)
    assert (shares.clients, shares.http) == (CONNECTIONS, HTTP_CONNECTIONS)
    assert shares.fault is None and shares.warning is None and shares.first_kept is None


def test_what_is_said_names_the_limit_the_setting_and_what_would_be_enough() -> None:
    shares = share_out(1024)
    assert shares.warning == (
        f"this process may have 1024 files open: enough for {shares.clients} clients; for 50000 raise the limit of "
        f"open files to {FILES_FOR_ALL} (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of docker)"
    )
    assert share_out(LEAST_FILES - 1).fault == (
        f"this process may have {LEAST_FILES - 1} files open, a node needs at least {LEAST_FILES}, and {FILES_FOR_ALL} "
        "for 50000 clients: raise the limit of open files "
        "(ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of docker)"
    )


def test_a_node_that_may_open_too_few_refuses_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mayfly.node.shell.process.allowed_files", lambda: LEAST_FILES - 1)
    process = NodeProcess(NodeSettings(data_dir=tmp_path / "data"))
    with pytest.raises(NodeRefused, match=f"needs at least {LEAST_FILES}"):
        asyncio.run(process.start())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("limits", "most", "raised"),
    [
        ((256, 4096), 1 << 30, 4096),
        ((256, resource.RLIM_INFINITY), 1 << 30, 1 << 20),
        ((256, resource.RLIM_INFINITY), 300_000, 1 << 18),
        ((4096, 4096), 1 << 30, 4096),
        ((256, resource.RLIM_INFINITY), 0, 256),
    ],
)
def test_the_limit_is_raised_as_far_as_the_system_lets_it(
    limits: tuple[int, int], most: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`most`: what the system takes, whatever its hard limit says."""
    now = [limits]

    def setrlimit(what: int, wanted: tuple[int, int]) -> None:
        assert what == resource.RLIMIT_NOFILE and wanted[1] == limits[1]
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        now[0] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda what: now[0])
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    raise_open_files_limit()
    assert open_files.allowed_files() == raised
