"""The Helm chart: lint, a matrix of values against the schemas of Kubernetes, what values it refuses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from node.settings import NodeSettings, setting_keys

CHART: Final = Path(__file__).resolve().parent.parent.parent / "helm" / "mayfly"
WHY: Final = "is not installed (pip install --requirement requirements/deploy.txt)"
helm = pytest.importorskip("helm_python", reason=f"Helm's engine {WHY}")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=f"kubernetes-validate {WHY}")
yaml = pytest.importorskip("yaml", reason=f"PyYAML {WHY}")

VERSIONS: Final = ("1.34", "1.37")
# Kinds that come with operators: no schema of Kubernetes has them.
FOREIGN: Final = {"Certificate", "ServiceMonitor", "PrometheusRule"}
CERTIFICATES: Final = {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}}

MATRIX: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "one node, no disk": {
        "replicaCount": 1,
        "founders": 1,
        "persistence": {"enabled": False},
        "pdb": {"create": False},
    },
    "five": {"replicaCount": 5, "founders": 3, "persistence": {"storageClass": "fast", "size": "1Ti"}},
    "restored": {"founders": 0},
    "own secrets": {
        "auth": {"existingSecret": "login"},
        "tls": {
            "enabled": True,
            "existingSecret": "web",
            "verifyClients": True,
            "peers": {"enabled": True, "existingSecret": "mtls"},
        },
        "loadDefinition": {"enabled": True, "existingSecret": "definitions"},
        "extraEnvVarsSecret": "more",
    },
    "cert-manager": {"tls": {"enabled": True, "peers": {"enabled": True}, **CERTIFICATES}},
    "watched": {
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "namespace": "monitoring"},
            "dashboard": {"enabled": True},
        }
    },
    "outside": {
        "service": {
            "type": "LoadBalancer",
            "annotations": {"a/b": "c"},
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "nodePorts": {"amqp": 30672},
        },
        "networkPolicy": {
            "clientPodLabels": {"amqp": "client"},
            "extraClients": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}],
        },
    },
    "placed": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "broker", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"x": "y"},
        "podLabels": {"team": "a"},
        "commonLabels": {"env": "prod"},
        "commonAnnotations": {"owner": "me"},
        "image": {"registry": "registry.local:5000", "tag": "1", "pullSecrets": ["pull"]},
        "extraEnvVars": [{"name": "MAYFLY_LOG_LEVEL", "value": "debug"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "settings": {"disk_free_limit_bytes": "256 MiB", "tick_ms": 20},
        "livenessProbe": {"enabled": False},
        "topologySpreadConstraints": [],
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "mine"},
        "networkPolicy": {"enabled": False},
        "fullnameOverride": "broker",
    },
}

OLD_VALUES: Final = {"spareTimeoutSeconds": None, "drainTimeoutSeconds": None}
"""As `helm upgrade --reuse-values` has them: what is new in the chart is missing."""
NO_WAITING: Final = {"spareTimeoutSeconds": 0, "drainTimeoutSeconds": 0}

REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "fewer than begin": ({"replicaCount": 2}, "founders=2"),
    "a text for a number": ({"replicaCount": "three"}, "replicaCount"),
    "a wrong name": ({"persistance": {"enabled": True}}, "persistance"),
    "a wrong name inside": ({"tls": {"enable": True}}, "enable"),
    "a wrong service": ({"service": {"type": "Nodeport"}}, "type"),
    "TLS without files": ({"tls": {"enabled": True}}, "tls.existingSecret"),
    "TLS of peers without files": ({"tls": {"peers": {"enabled": True}}}, "tls.peers.existingSecret"),
    "cert-manager without an issuer": ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, "issuerRef.name"),
    "definitions without a secret": ({"loadDefinition": {"enabled": True}}, "loadDefinition.existingSecret"),
    "a pod that waits longer than it may": ({"terminationGracePeriodSeconds": 300}, "spareTimeoutSeconds"),
    "a domain of nothing": ({"clusterDomain": ""}, "clusterDomain"),
    "a duration in days": ({"tls": {"certManager": {"duration": "90d"}}}, "duration"),
    "a size of nothing": ({"persistence": {"size": "big"}}, "size"),
}


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(CHART) as loaded:
        yield loaded


def rendered(chart: Any, values: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    """All objects, with the name of a release `mq` in `prod`."""
    chart.validate_schema(values)
    how.setdefault("is_install", True)
    texts = chart.render(values, name="mq", namespace="prod", **how)
    return [
        each
        for path, text in texts.items()
        if not path.endswith("NOTES.txt")
        for each in yaml.safe_load_all(text)
        if each is not None
    ]


def only(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The object of that kind, and of that name if there are several."""
    found = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The template of the nodes' pods."""
    template: dict[str, Any] = only(objects, "StatefulSet")["spec"]["template"]
    return template


@pytest.mark.parametrize("name", MATRIX)
def test_lint_finds_nothing(name: str) -> None:
    for version in VERSIONS:
        report = helm.lint(CHART, MATRIX[name], strict=True, kube_version=f"v{version}.0")
        assert report["errors"] == []
        assert [message for message in report["messages"] if message["severity"] > 1] == []


@pytest.mark.parametrize("name", MATRIX)
def test_objects_fit_the_schemas_of_kubernetes(chart: Any, name: str) -> None:
    objects = rendered(chart, MATRIX[name])
    assert len(objects) >= 5
    for version in VERSIONS:
        for each in objects:
            if each["kind"] not in FOREIGN:
                kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", MATRIX)
def test_selectors_find_the_pods_and_nothing_else(chart: Any, name: str) -> None:
    objects = rendered(chart, MATRIX[name])
    nodes = pod_of(objects)["metadata"]["labels"]
    helpers = [each["metadata"]["labels"] for each in objects if each["kind"] == "Pod"]
    helpers += [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "Job"]
    assert helpers
    selectors = [each["spec"]["selector"] for each in objects if each["kind"] == "Service"]
    selectors += [only(objects, "StatefulSet")["spec"]["selector"]["matchLabels"]]
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for each in objects:
            if each["kind"] == kind:
                selectors.append(
                    each["spec"]["selector" if "selector" in each["spec"] else "podSelector"]["matchLabels"]
                )
    for selector in selectors:
        assert selector.items() <= nodes.items()
        assert not any(selector.items() <= labels.items() for labels in helpers)
    for each in objects:
        if each["kind"] == "ServiceMonitor":
            labels = only(objects, "Service", "mq-mayfly")["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert (
                "app.kubernetes.io/component"
                not in only(objects, "Service", "mq-mayfly-headless")["metadata"]["labels"]
            )


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_values_are_refused_by_name(chart: Any, name: str) -> None:
    values, word = REFUSED[name]
    with pytest.raises(helm.HelmError) as error:
        rendered(chart, values)
    assert word in str(error.value)


def test_every_default_is_in_the_schema(chart: Any) -> None:
    """A new value without a rule would be refused, because unknown names are."""
    chart.validate_schema(chart.values)
    assert chart.schema["additionalProperties"] is False


def test_pods_start_together_and_go_one_by_one(chart: Any) -> None:
    objects = rendered(chart, {})
    spec = only(objects, "StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    headless = only(objects, "Service", "mq-mayfly-headless")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert spec["serviceName"] == "mq-mayfly-headless"


def test_no_majority_is_asked_for_by_liveness(chart: Any) -> None:
    container = pod_of(rendered(chart, {}))["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["startupProbe"]["httpGet"]["path"] == "/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1] == "stop"


def test_the_template_of_pods_does_not_change_with_their_number(chart: Any) -> None:
    """Else growing would restart every node."""
    three, five = (pod_of(rendered(chart, {"replicaCount": number})) for number in (3, 5))
    assert three == five


def test_old_clusters_get_the_disruption_budget_they_know(chart: Any) -> None:
    text = next(each["data"] for each in chart.templates if each["name"].endswith("poddisruptionbudget.yaml"))
    assert 'ternary "policy/v1" "policy/v1beta1" (.Capabilities.APIVersions.Has "policy/v1")' in (
        base64.b64decode(text).decode() if "policy" not in text else text
    )


@pytest.mark.parametrize("name", MATRIX)
def test_what_nodes_are_told_are_settings(chart: Any, name: str) -> None:
    """A node refuses to start with a name of its environment that it does not know."""
    pod = pod_of(rendered(chart, MATRIX[name]))["spec"]
    told = {each["name"] for each in pod["containers"][0]["env"] if each["name"].startswith("MAYFLY_")}
    assert told - {"MAYFLY_PASSWORD"} <= {f"MAYFLY_{key.upper()}" for key in setting_keys()}
    assert pod["enableServiceLinks"] is False


def test_the_pods_script_is_told_what_it_looks_for(chart: Any) -> None:
    told = {each["name"] for each in pod_of(rendered(chart, {}))["spec"]["containers"][0]["env"]}
    looked_for = set(re.findall(r'"(CHART_\w+)"', (CHART / "files" / "lifecycle.py").read_text()))
    assert {name for name in told if name.startswith("CHART_")} == looked_for - {"CHART_VOLUME"}


@pytest.mark.parametrize(
    ("values", "times"),
    [
        ({}, {"duration": "2160h", "renewBefore": "720h"}),
        ({"duration": "1h30m"}, {"duration": "1h30m", "renewBefore": "720h"}),
        ({"renewBefore": ""}, {"duration": "2160h"}),
        ({"duration": "", "renewBefore": ""}, {}),
    ],
)
def test_a_time_of_certificates_that_is_empty_is_left_to_cert_manager(
    chart: Any, values: dict[str, str], times: dict[str, str]
) -> None:
    objects = rendered(chart, {"tls": {"enabled": True, "certManager": {**CERTIFICATES["certManager"], **values}}})
    spec = only(objects, "Certificate")["spec"]
    assert {name: spec[name] for name in ("duration", "renewBefore") if name in spec} == times


@pytest.mark.parametrize(
    ("values", "times"), [({}, ("60", "300")), (OLD_VALUES, ("60", "300")), (NO_WAITING, ("0", "0"))]
)
def test_how_long_a_pod_waits(chart: Any, values: dict[str, Any], times: tuple[str, str]) -> None:
    container = pod_of(rendered(chart, values, is_install=False, is_upgrade=True))["spec"]["containers"][0]
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert (told["CHART_DRAIN_TIMEOUT_S"], told["CHART_SPARE_TIMEOUT_S"]) == times


def test_passwords_are_in_secrets_alone(chart: Any) -> None:
    for each in rendered(chart, {"auth": {"password": "hunter2"}}):
        if each["kind"] == "Secret":
            assert base64.b64decode(each["data"]["password"]) == b"hunter2"
        else:
            assert "hunter2" not in json.dumps(each)


def test_only_nodes_reach_the_ports_of_peers(chart: Any) -> None:
    rules = only(rendered(chart, MATRIX["outside"]), "NetworkPolicy")["spec"]["ingress"]
    for rule in rules:
        if {"peers", "frames"} & {port["port"] for port in rule["ports"]}:
            nodes = {"app.kubernetes.io/name": "mayfly", "app.kubernetes.io/instance": "mq"}
            assert rule["from"] == [{"podSelector": {"matchLabels": nodes}}]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {"peers", "frames", "http", "amqp"}


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        ({}, []),
        ({"persistence": {"enabled": False}}, ["persistence is off"]),
        ({"rbac": {"create": False}}, ["without rbac.create"]),
    ],
)
def test_notes_warn_of_what_is_off(chart: Any, values: dict[str, Any], warnings: list[str]) -> None:
    texts = chart.render(values, name="mq", namespace="prod", is_install=True)
    notes = next(text for path, text in texts.items() if path.endswith("NOTES.txt"))
    found = re.findall(r"^WARNING: (.*)$", notes, re.MULTILINE)
    assert [said[: len(warning)] for said, warning in zip(found, warnings, strict=True)] == warnings


def test_defaults_are_the_nodes_own(chart: Any) -> None:
    settings = NodeSettings()
    assert chart.values["shards"] == settings.shards
    assert chart.values["replicationFactor"] == settings.replication_factor
