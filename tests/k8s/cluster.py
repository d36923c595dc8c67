"""The API server, and what is on it: pods, volumes, and the pages of nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

RELEASE: Final = "mq"
SET: Final = "mq-mayfly"
NAMESPACE: Final = "mayfly-test"
CLASS: Final = "mayfly-test"
MOST: Final = 5
WITHIN_S: Final = 600.0
USER: Final = 10001
"""Of the pods' processes, who has to be able to write to the volumes."""


class Login(NamedTuple):
    """Of a user of the broker."""

    user: str
    password: str


class Cluster:
    """What `make test-k8s` asks and tells the API server."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """`folder` is for the volumes, and whatever else lasts as long as the run."""
        from kubernetes import client, config

        config.load_kube_config(str(kubeconfig))
        self.core, self.apps = client.CoreV1Api(), client.AppsV1Api()
        self.version = str(client.VersionApi().get_code().git_version).removeprefix("v")
        self.client = client
        self.folder = folder
        self.kubeconfig = kubeconfig

    def prepare(self) -> None:
        """A namespace, and a volume for each pod there may be."""
        self.core.create_namespace({"metadata": {"name": NAMESPACE}})
        for number in range(MOST):
            path = self.folder / f"volume{number}"
            path.mkdir()
            os.chown(path, USER, USER)
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

    def ids(self) -> dict[str, str]:
        """What Kubernetes calls the pods: another id is another pod of that name."""
        return {pod.metadata.name: pod.metadata.uid for pod in self.pods()}

    def claims(self) -> dict[str, str]:
        """Of each pod's claim, the volume."""
        items = self.core.list_namespaced_persistent_volume_claim(NAMESPACE).items
        return {claim.metadata.name: claim.spec.volume_name for claim in items}

    def address(self, service: str = SET) -> str:
        """Of a service for clients."""
        return str(self.core.read_namespaced_service(service, NAMESPACE).spec.cluster_ip)

    def page(self, path: str) -> dict[str, Any]:
        """A page of any node that is ready."""
        from mayfly.node.local_nodes.local_cluster import fetch
        from mayfly.node.settings.kinds import Address

        return fetch(Address(self.address(), 15672), path)[1]

    def members(self) -> list[str]:
        """Names of the members of the cluster, as a node has them."""
        rows = self.page("/cluster/members")["members"]
        return sorted(row["name"] for row in rows if row["state"] == "member")

    def level(self) -> int:
        """The cluster's feature level."""
        return int(self.page("/cluster/members")["level"])

    def voting(self) -> set[int]:
        """How many vote in the groups."""
        return {len(row["voters"]) for row in self.page("/shards")["shards"] if not row["changing"]}

    def remove(self, *releases: str) -> None:
        """Everything that was made."""
        with self.helm() as helm:
            for release in releases:
                helm.uninstall(release, ignore_not_found=True)
        deadline_s = time.monotonic() + WITHIN_S
        # A namespace with pods in it is looked at again only when their whole grace period may be over.
        while self.pods() and time.monotonic() < deadline_s:
            time.sleep(1)
        self.core.delete_namespace(NAMESPACE)
        while any(each.metadata.name == NAMESPACE for each in self.core.list_namespace().items):
            assert time.monotonic() < deadline_s, f"the namespace {NAMESPACE} does not end"
            time.sleep(1)
        for number in range(MOST):
            self.core.delete_persistent_volume(f"{CLASS}-{number}")


def is_ready(pod: Any) -> bool:
    """Whether the pod serves."""
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or [])
