"""The Helm chart: lint, a matrix of values against the schemas of Kubernetes, what values it refuses."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mayfly.node.settings import NodeSettings, setting_keys
from tests.deploy import needed

CHART: Final = Path(__file__).resolve().parent.parent.parent / "helm" / "mayfly"
helm = needed.module("helm_python", "Helm's engine")
kubernetes_validate = needed.module("kubernetes_validate", "kubernetes-validate")
yaml = needed.module("yaml", "PyYAML")

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
    "TLS beside": {
        "tls": {"enabled": True, "listen": "beside", **CERTIFICATES},
        "service": {"type": "NodePort", "nodePorts": {"amqp": 30672, "amqps": 30671}},
    },
    "TLS only": {"tls": {"enabled": True, "listen": "only", **CERTIFICATES}},
    "TLS only, at the port that was plain": {
        "tls": {"enabled": True, "listen": "only", **CERTIFICATES},
        "service": {"ports": {"amqp": 5672, "amqps": 5672}},
    },
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
            "extraHttpClients": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
    },
    "in a parent chart": {
        "enabled": True,
        "global": {
            "imageRegistry": "registry.example",
            "imagePullSecrets": ["all", {"name": "of-all"}],
            "storageClass": "everywhere",
            "other": {"of": "the parent"},
        },
        "initContainers": [{"name": "first", "image": "busybox", "command": ["true"]}],
        "sidecars": [{"name": "beside", "image": "busybox", "command": ["sleep", "infinity"]}],
        "extraEnvVarsCM": "more",
        "extraEnvVarsSecret": "secret",
        "pdb": {"minAvailable": "51%"},
        "persistentVolumeClaimRetentionPolicy": {"enabled": True, "whenScaled": "Delete", "whenDeleted": "Retain"},
        "failureDomainFromLabel": "topology.kubernetes.io/zone",
        "loadDefinition": {"enabled": True, "existingSecret": "definitions"},
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
    "a port for TLS alone": ({"tls": {"listen": "beside"}}, "tls.listen=beside takes tls.enabled"),
    "TLS somewhere": ({"tls": {"enabled": True, "existingSecret": "web", "listen": "both"}}, "listen"),
    "an address that is closed": (
        {"tls": {"enabled": True, "existingSecret": "web", "listen": "only"}, "settings": {"amqp_address": "x:1"}},
        "use tls.listen",
    ),
    "one port for plain and TLS": (
        {
            "tls": {"enabled": True, "existingSecret": "web", "listen": "beside"},
            "service": {"ports": {"amqp": 5671, "amqps": 5671}},
        },
        "service.ports.amqp and service.ports.amqps are both 5671: each takes a port of its own",
    ),
    "one port for AMQP and HTTP": (
        {"service": {"ports": {"amqp": 15672}}},
        "service.ports.amqp and service.ports.http are both 15672: each takes a port of its own",
    ),
    "TLS of peers without files": ({"tls": {"peers": {"enabled": True}}}, "tls.peers.existingSecret"),
    "cert-manager without an issuer": ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, "issuerRef.name"),
    "definitions without a secret": ({"loadDefinition": {"enabled": True}}, "loadDefinition.existingSecret"),
    "a pod that waits longer than it may": ({"terminationGracePeriodSeconds": 300}, "spareTimeoutSeconds"),
    "a domain of nothing": ({"clusterDomain": ""}, "clusterDomain"),
    "a duration in days": ({"tls": {"certManager": {"duration": "90d"}}}, "duration"),
    "a size of nothing": ({"persistence": {"size": "big"}}, "size"),
    "a setting that is a value": ({"settings": {"shards": 8}}, "settings.shards: the chart sets that itself"),
    "a setting of the pod": ({"settings": {"data_dir": "/x"}}, "settings.data_dir"),
    "pages for other pods": ({"settings": {"http_open_pages": "none"}}, "use networkPolicy"),
    "a domain twice": ({"settings": {"failure_domain": "a"}}, "use failureDomainFromNode=false"),
    "a certificate twice": (
        {"settings": {"amqp_tls_key": "/x"}, "tls": {"enabled": True, "existingSecret": "web"}}, "tls.existingSecret",
    ),
    "a variable that is a value": (
        {"extraEnvVars": [{"name": "MAYFLY_DEFAULT_PASS", "value": "x"}]},
        "MAYFLY_DEFAULT_PASS itself; use auth.password",
    ),
    "a setting and a variable": (
        {"settings": {"tick_ms": 20}, "extraEnvVars": [{"name": "MAYFLY_TICK_MS", "value": "10"}]},
        "settings.tick_ms too",
    ),
    "a port for HTTP alone": (
        {"service": {"type": "NodePort", "nodePorts": {"http": 31672}}}, "service.publishHttp",
    ),
    "switched off without a parent": ({"enabled": False}, "condition: mayfly.enabled"),
    "a volume that is kept sometimes": (
        {"persistentVolumeClaimRetentionPolicy": {"enabled": True, "whenScaled": "Keep"}}, "whenScaled",
    ),
    "a sidecar without an image": ({"sidecars": [{"name": "x"}]}, "sidecars"),
    "a registry that is none": ({"global": {"imageRegistry": ["x"]}}, "imageRegistry"),
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
            labels = only(objects, "Service", "mq-mayfly-http")["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
            others = [only(objects, "Service", name) for name in ("mq-mayfly", "mq-mayfly-headless")]
            components = {service["metadata"]["labels"].get("app.kubernetes.io/component") for service in others}
            assert components == {"client", None}


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
    values = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert values["MAYFLY_HTTP_OPEN_PAGES"] == "all", "Prometheus and the hooks of other pods have no login"


def test_the_pods_script_is_told_what_it_looks_for(chart: Any) -> None:
    values = {"failureDomainFromLabel": "topology.kubernetes.io/zone"}
    told = {each["name"] for each in pod_of(rendered(chart, values))["spec"]["containers"][0]["env"]}
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
    objects = rendered(chart, {"auth": {"password": "hunter2"}, "clusterSecret": {"value": "hunters'-own-secret"}})
    assert base64.b64decode(only(objects, "Secret", "mq-mayfly")["data"]["password"]) == b"hunter2"
    assert base64.b64decode(only(objects, "Secret", "mq-mayfly-cluster")["data"]["secret"]) == b"hunters'-own-secret"
    for each in objects:
        assert each["kind"] == "Secret" or "hunter" not in json.dumps(each)


def test_only_nodes_reach_the_ports_of_peers(chart: Any) -> None:
    rules = only(rendered(chart, MATRIX["outside"]), "NetworkPolicy")["spec"]["ingress"]
    for rule in rules:
        if {"peers", "frames"} & {port["port"] for port in rule["ports"]}:
            nodes = {"app.kubernetes.io/name": "mayfly", "app.kubernetes.io/instance": "mq"}
            assert rule["from"] == [{"podSelector": {"matchLabels": nodes}}]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {"peers", "frames", "http", "amqp"}


@pytest.mark.parametrize(
    ("tls", "ports", "told"),
    [
        ({}, {"amqp": ("amqp", 5672)}, (None, None)),
        ({"enabled": True, "listen": None}, {"amqps": ("amqp", 5672)}, (None, None)),
        ({"enabled": True}, {"amqps": ("amqp", 5672)}, (None, None)),
        (
            {"enabled": True, "listen": "beside"}, {"amqp": ("amqp", 5672), "amqps": ("amqps", 5671)},
            (None, "0.0.0.0:5671"),
        ),
        (
            {"enabled": True, "listen": "only"}, {"amqps": ("amqps", 5671)}, ("127.0.0.1:5672", "0.0.0.0:5671"),
        ),
    ],
)  # fmt: skip
def test_where_clients_find_tls(
    chart: Any, tls: dict[str, Any], ports: dict[str, tuple[str, int]], told: tuple[str | None, str | None]
) -> None:
    """In the services, the pod, the network policy, what the node is told, and what `helm test` asks."""
    objects = rendered(chart, {"tls": {"existingSecret": "web", **tls}}, is_install=False, is_upgrade=True)
    inside = {each["name"]: each["containerPort"] for each in pod_of(objects)["spec"]["containers"][0]["ports"]}
    for service in ("mq-mayfly", "mq-mayfly-headless"):
        found = {each["name"]: each for each in only(objects, "Service", service)["spec"]["ports"]}
        assert {name: (found[name]["targetPort"], found[name]["port"]) for name in found if "amqp" in name} == ports
    assert {name: inside[name] for name in inside if "amqp" in name} == dict(ports.values())
    rules = only(objects, "NetworkPolicy")["spec"]["ingress"]
    allowed = {port["port"] for rule in rules for port in rule["ports"]}
    assert allowed - {"peers", "frames", "http"} == {target for target, _ in ports.values()}
    environment = {each["name"]: each.get("value") for each in pod_of(objects)["spec"]["containers"][0]["env"]}
    assert (environment.get("MAYFLY_AMQP_ADDRESS"), environment.get("MAYFLY_AMQP_TLS_ADDRESS")) == told
    command = only(objects, "Pod")["spec"]["containers"][0]["command"]
    assert command[4] == f"mq-mayfly:{max(ports.items())[1][1]}"


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        ({}, []),
        ({"persistence": {"enabled": False}}, ["persistence is off"]),
        ({"rbac": {"create": False}}, ["without rbac.create"]),
        ({"rbac": {"create": False}, "serviceAccount": {"automountServiceAccountToken": True}}, []),
        ({"service": {"type": "LoadBalancer"}}, []),
        ({"service": {"type": "LoadBalancer", "publishHttp": True}}, ["HTTP is published as LoadBalancer"]),
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


def test_the_login_outlives_the_release(chart: Any) -> None:
    """As the volumes do, whose broker knows it."""
    for values in ({}, {"commonAnnotations": {"owner": "me"}}):
        for name in ("mq-mayfly", "mq-mayfly-cluster"):
            annotations = only(rendered(chart, values), "Secret", name)["metadata"]["annotations"]
            assert annotations == {"helm.sh/resource-policy": "keep", **values.get("commonAnnotations", {})}


# --- the cluster secret ---------------------------------------------------------------------------------

OWN_SECRET: Final = {"clusterSecret": {"existingSecret": "mine"}}


def told_of_secret(chart: Any, values: dict[str, Any]) -> tuple[Any, str]:
    """Where the nodes have the cluster secret from, and whether they demand it."""
    told = {each["name"]: each for each in pod_of(rendered(chart, values))["spec"]["containers"][0]["env"]}
    return told["MAYFLY_CLUSTER_SECRET"]["valueFrom"], told["MAYFLY_CLUSTER_SECRET_DEMANDED"]["value"]


def test_nodes_are_given_a_secret_that_is_made_up_or_given(chart: Any) -> None:
    made = [base64.b64decode(only(rendered(chart, {}), "Secret", "mq-mayfly-cluster")["data"]["secret"]) for _ in "12"]
    assert made[0] != made[1]
    assert all(NodeSettings(cluster_secret=secret.decode()) and len(secret) >= 32 for secret in made)
    assert told_of_secret(chart, {}) == ({"secretKeyRef": {"name": "mq-mayfly-cluster", "key": "secret"}}, "true")
    assert told_of_secret(chart, OWN_SECRET) == ({"secretKeyRef": {"name": "mine", "key": "secret"}}, "true")
    names = [each["metadata"]["name"] for each in rendered(chart, OWN_SECRET) if each["kind"] == "Secret"]
    assert names == ["mq-mayfly"]


@pytest.mark.parametrize("demanded", [True, False])
def test_whether_it_is_demanded_can_be_told(chart: Any, demanded: bool) -> None:
    assert told_of_secret(chart, {"clusterSecret": {"demanded": demanded}})[1] == str(demanded).lower()


def test_values_of_a_chart_that_had_no_secret_do(chart: Any) -> None:
    """As `helm upgrade --reuse-values` has them."""
    assert told_of_secret(chart, {"clusterSecret": None})[1] == "true"


def with_lookup(folder: Path, kind: str, found: dict[str, Any]) -> Any:
    """The chart with what a look into the cluster finds written in its place: the renderer has no cluster."""
    shutil.copytree(CHART, folder / "mayfly")
    count = 0
    for path in (folder / "mayfly" / "templates").iterdir():
        if path.is_file():
            text, number = re.subn(
                rf'lookup "[\w/]+" "{kind}" \.Release\.Namespace (\$name|\(include "mayfly.fullname" \.\))',
                lambda _: f"fromJson `{json.dumps(found)}`", path.read_text(),
            )
            path.write_text(text)
            count += number
    assert count, f"nobody looks for a {kind}"
    return helm.Chart.load(folder / "mayfly")


@pytest.mark.parametrize(("runs_with", "demanded"), [("MAYFLY_CLUSTER_SECRET", "true"), ("MAYFLY_SHARDS", "false")])
def test_pods_without_a_secret_are_not_refused_by_those_that_get_one(
    runs_with: str, demanded: str, tmp_path: Path
) -> None:
    there = {"spec": {"template": {"spec": {"containers": [{"env": [{"name": runs_with}]}]}}}}
    with with_lookup(tmp_path, "StatefulSet", there) as chart:
        assert told_of_secret(chart, {})[1] == demanded


def test_an_upgrade_keeps_the_secret(tmp_path: Path) -> None:
    kept = {"data": {key: base64.b64encode(b"kept").decode() for key in ("password", "secret")}}
    with with_lookup(tmp_path, "Secret", kept) as chart:
        assert base64.b64decode(only(rendered(chart, {}), "Secret", "mq-mayfly-cluster")["data"]["secret"]) == b"kept"


def environment_of(chart: Any, values: dict[str, Any]) -> dict[str, str | None]:
    """What the node is told, by name; none twice."""
    told = pod_of(rendered(chart, values))["spec"]["containers"][0]["env"]
    assert len({each["name"] for each in told}) == len(told)
    return {each["name"]: each.get("value") for each in told}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (268435456, "268435456"), (2**53, "9007199254740992"), (1_000_000, "1000000"), (0, "0"), (20, "20"), (-1, "-1"),
        (0.5, "0.5"), (True, "true"), (False, "false"), ("256 MiB", "256 MiB"), ("0123", "0123"),
    ],
)  # fmt: skip
def test_settings_are_written_as_they_were_given(chart: Any, value: object, text: str) -> None:
    assert environment_of(chart, {"settings": {"disk_free_limit_bytes": value}})["MAYFLY_DISK_FREE_LIMIT_BYTES"] == text


def test_pods_that_help_run_where_nodes_may(chart: Any) -> None:
    values = {
        **MATRIX["placed"],
        "global": {"imagePullSecrets": ["all"]},
        "loadDefinition": {"enabled": True, "existingSecret": "definitions"},
        "helperResources": {"requests": None, "limits": {"memory": "99Mi"}},
    }
    objects = rendered(chart, values)
    node = pod_of(objects)["spec"]
    helpers = [only(objects, "Pod")["spec"], only(objects, "Job")["spec"]["template"]["spec"]]
    assert node["imagePullSecrets"] == [{"name": "all"}, {"name": "pull"}]
    for helper in helpers:
        for key in ("imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName", "securityContext"):
            assert helper[key] == node[key], key
        container = helper["containers"][0]
        assert container["image"] == node["containers"][0]["image"] == "registry.local:5000/mayfly:1"
        assert container["securityContext"] == node["containers"][0]["securityContext"]
        assert container["resources"] == {"limits": {"memory": "99Mi"}}
        assert helper["automountServiceAccountToken"] is False


def test_a_parent_charts_values_come_first(chart: Any) -> None:
    objects = rendered(chart, {**MATRIX["in a parent chart"], "image": {"registry": "mine", "pullSecrets": ["all"]}})
    spec = only(objects, "StatefulSet")["spec"]
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("registry.example/mayfly:")
    assert pod["imagePullSecrets"] == [{"name": "all"}, {"name": "of-all"}]
    assert [each["name"] for each in pod["containers"]] == ["mayfly", "beside"]
    assert [each["name"] for each in pod["initContainers"]] == ["first"]
    assert pod["containers"][0]["envFrom"] == [{"configMapRef": {"name": "more"}}, {"secretRef": {"name": "secret"}}]
    assert spec["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "everywhere"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Delete", "whenDeleted": "Retain"}
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], "maxUnavailable" in budget) == ("51%", False)
    by_default = rendered(chart, {"global": {"defaultStorageClass": "usual"}, "persistence": {"storageClass": "fast"}})
    claim = only(by_default, "StatefulSet")["spec"]["volumeClaimTemplates"][0]["spec"]
    assert claim["storageClassName"] == "fast"


@pytest.mark.parametrize(
    ("service", "ports"),
    [
        ({}, {"amqp", "http"}),
        ({"type": "LoadBalancer"}, {"amqp"}),
        ({"type": "NodePort", "nodePorts": {"amqp": 30672}}, {"amqp"}),
        ({"type": "NodePort", "publishHttp": True, "nodePorts": {"http": 31672}}, {"amqp", "http"}),
    ],
)
def test_http_is_published_only_where_that_is_wanted(chart: Any, service: dict[str, Any], ports: set[str]) -> None:
    objects = rendered(chart, {"service": service})
    assert {port["name"] for port in only(objects, "Service", "mq-mayfly")["spec"]["ports"]} == ports
    inside = only(objects, "Service", "mq-mayfly-http")["spec"]
    assert (inside["type"], [port["name"] for port in inside["ports"]]) == ("ClusterIP", ["http"])


def test_who_may_reach_http_is_said_apart(chart: Any) -> None:
    def allowed(values: dict[str, Any]) -> dict[str, list[dict[str, Any]] | None]:
        rules = only(rendered(chart, {"networkPolicy": values}), "NetworkPolicy")["spec"]["ingress"][1:]
        return {rule["ports"][0]["port"]: rule.get("from") for rule in rules if len(rule["ports"]) == 1}

    def peer(**labels: str) -> dict[str, Any]:
        return {"podSelector": {"matchLabels": labels}}

    helper = {
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/instance": "mq", "app.kubernetes.io/component": "helper"}
        }
    }
    assert allowed({}) == {"amqp": None, "http": None}
    clients = [peer(amqp="client"), helper]
    assert allowed({"clientPodLabels": {"amqp": "client"}}) == {"amqp": clients, "http": clients}
    assert allowed({"httpClientPodLabels": {"role": "operator"}}) == {
        "amqp": None, "http": [peer(role="operator"), helper],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rbac", "given", "mounted"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_an_own_account_can_be_shown(chart: Any, rbac: bool, given: bool | None, mounted: bool) -> None:
    account = {"create": False, "name": "mine", "automountServiceAccountToken": given}
    pod = pod_of(rendered(chart, {"rbac": {"create": rbac}, "serviceAccount": account}))["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("mine", mounted)


def test_the_failure_domain_can_be_a_label(chart: Any) -> None:
    told = pod_of(rendered(chart, {"failureDomainFromLabel": "topology.kubernetes.io/zone"}))["spec"]["containers"][0]
    paths = {each["name"]: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for each in told["env"]}
    assert paths["CHART_FAILURE_DOMAIN"] == "metadata.labels['topology.kubernetes.io/zone']"
    assert paths["MAYFLY_FAILURE_DOMAIN"] == "spec.nodeName"
    assert "CHART_FAILURE_DOMAIN" not in environment_of(chart, {})


def test_an_upgrade_that_keeps_the_values_of_an_older_chart_goes_through(chart: Any) -> None:
    """`helm upgrade --reuse-values`: what is new in this chart is missing."""
    names = ("global", "helperResources", "extraEnvVarsCM", "initContainers", "sidecars", "failureDomainFromLabel")
    new: dict[str, Any] = dict.fromkeys((*names, "persistentVolumeClaimRetentionPolicy"))
    new |= {
        "service": {"publishHttp": None},
        "pdb": {"minAvailable": None},
        "serviceAccount": {"automountServiceAccountToken": None},
        "networkPolicy": {"httpClientPodLabels": None, "extraHttpClients": None},
    }
    assert len(rendered(chart, {**OLD_VALUES, **new}, is_install=False, is_upgrade=True)) >= 5


@pytest.mark.parametrize("name", ["defaults", "own secrets", "cert-manager"])
def test_the_test_pod_is_told_where_to_look(chart: Any, name: str) -> None:
    objects = rendered(chart, MATRIX[name])
    pod = only(objects, "Pod")["spec"]
    text, *arguments = pod["containers"][0]["command"][2:]
    assert text == (CHART / "files" / "serves.py").read_text()
    tls = MATRIX[name].get("tls", {})
    kind = ["tls-with-certificate" if tls.get("verifyClients") else "tls"] if tls else []
    assert arguments == ["mq-mayfly-http:15672", "mq-mayfly:5672", "3", *kind]
    volumes = [volume["secret"] for volume in pod.get("volumes", [])]
    secret = tls.get("existingSecret", "mq-mayfly-tls")
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    assert volumes == ([{"secretName": secret, "optional": True, "items": items}] if tls else [])
