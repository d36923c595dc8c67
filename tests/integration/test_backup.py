"""What operators put away and bring back, with real nodes: definitions, and snapshots of nodes' data."""

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.clients import Publisher, channel, drain, publish_all
from tests.integration.nodes import Nodes
from tests.integration.operators import run_mayfly as mayfly

pytestmark = [pytest.mark.processes]

EXPORTED = Path(__file__).parents[1] / "node" / "operating" / "rabbitmq-3.10.8-definitions.json"


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"load_definitions": EXPORTED}


def test_definitions_at_the_start_and_by_command(whole: Nodes, tmp_path: Path) -> None:
    """Loaded at the start on every node; exported; changed, and imported through another node: usable at once."""
    out = tmp_path / "definitions.json"
    done = mayfly(whole, 2, "export", str(out))
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert {"shop", "/"} <= {vhost["name"] for vhost in content["vhosts"]}
    assert "jobs" in {queue["name"] for queue in content["queues"]}
    content["queues"].append({"name": "more", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}})
    out.write_text(json.dumps(content))
    done = mayfly(whole, 3, "import", str(out))
    assert done.returncode == 0 and "definitions imported" in done.stdout, done.stderr
    publish_all(whole, 1, "more", [b"at once"])
    assert drain(whole, 2, "more") == [(b"at once", False)]
    shop = {"vhost": "shop", "name": "old", "pattern": "^x", "definition": {"ha-mode": "all"}}
    out.write_text(json.dumps({**content, "policies": [*content["policies"], shop]}))
    strict = mayfly(whole, 3, "import", str(out), "--strict")
    assert strict.returncode == 3 and "nothing is imported: 1 would be left out" in strict.stderr, strict.stderr
    done = mayfly(whole, 3, "import", str(out))
    assert done.returncode == 3 and "definitions imported" in done.stdout, done.stderr
    assert '"old" left out, there is no ha-mode for all here' in done.stderr
    content["queues"].insert(0, {"name": "never", "vhost": "/", "durable": True})
    content["queues"][-1]["durable"] = 1
    out.write_text(json.dumps(content))
    refused = mayfly(whole, 3, "import", str(out))
    assert refused.returncode == 1 and "durable = 1: true or false is expected" in refused.stderr
    assert whole.queue(3, "never") is None
    assert mayfly(whole, 3, "export", "-", password="wrong").returncode == 1


def test_a_single_node_is_restored_from_a_snapshot(tmp_path: Path) -> None:
    """Copied while it is written to. What was confirmed before the copy is there, and nothing that never was."""
    nodes = Nodes(tmp_path / "one", 1)
    try:
        nodes.start()
        nodes.until_serving()
        with channel(nodes, 1) as declaring:
            declaring.queue_declare("kept", durable=True)
        publisher = Publisher(nodes, 1, "kept", rate=1000, size=500)
        publisher.start()
        publisher.until_confirmed(500)
        before = len(publisher.confirmed)
        copy = tmp_path / "copy"
        done = mayfly(nodes, 1, "snapshot", str(copy))
        assert done.returncode == 0 and "bytes in" in done.stdout, done.stderr
        again = mayfly(nodes, 1, "snapshot", str(copy))
        assert again.returncode == 1 and "is there already" in again.stderr
        whole = mayfly(nodes, 1, "snapshot", str(tmp_path / "whole"), "--whole")
        assert whole.returncode == 0 and f"bytes in {tmp_path / 'whole' / 'node1'} of" in whole.stdout, whole.stderr
        again = mayfly(nodes, 1, "snapshot", str(tmp_path / "whole"), "--whole")
        assert again.returncode == 3 and "is there already" in again.stderr and "the catalog, shard 1" in again.stderr
        publisher.until_confirmed(300)
        publisher.finish()
        nodes.kill(1)
        shutil.rmtree(nodes.plan(1).data_dir)
        nodes.move_data(1, copy)
        nodes.start(1)
        nodes.until_serving()
        numbers = [int(body.split(b" ")[0]) for body, _ in drain(nodes, 1, "kept")]
        assert before <= len(numbers) < publisher.sent
        assert numbers == list(range(len(numbers)))
        publish_all(nodes, 1, "kept", [b"goes on"])
    except BaseException:
        nodes.stop()
        raise
    nodes.close()
