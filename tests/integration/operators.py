"""What operators do: the management API and the command line, asked of real nodes."""

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from click.testing import CliRunner

from mayfly.node.command_line import main
from mayfly.node.local_nodes.local_cluster import this_mayfly
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S

GUEST: Final = ("guest", "guest")


def ask(
    nodes: Nodes, id: int, method: str, path: str, content: object = None, user: tuple[str, str] = GUEST
) -> tuple[int, Any]:
    """Status and JSON (None: empty) of a node's management API."""
    return _ask(nodes, id, method, f"/api/{path}", content, user)


def ask_to_move(nodes: Nodes, id: int, queue: str, shard: int, user: tuple[str, str] = GUEST) -> int:
    """The status with which a node takes it that a queue of the default vhost shall move to a shard."""
    return _ask(nodes, id, "POST", f"/queues/%2F/{quote(queue, safe='')}/move", {"shard": shard}, user)[0]


def ask_to_place(nodes: Nodes, id: int, shard: int, voters: Sequence[str], user: tuple[str, str] = GUEST) -> int:
    """The status with which a node takes it that a shard shall vote on the nodes of these names."""
    return _ask(nodes, id, "POST", f"/shards/{shard}/move", {"voters": voters}, user)[0]


def ask_to_lead(nodes: Nodes, id: int, shard: int, leader: str, user: tuple[str, str] = GUEST) -> int:
    """The status with which a node takes it that the node of that name shall lead a shard."""
    return _ask(nodes, id, "POST", f"/shards/{shard}/transfer", {"leader": leader}, user)[0]


def _ask(
    nodes: Nodes, id: int, method: str, path: str, content: object, user: tuple[str, str]
) -> tuple[int, Any]:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"http://{nodes.plan(id).http}{path}", body, method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(":".join(user).encode()).decode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def put_policy(
    nodes: Nodes, id: int, name: str, pattern: str, definition: dict[str, Any], operator: bool = False
) -> None:
    """A policy for queues, or an operator's, through a node."""
    kind = "operator-policies" if operator else "policies"
    content = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
    assert ask(nodes, id, "PUT", f"{kind}/%2F/{quote(name, safe='')}", content)[0] in (201, 204)


def run_mayfly(nodes: Nodes, id: int, *words: str, password: str = "guest") -> subprocess.CompletedProcess[str]:
    """An operator's command for one node, as a process of its own."""
    environment = {**os.environ, "MAYFLY_PASSWORD": password}
    command = [*this_mayfly(), *words, "--node", str(nodes.plan(id).http)]
    return subprocess.run(command, capture_output=True, text=True, timeout=5 * BOUND_S, check=False, env=environment)


def mayfly(nodes: Nodes, id: int, *words: str) -> str:
    """What an operator's command that does well prints, run in this process."""
    user, password = nodes.login
    runner = CliRunner(env={"MAYFLY_USER": user, "MAYFLY_PASSWORD": password})
    result = runner.invoke(main, [*words, "--node", str(nodes.plan(id).http)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
