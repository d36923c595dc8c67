"""A real Prometheus takes the configuration, the rules and every query of the dashboard, and nodes give it answers.

Takes Debian's package `prometheus`, which has both programs; without them these tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pika
import pytest

from tests.deploy import needed
from tests.deploy.rabbitmq_dashboards import DASHBOARDS, UNANSWERED
from tests.integration.clients import connect
from tests.integration.nodes import Nodes, wait_for
from tests.waiting import BOUND_S

DEPLOY: Final = Path(__file__).resolve().parent.parent.parent / "deploy"
CHART: Final = DEPLOY.parent / "helm" / "mayfly"
DASHBOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "mayfly.json").read_text())
WITHIN_S: Final = BOUND_S
for program in ("prometheus", "promtool"):
    needed.program(program, "prometheus")
yaml = needed.module("yaml", "PyYAML")


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


# By alert: the series that raises it (`OF` stands for the labels of a node), and its values in steps of 30 s: 21 in
# which all is well, then 20 of the trouble.
TROUBLES: Final = {
    "MayflyNoLeader": [('mayfly_raft_leader{OF, group="1"}', "1x20 0x20")],
    "MayflyNotScraped": [("up{OF}", "1x20 0x20")],
    "MayflyMemberDown": [("mayfly_members_down{OF}", "0x20 2x20")],
    "MayflyPeersUnprotected": [("mayfly_peers_unprotected{OF}", "0x20 1x20")],
    "MayflyPeerDamaged": [('mayfly_peer_damaged_total{OF, peer="2"}', "4x20 5+1x20")],
    "MayflyDiskAlarm": [("mayfly_disk_alarm{OF}", "0x20 1x20")],
    "MayflyMemoryAlarm": [("mayfly_memory_alarm{OF}", "0x20 1x20")],
    "MayflyPublishersBlocked": [("mayfly_publishers_blocked{OF}", "0x20 1x20")],
    "MayflyExpiryLag": [("mayfly_expiry_lag_ms{OF}", "900x20 1100x20")],
    # Of 10 messages a step, all are 1 s late at most; then half are 2.5 s late.
    "MayflyDueLag": [
        ('mayfly_due_lag_seconds_bucket{OF, le="1.0"}', "0+10x20 205+5x20"),
        ('mayfly_due_lag_seconds_bucket{OF, le="2.5"}', "0+10x20 210+10x20"),
        ('mayfly_due_lag_seconds_bucket{OF, le="+Inf"}', "0+10x20 210+10x20"),
    ],
    "MayflyClockAhead": [("mayfly_clock_excess_ms{OF}", "0x20 3x20")],
    "MayflyClockRefusals": [("mayfly_clock_refusals_total{OF}", "4x20 5+1x20")],
    "MayflyDeadLettersWait": [("mayfly_lane_oldest_seconds{OF}", "9x20 11x20")],
    # A lane that moves has no such series.
    "MayflyLaneStands": [('mayfly_lane_waits{OF, vhost="/", queue="q", waits_for="room"}', "_x20 1x20")],
    "MayflyDeadLettersUndecided": [("mayfly_unrouted_oldest_seconds{OF}", "4x20 6x20")],
    "MayflyDeadLettersParked": [("mayfly_parked_oldest_seconds{OF}", "500x20 700x20")],
    "MayflyQueueOnBrake": [('mayfly_brake_on{OF, vhost="/", queue="q"}', "_x20 1x20")],
    # Of 10 syncs a step, all take 0.1 s at most; then half take 0.2 s.
    "MayflySlowDisk": [
        ('mayfly_log_sync_seconds_bucket{OF, le="0.1"}', "0+10x20 205+5x20"),
        ('mayfly_log_sync_seconds_bucket{OF, le="0.2"}', "0+10x20 210+10x20"),
        ('mayfly_log_sync_seconds_bucket{OF, le="+Inf"}', "0+10x20 210+10x20"),
    ],
}
OURS: Final = {
    "chart": {"namespace": "prod", "pod": "mq-mayfly-0"},
    "deploy": {"job": "mayfly", "instance": "node1:15672"},
}
# Another release's, or another job's, is none of ours.
STRANGERS: Final = {"chart": 'namespace="prod", pod="other-mayfly-0"', "deploy": 'job="other", instance="a:1"'}


Alerts = list[tuple[str, str, list[dict[str, Any]]]]
"""When, of which alert, and what is raised then."""


def rules_of(place: str) -> dict[str, Any]:
    """The rules for Prometheus: those of the chart as Helm makes them, or those of deploy/."""
    if place == "deploy":
        rules: dict[str, Any] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
        return rules
    helm = needed.module("helm_python", "Helm's engine")
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="mq", namespace="prod", is_install=True)
    text = next(text for path, text in texts.items() if path.endswith("prometheusrule.yaml"))
    return {"groups": yaml.safe_load(text)["spec"]["groups"]}


@pytest.mark.parametrize("place", OURS)
def test_alerts_are_raised_when_they_should_and_not_before(tmp_path: Path, place: str) -> None:
    """On series made up: well for ten minutes, then ten of each trouble; and none but a stranger's."""
    content = rules_of(place)
    rules = {rule["alert"]: rule for rule in content["groups"][0]["rules"]}
    assert set(rules) == set(TROUBLES) | {"MayflyNothingToldOf"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(content))
    assert f"{len(rules)} rules" in promtool("check", "rules", str(tmp_path / "rules.yaml"))
    of = ", ".join(f'{name}="{value}"' for name, value in OURS[place].items())
    series = [(name.replace("OF", of), values) for each in TROUBLES.values() for name, values in each]
    series.append((f"mayfly_disk_alarm{{{STRANGERS[place]}}}", "1x40"))
    stranger = [(f'mayfly_raft_leader{{{STRANGERS[place]}, group="1"}}', "1x40")]
    raised = [("20m", name, [_expected(rules[name], place)]) for name in TROUBLES]
    quiet: Alerts = [("10m", str(name), []) for name in rules]
    quiet.append(("20m", "MayflyNothingToldOf", []))
    absent: Alerts = [("30s", "MayflyNothingToldOf", [])]
    absent.append(("5m", "MayflyNothingToldOf", [_expected_absent(rules, place)]))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "30s",
        "tests": [_played(series, quiet + raised), _played(stranger, absent)],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(tmp_path / "tests.yaml"))


def _played(series: list[tuple[str, str]], alerts: Alerts) -> dict[str, Any]:
    return {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": [
            {"eval_time": time, "alertname": name, "exp_alerts": expected} for time, name, expected in alerts
        ],
    }


_KEPT: Final[dict[str, dict[str, str] | tuple[str, ...]]] = {
    "MayflyNoLeader": {"group": "1"},
    "MayflyMemberDown": {},
    "MayflyPublishersBlocked": {},
    "MayflyExpiryLag": ("pod", "instance"),
    "MayflyDueLag": {},
    "MayflySlowDisk": ("pod", "instance"),
    "MayflyPeerDamaged": ("pod", "instance"),
    "MayflyDeadLettersWait": {},
    "MayflyLaneStands": {"vhost": "/", "queue": "q", "waits_for": "room"},
    "MayflyDeadLettersUndecided": {},
    "MayflyDeadLettersParked": {},
    "MayflyQueueOnBrake": {"vhost": "/", "queue": "q"},
}
"""Labels that are left of the series, or names of those of the node. Of alerts not named here: all."""


def _expected(rule: dict[str, Any], place: str) -> dict[str, Any]:
    kept = _KEPT.get(rule["alert"], tuple(OURS[place]))
    own = kept if isinstance(kept, dict) else {name: text for name, text in OURS[place].items() if name in kept}
    return {"exp_labels": own | rule["labels"], "exp_annotations": _notes(rule, own)}


def _expected_absent(rules: dict[str, Any], place: str) -> dict[str, Any]:
    """It has the labels that were asked for by name."""
    rule = rules["MayflyNothingToldOf"]
    asked = {name: text for name, text in OURS[place].items() if name in ("namespace", "job")}
    return {"exp_labels": asked | rule["labels"], "exp_annotations": _notes(rule, asked)}


def _notes(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, str]:
    put_in = {f"$labels.{name}": text for name, text in labels.items()} | {"$value": "2"}
    return {
        name: re.sub(r"\{\{ (\S+) \}\}", lambda found: put_in[found[1]], text)
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
        configuration["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
        targets = configuration["scrape_configs"][0]["static_configs"][0]["targets"]
        targets[:] = [str(nodes.plan(id).http) for id in nodes.ids]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        shutil.copy(DEPLOY / "alerts.yaml", folder)
        # Ours as those of the nodes are, and behind them.
        last = nodes.plans[-1].http
        address = f"{last.host}:{last.port + 1}"
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
    with connect(nodes, 1) as connection:
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
    with connect(nodes, 1) as connection:
        channel = connection.channel()
        channel.queue_declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"}
        channel.queue_declare("waiting", durable=True, arguments=dead)
        for name in ("full", "waiting"):
            channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))


def _answer(address: str, query: str) -> list[dict[str, Any]]:
    """The series of an answer; none if there is no server yet, or it still reads its data. Raises HTTPError if it does
    not take the query."""
    try:
        with urlopen(f"http://{address}/api/v1/query?{urlencode({'query': query})}", timeout=WITHIN_S) as page:
            answer = json.load(page)
    except ConnectionError:
        return []
    except HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            return []
        raise
    except URLError as error:
        if isinstance(error.reason, ConnectionError):
            return []
        raise
    assert answer["status"] == "success", answer
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


@pytest.mark.processes
def test_the_rules_are_loaded_and_nothing_is_wrong_with_nodes_that_are_well(watched: str) -> None:
    """But for the dead letter that stands still on purpose, and a disk that may be slow. What a busy machine kept nodes
    from for a moment passes, after the five minutes at most that rules look back."""
    assert set(_rules(watched)) == set(TROUBLES) | {"MayflyNothingToldOf"}
    on_purpose = {"MayflyLaneStands", "MayflyDeadLettersWait"}

    def well() -> bool:
        raised = {name for name, state in _rules(watched).items() if state != "inactive"} - {"MayflySlowDisk"}
        return "MayflyLaneStands" in raised <= on_purpose

    wait_for(well, "alerts of the dead letter that stands still, and no others", 2 * WITHIN_S, 0.2)


def _rules(address: str) -> dict[str, str]:
    """By name of the alert: whether it is raised."""
    with urlopen(f"http://{address}/api/v1/rules", timeout=WITHIN_S) as page:
        (group,) = json.load(page)["data"]["groups"]
    return {rule["name"]: rule["state"] for rule in group["rules"]}


@pytest.mark.processes
def test_every_query_of_the_dashboard_has_an_answer(watched: str) -> None:
    for query in queries():
        wait_for(partial(_answer, watched, query), f"an answer to {query}", WITHIN_S, 0.2)


@pytest.mark.processes
@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_the_queries_of_rabbitmqs_dashboards_have_answers(watched: str, dashboard: str) -> None:
    """As they are joined there: by the node's identity, of one page of metrics."""
    identity = 'rabbitmq_identity_info{rabbitmq_cluster="mayfly", rabbitmq_endpoint="aggregated", namespace=""}'
    for name in sorted({name for query in DASHBOARDS[dashboard] for name in query} - UNANSWERED):
        query = f"rabbitmq_{name} * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) {identity}"
        wait_for(partial(_answer, watched, query), f"an answer to {query}", WITHIN_S, 0.2)


@pytest.mark.processes
def test_the_variable_of_the_dashboard_finds_the_job(watched: str) -> None:
    (variable,) = (each for each in DASHBOARD["templating"]["list"] if each["type"] == "query")
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert found

    def jobs() -> set[str]:
        return {series["metric"][found[2]] for series in _answer(watched, found[1])}

    # A scrape that came too late took its series with it until the next one.
    wait_for(jobs, "series of the job", WITHIN_S, 0.2)
    assert jobs() <= {"mayfly"}
