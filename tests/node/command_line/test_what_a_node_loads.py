"""What only some nodes need is not loaded by the others: in processes apart, as `mayfly node` loads it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

LOAD = """
import json, os, ssl, sys
from mayfly.node.command_line import main, node_command

before = os.environ.get("SSL_CERT_FILE")
with node_command._without_authorities():
    from mayfly.node.shell.console import Console
    from mayfly.node.shell.process import NodeProcess
    within = len(ssl.create_default_context().get_ca_certs())
loaded = {name.partition(".")[0] for name in sys.modules}
print(json.dumps({"loaded": sorted(loaded), "within": within, "same": os.environ.get("SSL_CERT_FILE") == before}))
"""
NOT_LOADED = {
    "aiomonitor": "the console (aiomonitor = true)",
    "cryptography": "tokens, and the check of certificates; 8 MB",
    "difflib": "words that nobody knows",
    "matplotlib": "benchmarks",
    "pika": "the demonstration",
    "prometheus_client": "pages of metrics; 1 MB",
    "rich": "tables of operators' commands",
    "zoneinfo": "recurring messages with a zone",
}


def load(**environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def node() -> Any:
    return load()


@pytest.mark.parametrize("package", NOT_LOADED)
def test_what_only_some_nodes_need_is_loaded_when_it_is_needed(node: Any, package: str) -> None:
    assert package not in node["loaded"], NOT_LOADED[package]


def test_what_every_node_needs_is_loaded_at_its_start(node: Any) -> None:
    """Not at the first connection or page, which would wait for it."""
    assert {"aiohttp", "grpc", "lmdb", "msgspec", "pamqp"} <= set(node["loaded"])


def test_authorities_are_left_out_while_modules_are_loaded_and_then_no_more(node: Any) -> None:
    assert node["within"] == 0
    assert node["same"]
    assert load(SSL_CERT_FILE="/somewhere")["same"]
