"""A real Prometheus takes the configuration, the rules and every query of the dashboard, and nodes give it answers.

Takes Debian's package `prometheus`, which has both programs; without them these tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pika
import pytest

from tests.integration.nodes import Nodes, wait_for

DEPLOY: Final = Path(__file__).resolve().parent.parent.parent / "deploy"
CHART: Final = DEPLOY.parent / "helm" / "mayfly"
DASHBOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "mayfly.json").read_text())
WITHIN_S: Final = 60.0
for program in ("prometheus", "promtool"):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian: apt-get install prometheus)", allow_module_level=True)
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (requirements/deploy.txt)")


def queries() -> list[str]:
    """Every query of the dashboard's panels, with what Grafana puts in for its variables."""
    put_in = {"$__rate_interval": "1m", "$job": ".*"}
    texts = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return [re.sub(r"\$\w+", lambda variable: put_in[variable[0]], text) for text in texts]


def promtool(*words: str) -> str:
    """What it says of a file that it takes."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_is_one() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus.yaml"))


def test_alerts_are_raised_when_they_should_and_not_before(tmp_path: Path) -> None:
    """The rules of the chart, as Helm makes them, on series made up: well for ten minutes, then ten of each trouble."""
    helm = pytest.importorskip("helm_python", reason="Helm's engine is not installed (requirements/deploy.txt)")
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="mq", namespace="prod", is_install=True)
    text = next(text for path, text in texts.items() if path.endswith("prometheusrule.yaml"))
    groups = yaml.safe_load(text)["spec"]["groups"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    assert "7 rules" in promtool("check", "rules", str(tmp_path / "rules.yaml"))
    of = 'namespace="prod", pod="mq-mayfly-0"'
    # Steps of 30 s: 21 samples in which all is well, then 20 of the trouble.
    series = {
        f'mayfly_raft_leader{{{of}, group="1"}}': "1x20 0x20",
        f"mayfly_disk_alarm{{{of}}}": "0x20 1x20",
        f"mayfly_expiry_lag_ms{{{of}}}": "900x20 1100x20",
        f"mayfly_clock_excess_ms{{{of}}}": "0x20 3x20",
        f"mayfly_lane_oldest_seconds{{{of}}}": "9x20 11x20",
        f"mayfly_parked_oldest_seconds{{{of}}}": "500x20 700x20",
        # Of 10 syncs a step, all take 0.1 s at most; then half take 0.5 s.
        f'mayfly_log_sync_seconds_bucket{{{of}, le="0.1"}}': "0+10x20 205+5x20",
        f'mayfly_log_sync_seconds_bucket{{{of}, le="0.5"}}': "0+10x20 210+10x20",
        f'mayfly_log_sync_seconds_bucket{{{of}, le="+Inf"}}': "0+10x20 210+10x20",
        # Another release's node is none of ours.
        'mayfly_disk_alarm{namespace="prod", pod="other-mayfly-0"}': "1x40",
    }
    labels = {name: label for rule in groups[0]["rules"] for name, label in [(rule["alert"], _labels(rule))]}
    notes = {rule["alert"]: _notes(rule) for rule in groups[0]["rules"]}
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": "10m", "alertname": name, "exp_alerts": []} for name in labels
                ]
                + [
                    {
                        "eval_time": "20m",
                        "alertname": name,
                        "exp_alerts": [{"exp_labels": labels[name], "exp_annotations": notes[name]}],
                    }
                    for name in labels
                ],
            }
        ],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(tmp_path / "tests.yaml"))


_KEPT: Final = {
    "MayflyNoLeader": {"group": "1"},
    "MayflyExpiryLag": {"pod": "mq-mayfly-0"},
    "MayflySlowDisk": {"pod": "mq-mayfly-0"},
    "MayflyDeadLettersWait": {},
    "MayflyDeadLettersParked": {},
}
"""Labels that are left of the series. Of those not named here: all."""


def _labels(rule: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = rule["labels"]
    return _KEPT.get(rule["alert"], {"namespace": "prod", "pod": "mq-mayfly-0"}) | labels


def _notes(rule: dict[str, Any]) -> dict[str, str]:
    labels = _labels(rule)
    return {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        for name, text in rule["annotations"].items()
    }


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a Prometheus with the configuration of deploy/, but for addresses and a scrape a second."""
    folder = tmp_path_factory.mktemp("watched")
    nodes = Nodes(folder, 3)
    try:
        nodes.serve()
        _use(nodes)
        _stall(nodes)
        configuration = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
        configuration["global"]["scrape_interval"] = "1s"
        targets = configuration["scrape_configs"][0]["static_configs"][0]["targets"]
        targets[:] = [str(nodes.plan(id).http) for id in nodes.ids]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
        words += [f"--web.listen-address={address}", "--log.level=warn"]
        with (folder / "prometheus.log").open("wb") as log:
            server = subprocess.Popen(["prometheus", *words], stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: len(_answer(address, "up == 1")) == 3, "three nodes that are watched", WITHIN_S, 0.2)
            _use(nodes)
            yield address
        finally:
            server.kill()
            server.wait()
    finally:
        nodes.close()


def _use(nodes: Nodes) -> None:
    """Publish, consume, expire, dead-letter."""
    address = nodes.plan(1).amqp
    with pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(6):
            dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"live-{number}"}
            channel.queue_declare(f"live-{number}", durable=True)
            channel.queue_declare(f"dying-{number}", durable=True, arguments=dead)
            for name in (f"dying-{number}", f"live-{number}"):
                channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))
            channel.basic_get(f"live-{number}", auto_ack=True)


def _stall(nodes: Nodes) -> None:
    """A dead letter that waits for as long as anybody looks: its target takes one message, and has it."""
    address = nodes.plan(1).amqp
    with pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"}
        channel.queue_declare("waiting", durable=True, arguments=dead)
        for name in ("full", "waiting"):
            channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))


def _answer(address: str, query: str) -> list[dict[str, Any]]:
    """The series of an answer; none if there is no server yet. Raises HTTPError if it does not take the query."""
    try:
        with urlopen(f"http://{address}/api/v1/query?{urlencode({'query': query})}", timeout=10) as page:
            answer = json.load(page)
    except ConnectionError:
        return []
    except URLError as error:
        if isinstance(error.reason, ConnectionError):
            return []
        raise
    assert answer["status"] == "success", answer
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


@pytest.mark.processes
def test_every_query_of_the_dashboard_has_an_answer(watched: str) -> None:
    for query in queries():
        wait_for(partial(_answer, watched, query), f"an answer to {query}", WITHIN_S, 0.2)


@pytest.mark.processes
def test_the_variable_of_the_dashboard_finds_the_job(watched: str) -> None:
    (variable,) = (each for each in DASHBOARD["templating"]["list"] if each["type"] == "query")
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert found
    assert {series["metric"][found[2]] for series in _answer(watched, found[1])} == {"mayfly"}
