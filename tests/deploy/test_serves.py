"""What `helm test` runs, against a node: it says what is not so, and a message goes round, through TLS too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mayfly.node.command_line.certificate_authority import issue, make_authority
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

FILE: Final = Path(__file__).resolve().parent.parent.parent / "helm" / "mayfly" / "files" / "serves.py"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    yield from _served(tmp_path_factory.mktemp("plain"), {})


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nodes, Path]]:
    """With the authority's certificate; the node's own is for another name than it is reached by in the cluster."""
    folder = tmp_path_factory.mktemp("encrypted")
    make_authority(folder, "test", 10)
    certificate, key = issue(folder, ["amqp.example"], 10, False)
    settings = {"amqp_tls_cert": str(certificate), "amqp_tls_key": str(key)}
    for nodes in _served(folder / "node", settings):
        yield nodes, folder / "ca.pem"


def _served(folder: Path, settings: dict[str, Any]) -> Iterator[Nodes]:
    with Nodes(folder, 1, settings) as nodes:
        nodes.start()
        nodes.until_serving()
        yield nodes


def asked(
    nodes: Nodes, *words: str, members: int = 1, password: str = "guest", authority: Path = Path("none")
) -> tuple[int, str]:
    """Exit code, and all that was said."""
    plan = nodes.plan(1)
    environment = {**os.environ, "MAYFLY_USER": "guest", "MAYFLY_PASSWORD": password, "AUTHORITY": str(authority)}
    command = [sys.executable, "-c", FILE.read_text(), str(plan.http), str(plan.amqp), str(members), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * BOUND_S, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_a_message_goes_round(plain: Nodes) -> None:
    code, text = asked(plain)
    assert (code, text) == (0, "serves: node1\n")
    assert plain.page(1, "/queues")[1]["queues"] == [], "nothing is left behind"


def test_what_is_not_so_is_said(plain: Nodes) -> None:
    for text, (code, said) in {
        "not_authorised": asked(plain, password="wrong"),
        "'name': 'node1'": asked(plain, members=3),
        "SSL": asked(plain, "tls"),
    }.items():
        assert code == 1 and text in said, said


def test_through_tls(encrypted: tuple[Nodes, Path], tmp_path: Path) -> None:
    nodes, authority = encrypted
    code, text = asked(nodes, "tls", authority=authority)
    assert (code, text) == (0, "serves: node1\n")
    code, text = asked(nodes, "tls")
    assert code == 0 and "the certificate is not checked" in text
    make_authority(tmp_path, "another", 10)
    code, text = asked(nodes, "tls", authority=tmp_path / "ca.pem")
    assert code == 1 and "certificate verify failed" in text
    code, text = asked(nodes)
    assert code == 1 and "Connection.Start was expected" in text
