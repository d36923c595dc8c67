"""The release of the chart under test: installed, upgraded, put back; and what is waited for then."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.k8s import load, rollout
from tests.k8s.cluster import CLASS, NAMESPACE, RELEASE, SET, USER, WITHIN_S, Cluster, Login

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CHART: Final = ROOT / "helm" / "mayfly"
OPERATOR: Final = Login("operator", "the first one")
LOOK_EVERY_S: Final = 0.5


def image_values(name: str) -> dict[str, str]:
    """The chart's value for an image that is there."""
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


class Release:
    """What a scene has to do with; scenes are functions of it that say what was seen."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self.cluster = cluster
        self.image = image
        self.login = OPERATOR
        """Of the cluster's administrator."""
        self.values: dict[str, Any] = {
            "image": image_values(image),
            "auth": {"username": OPERATOR.user, "password": OPERATOR.password},
            "persistence": {"storageClass": CLASS, "size": "1Gi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "spareTimeoutSeconds": 120,
            "terminationGracePeriodSeconds": 300,
            "topologySpreadConstraints": [],
            "podSecurityContext": {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER},
        }

    # ------------------------------------------------------------------ Helm

    def install(self, chart: Path = CHART, image: str = "") -> str:
        """Three nodes, with these values; they begin together where they have no data."""
        values = {**self.values, "image": image_values(image)} if image else self.values
        with self.cluster.helm() as helm:
            helm.install(chart, RELEASE, values)
        self.until_ready(3)
        return f"members {', '.join(self.cluster.members())}"

    def upgrade(self, values: dict[str, Any]) -> None:
        """To these values, in place of those that were given before."""
        self.values = {**self.values, **values}
        with self.cluster.helm() as helm:
            helm.upgrade(CHART, RELEASE, self.values)

    def roll_back(self) -> None:
        """To the revision before."""
        with self.cluster.helm() as helm:
            helm.rollback(RELEASE)

    def uninstall(self) -> None:
        """Until no pod is left."""
        with self.cluster.helm() as helm:
            helm.uninstall(RELEASE)
        self.until(lambda: not self.cluster.pods(), "no pods")

    def test(self) -> str:
        """The chart's own test."""
        with self.cluster.helm() as helm:
            helm.test(RELEASE, timeout=round(WITHIN_S))
        return "`helm test` succeeded"

    # ------------------------------------------------------------------ an operator's commands

    def mayfly(self, *words: str) -> str:
        """What a command prints, given outside of the pods with the administrator's login."""
        login = {"MAYFLY_USER": self.login.user, "MAYFLY_PASSWORD": self.login.password}
        command = [sys.executable, "-m", "mayfly", *words, "--node", f"{self.cluster.address()}:15672"]
        environment = {**os.environ, **login}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"mayfly {words[0]} {words[1]}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def add_user_of_load(self) -> None:
        """Who is not the administrator: that one's password is changed."""
        user, password = load.LOGIN
        self.mayfly("user", "add", user, "--new-password", password)
        self.mayfly("permission", "set", user, ".*", ".*", ".*")

    # ------------------------------------------------------------------ waiting

    def roll(self, change: Callable[[], None], image: str = "") -> str:
        """A change that replaces all pods, one at a time; what was wrong with that, and with the image, is raised."""
        cluster = self.cluster
        before = cluster.ids()
        watch = rollout.Watch(
            lambda: rollout.look(cluster.pods(), cluster.page("/cluster/members"), cluster.page("/shards"))
        )
        watch.start()
        try:
            change()
            self.until_replaced(before)
        finally:
            looks = watch.end()
        faults = rollout.faults(looks, image or self.image)
        assert not faults, faults
        names = ", ".join(name.removeprefix(f"{SET}-") for name in rollout.order(looks))
        up = min(each.up for each in looks)
        return f"pods {names}, each when all others were ready; {up} nodes up at least, a majority in every group"

    def kept(self, before: dict[str, str]) -> int:
        """How many pods are still those."""
        return len(before.items() & self.cluster.ids().items())

    def until_replaced(self, before: dict[str, str]) -> None:
        """Wait until there are as many others, all ready."""
        self.until(lambda: not self.kept(before), "other pods")
        self.until_ready(len(before))

    def until_ready(self, number: int) -> None:
        """Wait until there are so many pods, all ready."""
        self.until(lambda: self.cluster.is_ready(number), f"{number} ready pods")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something."""
        from tests.integration.nodes import wait_for

        def has_happened() -> bool:
            # The service may still send somebody to a node that is gone.
            with contextlib.suppress(OSError):
                return happened()
            return False

        wait_for(has_happened, what, WITHIN_S, LOOK_EVERY_S)


def delete_pod(release: Release, name: str, grace_s: int | None = None) -> None:
    """As `kubectl delete pod` does; without `grace_s`, with the time that the chart gives."""
    more = {} if grace_s is None else {"grace_period_seconds": grace_s}
    release.cluster.core.delete_namespaced_pod(name, NAMESPACE, **more)
