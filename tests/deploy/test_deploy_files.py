"""The image, the compose file, the dashboard and the unit say what the product does."""

import configparser
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from mayfly.node.command_line.processes import patience_s
from mayfly.node.local_nodes import exit_codes
from mayfly.node.settings import NodeSettings, setting_keys
from mayfly.node.version import VERSION
from tests.deploy import needed
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DEPLOY: Final = ROOT / "deploy"
CHART: Final = ROOT / "helm" / "mayfly"
METRIC: Final = re.compile(r"\b(mayfly_[a-z_]+|process_[a-z_]+)\b")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`/metrics` of a node."""
    nodes = Nodes(tmp_path_factory.mktemp("node"), 1)
    try:
        nodes.start()
        nodes.until_serving()
        with urlopen(f"http://{nodes.plan(1).http}/metrics", timeout=BOUND_S) as answer:
            yield answer.read().decode()
    finally:
        nodes.stop()


def names_on(page: str) -> set[str]:
    """What queries may ask for: families, and the samples that counters and histograms make of them."""
    names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE):
        names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    return names


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """All queries of a dashboard."""
    queries = [
        variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"
    ]
    return queries + [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.processes
def test_every_metric_of_the_dashboard_is_on_the_page(page: str) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "mayfly.json").read_text())
    used = {name for expression in expressions(dashboard) for name in METRIC.findall(expression)}
    assert used - names_on(page) == set()
    # Messages, expiry lag, leases, outbox, Raft, fsync.
    for topic in ("enqueued_total", "expiry_lag_seconds_bucket", "lease_timers", "outbox", "raft_term", "log_sync"):
        assert any(topic in name for name in used), topic


@pytest.mark.processes
def test_every_metric_of_an_alert_is_on_the_page(page: str) -> None:
    rules = (DEPLOY / "alerts.yaml").read_text()
    used = set(METRIC.findall(rules))
    assert used
    assert used - names_on(page) == set()


@pytest.mark.processes
def test_syncs_are_counted(page: str) -> None:
    count = re.search(r"^mayfly_log_sync_seconds_count (\S+)$", page, re.MULTILINE)
    assert count and float(count[1]) > 0


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads((DEPLOY / "grafana" / "mayfly.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_settings_in_the_files_are_settings_of_a_node() -> None:
    known = {f"MAYFLY_{key.upper()}" for key in setting_keys()} | {"MAYFLY_PURE"}
    for name in ("Dockerfile", "mayfly.service"):
        found = set(re.findall(r"\bMAYFLY_[A-Z_]+\b", (DEPLOY / name).read_text()))
        assert found - known == set(), name
    keys = set(re.findall(r"^ +(MAYFLY_[A-Z_]+):", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE))
    assert {"MAYFLY_SEEDS", "MAYFLY_ADVERTISED_PEER_ADDRESS"} <= keys <= known


def test_the_compose_file_has_three_nodes_that_know_each_other_and_what_watches_them() -> None:
    yaml = needed.module("yaml", "PyYAML")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    nodes = {name: service for name, service in compose["services"].items() if name.startswith("node")}
    assert len(nodes) == 3
    seeds = [f"{name}:25672" for name in nodes]
    for name, service in nodes.items():
        assert service["environment"]["MAYFLY_SEEDS"].split(",") == seeds
        assert service["environment"]["MAYFLY_ADVERTISED_PEER_ADDRESS"] == f"{name}:25672"
        assert service["read_only"] is True
    assert {"prometheus", "grafana"} <= compose["services"].keys()
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"]
    scrapes = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    assert all(service["restart"] == "unless-stopped" for service in compose["services"].values())
    assert scrapes[0]["static_configs"][0]["targets"] == [f"{name}:15672" for name in nodes]


def test_the_image_is_not_root_and_takes_any_base() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert "ARG BASE_IMAGE=python:3.12-slim" in text
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE_IMAGE}"}
    assert "USER 10001:10001" in text
    assert "HEALTHCHECK" in text
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="\$\{(\w+)\}"', text))
    assert labels == {
        "version": "VERSION", "revision": "REVISION", "created": "CREATED", "source": "SOURCE",
    }  # fmt: skip
    given = set(re.findall(r"--build-arg (\w+)=", (DEPLOY / "build-image").read_text()))
    assert set(labels.values()) <= given <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    assert f"ARG VERSION={VERSION}\n" in text
    assert "# syntax" not in text


def test_the_unit_keeps_what_the_node_promises_service_managers() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "mayfly.service")
    service = unit["Service"]
    # The node says nothing to systemd.
    assert service["Type"] == "exec"
    assert service["RestartPreventExitStatus"] == str(exit_codes.REFUSED)
    assert int(service["TimeoutStopSec"]) >= patience_s(NodeSettings()) + 5
    assert service["KillMode"] == "mixed"


def test_the_charts_default_image_is_what_is_built() -> None:
    """`make image` makes mayfly:VERSION; the chart asks for that of its appVersion."""
    chart = (CHART / "Chart.yaml").read_text()
    assert f'appVersion: "{VERSION}"' in chart
    assert 'tags+=(--tag "mayfly:$version")' in (DEPLOY / "build-image").read_text()
    words = ["sed", "-n", r's/^VERSION[^"]*"\(.*\)".*/\1/p', str(ROOT / "node" / "version.py")]
    assert words[2] in (DEPLOY / "build-image").read_text()
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"{VERSION}\n"


def test_what_is_missing_fails_where_it_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    for demanded, outcome in (("", pytest.skip.Exception), ("1", pytest.fail.Exception)):
        monkeypatch.setenv("DEPLOY_DEMAND_TOOLS", demanded)
        with pytest.raises(outcome, match="requirements/deploy"):
            needed.module("no_such_module", "That")
        with pytest.raises(outcome, match="apt-get install no-such-package"):
            needed.program("no-such-program", "no-such-package")
    assert "DEPLOY_DEMAND_TOOLS=1" in (ROOT / ".ci" / "run").read_text()


def test_tools_that_could_not_be_installed_are_tried_again(tmp_path: Path) -> None:
    """`make .venv/.deploy` with a pip that fails makes no file, and one that succeeds does."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "deploy.txt").touch()
    for name in ("lock.txt", "runtime.txt"):
        (tmp_path / "requirements" / name).touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".environment").touch()
    made = tmp_path / ".venv" / ".deploy"
    for pip, succeeds in (("false", False), ("true", True)):
        words = ["make", "--file", str(ROOT / "Makefile"), "--old-file", ".venv/.environment", f"PIP={pip}"]
        done = subprocess.run([*words, ".venv/.deploy"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert made.exists() == succeeds
        assert ("Without the tests" in done.stderr) == (not succeeds)
