"""`make test-k8s`: the chart on a real API server, under load; what happened goes into docs/kubernetes.md.

    python -P tests/k8s/run_k8s.py --kubeconfig FILE --image mayfly:test [--write docs/kubernetes.md]

Install, `helm test`, an upgrade that can't work and its rollback, an upgrade that works, 3 -> 5 -> 3 nodes, a killed
pod, a drained machine; messages come and go all the time and are judged as in tests/reliability. The API server may
have one machine and no provisioner of volumes: volumes are folders here.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.reliability.clients import Clients

CHART: Final = ROOT / "helm" / "mayfly"
RELEASE: Final = "mq"
SET: Final = "mq-mayfly"
NAMESPACE: Final = "mayfly-test"
LOGIN: Final = ("chaos", "chaos")
MOST: Final = 5
CLASS: Final = "mayfly-test"
QUEUES: Final = ("one", "two", "three")
RATE: Final = 150.0
WITHIN_S: Final = 300.0
_USER: Final = 10001


class Cluster:
    """The API server, and the release on it."""

    def __init__(self, kubeconfig: Path, image: str, folder: Path) -> None:
        from kubernetes import client, config

        config.load_kube_config(str(kubeconfig))
        self.core, self.apps, self.policy = client.CoreV1Api(), client.AppsV1Api(), client.PolicyV1Api()
        self.client = client
        self.folder = folder
        self.kubeconfig = kubeconfig
        repository, _, tag = image.rpartition(":")
        self.values: dict[str, Any] = {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "auth": {"username": LOGIN[0], "password": LOGIN[1]},
            "persistence": {"storageClass": CLASS, "size": "1Gi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "terminationGracePeriodSeconds": 120,
            "topologySpreadConstraints": [],
            "podSecurityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        }

    def prepare(self) -> None:
        """A namespace, and a volume for each pod there may be."""
        self.core.create_namespace({"metadata": {"name": NAMESPACE}})
        for number in range(MOST):
            path = self.folder / f"volume{number}"
            path.mkdir()
            os.chown(path, _USER, _USER)
            self.core.create_persistent_volume(
                {
                    "metadata": {"name": f"{CLASS}-{number}"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "persistentVolumeReclaimPolicy": "Retain",
                        "storageClassName": CLASS,
                        "hostPath": {"path": str(path)},
                    },
                }
            )

    def helm(self) -> Any:
        """Helm's engine on this cluster."""
        from helm_python import Config

        return Config(kubeconfig_path=self.kubeconfig, namespace=NAMESPACE)

    def pods(self) -> list[Any]:
        """The nodes' pods."""
        found: list[Any] = self.core.list_namespaced_pod(
            NAMESPACE, label_selector="app.kubernetes.io/name=mayfly"
        ).items
        return found

    def is_ready(self, number: int) -> bool:
        """Whether there are so many pods, all of the set's newest template, and all ready."""
        status = self.apps.read_namespaced_stateful_set(SET, NAMESPACE)
        new = status.status.observed_generation == status.metadata.generation
        return bool(
            new
            and len(self.pods()) == number
            and status.status.ready_replicas == number
            and status.status.current_revision == status.status.update_revision
        )

    def address(self) -> str:
        """Of the service for clients."""
        return str(self.core.read_namespaced_service(SET, NAMESPACE).spec.cluster_ip)

    def page(self, path: str) -> dict[str, Any]:
        """A page of any node that is ready."""
        from node.command_line.local_cluster import fetch
        from node.settings.kinds import Address

        return fetch(Address(self.address(), 15672), path)[1]

    def members(self) -> list[str]:
        """Names of the members of the cluster, as a node has them."""
        rows = self.page("/cluster/members")["members"]
        return sorted(row["name"] for row in rows if row["state"] == "member")

    def voting(self) -> set[int]:
        """How many vote in the groups."""
        return {len(row["voters"]) for row in self.page("/shards")["shards"] if not row["changing"]}

    def remove(self) -> None:
        """Everything that was made."""
        with self.helm() as helm:
            helm.uninstall(RELEASE, ignore_not_found=True)
        self.core.delete_namespace(NAMESPACE)
        for number in range(MOST):
            self.core.delete_persistent_volume(f"{CLASS}-{number}")


class Steps:
    """What is done, one after the other, with times."""

    def __init__(self) -> None:
        self.lines = ["| step | seconds | seen |", "|---|---|---|"]

    def do(self, what: str, work: Callable[[], str]) -> None:
        """Do it; the answer says what was seen."""
        began_s = time.monotonic()
        print(f"{what} ...", flush=True)
        seen = work()
        self.lines.append(f"| {what} | {time.monotonic() - began_s:.0f} | {seen} |")
        print(f"    {time.monotonic() - began_s:.0f} s; {seen}", flush=True)


def main() -> None:
    """Run, print, write; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--image", default="mayfly:test")
    parser.add_argument("--write", type=Path, help="Markdown file whose transcript is replaced")
    arguments = parser.parse_args()
    if arguments.kubeconfig is None:
        sys.exit("no API server: --kubeconfig or KUBECONFIG names its file (docs/kubernetes.md)")
    from tests.reliability.run_chaos import replace_figures

    folder = Path(tempfile.mkdtemp(prefix="mayfly-k8s-"))
    cluster = Cluster(arguments.kubeconfig, arguments.image, folder)
    steps = Steps()
    cluster.prepare()
    try:
        violations = play(cluster, steps)
    finally:
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join([f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[1]:.1f}.", "", *steps.lines])
    print("\n" + text, *violations, sep="\n")
    if arguments.write is not None:
        replace_figures(arguments.write, "test-k8s", text)
    sys.exit(f"{len(violations)} promises were broken" if violations else 0)


def play(cluster: Cluster, steps: Steps) -> list[Any]:
    """All steps; the promises that were broken."""
    from tests.integration.nodes import wait_for

    def until_ready(number: int) -> None:
        wait_for(lambda: cluster.is_ready(number), f"{number} ready pods", WITHIN_S, every_s=0.5)

    def install() -> str:
        with cluster.helm() as helm:
            helm.install(CHART, RELEASE, cluster.values)
        until_ready(3)
        return f"members {', '.join(cluster.members())}"

    def test() -> str:
        with cluster.helm() as helm:
            helm.test(RELEASE, timeout=120)
        return "`helm test` succeeded"

    def upgrade(values: dict[str, Any]) -> None:
        with cluster.helm() as helm:
            helm.upgrade(CHART, RELEASE, {**cluster.values, **values})

    def bad_upgrade() -> str:
        before = {pod.metadata.name: pod.metadata.uid for pod in cluster.pods()}
        upgrade({"image": {**cluster.values["image"], "tag": "not-there"}})
        wait_for(lambda: any(_waits_for_image(pod) for pod in cluster.pods()), "a pod without an image", WITHIN_S, 0.5)
        time.sleep(10)
        kept = sum(before[pod.metadata.name] == pod.metadata.uid for pod in cluster.pods())
        assert kept == 2, f"{kept} pods were left alone"
        with cluster.helm() as helm:
            helm.rollback(RELEASE)
        # Kubernetes does not replace a broken pod of a set by itself when the template goes back.
        for pod in cluster.pods():
            if _waits_for_image(pod):
                cluster.core.delete_namespaced_pod(pod.metadata.name, NAMESPACE)
        until_ready(3)
        return "one pod was tried, two went on serving; rolled back"

    def good_upgrade() -> str:
        upgrade({"podAnnotations": {"upgraded": "yes"}})
        until_ready(3)
        return "three pods restarted, one at a time"

    def grow() -> str:
        upgrade({"replicaCount": 5})
        until_ready(5)
        wait_for(lambda: len(cluster.members()) == 5 and cluster.voting() == {3}, "five members", WITHIN_S, 0.5)
        return f"members {', '.join(cluster.members())}; three vote in each group"

    def shrink() -> str:
        upgrade({"replicaCount": 3})
        until_ready(3)
        wait_for(lambda: cluster.members() == [f"{SET}-{n}" for n in range(3)], "three members", WITHIN_S, 0.5)
        assert cluster.voting() == {3}
        return f"members {', '.join(cluster.members())}; three vote in each group"

    def kill() -> str:
        cluster.core.delete_namespaced_pod(f"{SET}-1", NAMESPACE, grace_period_seconds=0)
        wait_for(lambda: not cluster.is_ready(3), "a missing pod", WITHIN_S, 0.1)
        until_ready(3)
        return "the pod came back with its volume"

    def drain() -> str:
        evicted = refused = 0
        for pod in cluster.pods():
            while True:
                try:
                    _evict(cluster, pod.metadata.name)
                    evicted += 1
                    break
                except cluster.client.ApiException as error:
                    if error.status != 429:
                        raise
                    refused += 1
                    time.sleep(1)
        until_ready(3)
        return f"{evicted} evictions; the disruption budget refused {refused} times until the one before was back"

    steps.do("install, three nodes", install)
    steps.do("helm test", test)
    load, queues = begin_load(cluster)
    try:
        for what, work in (
            ("upgrade to an image that is not there, rollback", bad_upgrade),
            ("upgrade of an annotation", good_upgrade),
            ("scale out, 3 to 5", grow),
            ("scale in, 5 to 3", shrink),
            ("pod killed (no grace)", kill),
            ("all pods evicted, as when machines are drained", drain),
            ("helm test again", test),
        ):
            steps.do(what, work)
        return end_load(cluster, load, queues, steps)
    finally:
        load.end()


def _waits_for_image(pod: Any) -> bool:
    states = [status.state.waiting for status in pod.status.container_statuses or []]
    return any(state is not None and state.reason in ("ErrImageNeverPull", "ImagePullBackOff") for state in states)


def _evict(cluster: Cluster, pod: str) -> None:
    """Through the Eviction API, whose version depends on the server."""
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    cluster.core.create_namespaced_pod_eviction(pod, NAMESPACE, body)


def begin_load(cluster: Cluster) -> tuple[Clients, list[str]]:
    """Publishers and consumers through the service, from outside of the pods' network."""
    import pika

    from node.settings.kinds import Address
    from tests.integration.nodes import wait_for
    from tests.reliability.clients import Clients, consumers_of, publishers_of

    service = Address(cluster.address(), 5672)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(service.host, service.port, credentials=pika.PlainCredentials(*LOGIN))
    )
    channel = connection.channel()
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
    connection.close()
    # The service under two numbers: a client that has to leave goes to it again, and gets another node.
    seed = random.randrange(1_000_000)
    load = Clients({1: service, 2: service}, LOGIN, seed)
    load.begin(publishers_of(load, QUEUES, seed, RATE), consumers_of(load, QUEUES, seed))
    wait_for(lambda: len(load.proven) > 100, "messages that come and go", 60)
    return load, list(QUEUES)


def end_load(cluster: Cluster, load: Clients, queues: list[str], steps: Steps) -> list[Any]:
    """Calm, drain, judge."""
    from node.simulation.history import CONFIRMED
    from tests.integration.nodes import wait_for
    from tests.reliability.judging import judge

    def calm() -> str:
        load.history.calm_us = load.now_us()
        load.stop_publishing(within_s=30)
        deadline_s = time.monotonic() + 30
        while load.outstanding() and time.monotonic() < deadline_s:
            time.sleep(0.2)
        load.stop_consuming(within_s=30)
        load.drain(queues)
        for queue in queues:
            wait_for(lambda: _is_empty(cluster, queue), f"an empty queue {queue}", 60, 0.2)  # noqa: B023
        load.stop_consuming(within_s=30)
        load.end()
        confirmed = sum(each.outcome == CONFIRMED for each in load.history.publishes.values())
        violations.extend(judge(load.history, queues, load.proven))
        return f"{len(load.history.publishes)} published, {confirmed} confirmed, {len(violations)} promises broken"

    violations: list[Any] = []
    steps.do("calm, judgement", calm)
    return violations


def _is_empty(cluster: Cluster, queue: str) -> bool:
    info = cluster.page(f"/queues/%2F/{queue}?fresh=true")
    return bool(info.get("consumers")) and info["ready"] == 0


if __name__ == "__main__":
    main()
