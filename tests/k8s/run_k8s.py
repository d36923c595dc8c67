"""`make test-k8s`: the chart on a real API server, under load; what happened goes into docs/kubernetes.md.

    python -P tests/k8s/run_k8s.py --kubeconfig FILE [--image mayfly:latest] [--write docs/kubernetes.md]
        [--from-image mayfly:before [--from-chart FOLDER]] [--steps kill,drain] [--rate 150]

Install, `helm test`, an upgrade that can't work and its rollback, an upgrade that works, 3 -> 5 -> 3 nodes, a killed
pod, a drained machine, a scale-in whose pods can't ask the API server; messages come and go all the time and are judged
as in tests/reliability. Then another release, with login, definitions and certificates from secrets. The API server may
have one machine and no provisioner of volumes: volumes are folders here. `--steps` plays some of them only, always
with the install before and the judgement after them.

`--from-image` is that of an earlier release, `--from-chart` its chart (default: this one): they are installed first,
replaced under load, put back, and replaced again (steps `rollout` and `back`). Where the earlier release does not know
this one's feature level, it is first replaced and put back while the level is held (step `held`); once the level has
been raised, `back` is refused by the first pod, and the way on is to go forward again.

`--without-disks`: pods keep nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT))

from tests.k8s import from_secrets, rollout  # noqa: E402

if TYPE_CHECKING:
    from tests.failover.releases import Upgrade
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
WITHIN_S: Final = 600.0
LOOK_EVERY_S: Final = 0.5
REFUSED: Final = 78
"""What a node ends with that does not take its data (`node.command_line.exit_codes`)."""
_USER: Final = 10001
STEPS: Final = (
    "test", "held", "rollout", "back",
    "bad-upgrade", "upgrade", "grow", "shrink", "kill", "pair", "drain", "blind", "secrets",
)  # fmt: skip
NEEDS_EARLIER: Final = {"held", "rollout", "back"}


class Cluster:
    """The API server, and the release on it."""

    def __init__(self, kubeconfig: Path, image: str, folder: Path) -> None:
        from kubernetes import client, config

        config.load_kube_config(str(kubeconfig))
        self.core, self.apps = client.CoreV1Api(), client.AppsV1Api()
        self.version = str(client.VersionApi().get_code().git_version).removeprefix("v")
        self.client = client
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.values: dict[str, Any] = {
            "image": _image(image),
            "auth": {"username": LOGIN[0], "password": LOGIN[1]},
            "persistence": {"storageClass": CLASS, "size": "1Gi"},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "spareTimeoutSeconds": 120,
            "terminationGracePeriodSeconds": 300,
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

    def ids(self) -> dict[str, str]:
        """What Kubernetes calls the pods: another id is another pod of that name."""
        return {pod.metadata.name: pod.metadata.uid for pod in self.pods()}

    def address(self, service: str = SET) -> str:
        """Of a service for clients."""
        return str(self.core.read_namespaced_service(service, NAMESPACE).spec.cluster_ip)

    def page(self, path: str) -> dict[str, Any]:
        """A page of any node that is ready."""
        from node.command_line.local_cluster import fetch
        from node.settings.kinds import Address

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

    def remove(self) -> None:
        """Everything that was made."""
        with self.helm() as helm:
            for release in (RELEASE, from_secrets.RELEASE):
                helm.uninstall(release, ignore_not_found=True)
        self.core.delete_namespace(NAMESPACE)
        deadline_s = time.monotonic() + WITHIN_S
        while any(each.metadata.name == NAMESPACE for each in self.core.list_namespace().items):
            assert time.monotonic() < deadline_s, f"the namespace {NAMESPACE} does not end"
            time.sleep(1)
        for number in range(MOST):
            self.core.delete_persistent_volume(f"{CLASS}-{number}")


class Counts(threading.Thread):
    """Counts how many pods are ready, and which ended by themselves, all the time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="counts of pods", daemon=True)
        self.fewest_ready = MOST
        self.restarts: dict[str, int] = {}
        """How often a pod's node ended and was started again, by the pod's id."""
        self._cluster = cluster
        self._over = threading.Event()
        self._count()

    def run(self) -> None:
        """The thread."""
        while not self._over.wait(LOOK_EVERY_S):
            self._count()

    def _count(self) -> None:
        pods = self._cluster.pods()
        self.fewest_ready = min(self.fewest_ready, sum(_is_ready(pod) for pod in pods))
        for pod in pods:
            for status in pod.status.container_statuses or []:
                if status.restart_count:
                    self.restarts[pod.metadata.uid] = status.restart_count

    def end(self) -> None:
        """Stop."""
        self._over.set()
        self.join()
        self._count()


class Steps:
    """What is done, one after the other, with times."""

    def __init__(self, cluster: Cluster) -> None:
        self.lines = ["| step | s | fewest ready pods | longest without a confirm, s | seen |", "|---|---|---|---|---|"]
        self.load: Clients | None = None
        """Once there is a load."""
        self._cluster = cluster

    def do(self, what: str, work: Callable[[], str], count: bool = True) -> None:
        """Do it; the answer says what was seen. `count`: how many pods were ready at least."""
        began_s = time.monotonic()
        began_us = self.load.now_us() if self.load is not None else 0
        print(f"{time.strftime('%H:%M:%S')} {what} ...", flush=True)
        counts = Counts(self._cluster)
        counts.start()
        try:
            seen = work()
        finally:
            counts.end()
        ready = str(counts.fewest_ready) if count else ""
        if counts.restarts:
            seen += f"; {sum(counts.restarts.values())} restarts of nodes that ended by themselves"
        pause = ""
        if self.load is not None:
            pause_s, queue, end_s = longest_pause(self.load, began_us)
            pause = f"{pause_s:.1f}"
            given_up = sum(since_us >= began_us for since_us, *_ in self.load.history.given_up)
            until = time.strftime("%H:%M:%S", time.localtime(end_s))
            print(f"    queue {queue} had no confirm for {pause} s, until {until}; clients gave up {given_up} times")
        self.lines.append(f"| {what} | {time.monotonic() - began_s:.0f} | {ready} | {pause} | {seen} |")
        print(f"    {time.monotonic() - began_s:.0f} s; {ready} ready; {pause} s; {seen}", flush=True)


def longest_pause(load: Clients, since_us: int) -> tuple[float, str, float]:
    """How long a queue took no messages, at most, through whichever pod: seconds, the queue, the time of the end."""
    now_us = load.now_us()
    pauses = []
    for queue in QUEUES:
        names = [name for name, (_, published_to) in list(load.homes.items()) if published_to == queue]
        times_us = sorted(at_us for name in names for at_us, _ in list(load.confirms[name]) if at_us > since_us)
        pauses += [(after - before, queue, after) for before, after in pairwise([since_us, *times_us, now_us])]
    pause_us, queue, end_us = max(pauses)
    return pause_us / 1e6, queue, time.time() - (now_us - end_us) / 1e6


def _image(name: str) -> dict[str, str]:
    """The chart's value for an image that is there."""
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


def main() -> None:
    """Run, print, write; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--image", default="mayfly:latest", help="of `make image` (default: %(default)s)")
    parser.add_argument("--from-image", help="that of an earlier release, for the steps `rollout` and `back`")
    parser.add_argument("--from-chart", type=Path, default=CHART, help="its chart (default: this one)")
    parser.add_argument("--without-disks", action="store_true", help="a pod that is replaced has lost its data")
    parser.add_argument("--write", type=Path, help="Markdown file whose transcript is replaced")
    parser.add_argument("--steps", help=f"some of {','.join(STEPS)}; default: all")
    parser.add_argument("--rate", type=float, default=RATE, help="messages per second (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="remove nothing if a step fails, to look for the cause")
    arguments = parser.parse_args()
    if arguments.kubeconfig is None:
        sys.exit("no API server: --kubeconfig or KUBECONFIG names its file (docs/kubernetes.md)")
    possible = tuple(each for each in STEPS if arguments.from_image or each not in NEEDS_EARLIER)
    chosen = possible if arguments.steps is None else tuple(arguments.steps.split(","))
    if set(chosen) - set(possible):
        sys.exit(f"--steps {arguments.steps}: some of {','.join(possible)} are expected")
    from tests.failover.engine import release_of_image
    from tests.failover.releases import Upgrade
    from tests.reliability.run_chaos import replace_figures

    earlier = None
    if NEEDS_EARLIER & set(chosen):
        way = Upgrade(release_of_image(arguments.from_image), release_of_image(arguments.image))
        if way.fault():
            sys.exit(f"no rolling upgrade: {way.fault()}")
        if not way.can_be_held:
            chosen = tuple(each for each in chosen if each != "held")
        earlier = Earlier(arguments.from_chart, way)
    folder = Path(tempfile.mkdtemp(prefix="mayfly-k8s-"))
    cluster = Cluster(arguments.kubeconfig, arguments.image, folder)
    if arguments.without_disks:
        cluster.values["persistence"] = {"enabled": False}
    steps = Steps(cluster)
    cluster.prepare()
    kept = arguments.keep
    try:
        violations = play(Works(cluster, earlier), steps, chosen, arguments.rate)
        kept = False
    finally:
        if not kept:
            cluster.remove()
            shutil.rmtree(folder, ignore_errors=True)
    machine = f"one machine of {os.cpu_count()} processors, load average {os.getloadavg()[1]:.1f} at the end"
    head = f"{time.strftime('%Y-%m-%d')}, Kubernetes {cluster.version} on {machine}; {arguments.rate:g} messages/s."
    text = "\n".join([head, "", *steps.lines])
    print("\n" + text, *violations, sep="\n")
    if arguments.write is not None:
        replace_figures(arguments.write, "test-k8s", text)
    sys.exit(f"{len(violations)} promises were broken" if violations else 0)


def play(works: Works, steps: Steps, chosen: Sequence[str], rate: float) -> list[Any]:
    """The chosen steps; the promises that were broken."""
    cluster = works.cluster
    first = "install, three nodes of the earlier release" if works.is_earlier else "install, three nodes"
    steps.do(first, works.install, count=False)
    if "test" in chosen:
        steps.do("helm test", works.test)
    load, queues = begin_load(cluster, rate)
    steps.load = load
    try:
        for name, what, work in (
            ("held", "upgrade to this release, the feature level held", works.rollout_held),
            ("held", "rollback to the earlier release", works.back),
            ("rollout", "upgrade to this release", works.rollout),
            *works.ways_back(),
            ("bad-upgrade", "upgrade to an image that is not there, rollback", works.bad_upgrade),
            ("upgrade", "upgrade of an annotation", works.good_upgrade),
            ("grow", "scale out, 3 to 5", works.grow),
            ("shrink", "scale in, 5 to 3", works.shrink),
            ("kill", "pod killed (no grace)", works.kill),
            ("pair", "two pods deleted at the same time", works.delete_two),
            ("drain", "all pods evicted, as when machines are drained", works.drain),
            ("blind", "scale out, 3 to 5, pods may not ask the API server from then on", works.grow_blind),
            ("blind", "scale in, 5 to 3, without the API server", works.shrink),
            ("test", "helm test again", works.test),
        ):
            if name in chosen:
                steps.do(what, work)
                load.check()
        steps.load = None
        violations = end_load(cluster, load, queues, steps)
    finally:
        load.end()
    if "secrets" in chosen:
        steps.do("another release: login, definitions, certificates from secrets", works.from_secrets, count=False)
    return violations


class Earlier(NamedTuple):
    """A release that is installed first."""

    chart: Path
    way: Upgrade
    """From its image to the one under test."""


class Works:
    """What the steps do; each says what was seen."""

    def __init__(self, cluster: Cluster, earlier: Earlier | None) -> None:
        self.cluster = cluster
        self._earlier = earlier
        self._values = dict(cluster.values)

    @property
    def is_earlier(self) -> bool:
        """Whether the first release is an earlier one."""
        return self._earlier is not None

    def install(self) -> str:
        """Three nodes that begin together."""
        chart, values = CHART, self._values
        if self._earlier is not None:
            chart, values = self._earlier.chart, {**values, "image": _image(self._earlier.way.old.image)}
        with self.cluster.helm() as helm:
            helm.install(chart, RELEASE, values)
        self._until_ready(3)
        return f"members {', '.join(self.cluster.members())}"

    def test(self) -> str:
        """The chart's own test."""
        with self.cluster.helm() as helm:
            helm.test(RELEASE, timeout=round(WITHIN_S))
        return "`helm test` succeeded"

    def bad_upgrade(self) -> str:
        """An image that is not there stops at the first pod; back to the release before."""
        before = self.cluster.ids()
        there = self._values
        self._upgrade({"image": {**there["image"], "tag": "not-there"}})
        self._until(lambda: any(map(_waits_for_image, self.cluster.pods())), "a pod without an image")
        time.sleep(10)  # to see that nothing follows
        kept = len(before.items() & self.cluster.ids().items())
        assert kept == 2, f"{kept} pods were left alone"
        self._roll_back()
        self._values = there
        # The set's pods are managed in parallel: its controller replaces the broken one itself.
        self._until_ready(3)
        kept = len(before.items() & self.cluster.ids().items())
        assert kept == 2, f"{kept} pods were left alone by the rollback"
        return "one pod was tried, two went on serving; the rollback replaced that one by itself"

    def ways_back(self) -> tuple[tuple[str, str, Callable[[], str]], ...]:
        """Steps that try to go back from this release, and return to it."""
        if self._earlier is None:
            return ()
        back, again = "rollback to the earlier release", "upgrade to this release again"
        if self._earlier.way.can_go_back:
            return ("back", back, self.back), ("back", again, self.rollout)
        return ("back", f"{back}, which refuses the data", self.back_refused), ("back", again, self.forward)

    def rollout(self) -> str:
        """Chart and image of the earlier release are replaced; the feature level follows."""
        way = self._way
        seen = self._roll(lambda: self._upgrade({}), way.new.image)
        self._until(lambda: self.cluster.level() == way.new.levels.highest, f"feature level {way.new.levels.highest}")
        return f"{seen}; feature level {way.new.levels.highest}"

    def rollout_held(self) -> str:
        """The same, with a setting by which the old release can come back."""
        there, level = self._values, self._way.old.levels.highest
        seen = self._roll(
            lambda: self._upgrade({"settings": {"feature_level_limit": level}}), self._way.new.image
        )
        self._values = there
        assert self.cluster.level() == level, f"the feature level is {self.cluster.level()}, held at {level}"
        return f"{seen}; feature level {level}"

    def back(self) -> str:
        """The earlier chart and image again."""
        return self._roll(self._roll_back, self._way.old.image)

    def back_refused(self) -> str:
        """The earlier chart and image, which do not know the feature level: nothing comes of it but a broken pod."""
        before = self.cluster.ids()
        self._roll_back()
        self._until(lambda: any(map(_is_refused, self.cluster.pods())), "a node that refuses its data, twice")
        time.sleep(10)  # to see that nothing follows
        kept = len(before.items() & self.cluster.ids().items())
        assert kept == 2, f"{kept} pods were left alone"
        assert self.cluster.level() == self._way.new.levels.highest
        return f"the node of one pod ends with {REFUSED} again and again, two go on serving"

    def forward(self) -> str:
        """This release again, after a rollback that was refused."""
        before = self.cluster.ids()
        self._upgrade({})
        self._until_ready(3)
        kept = len(before.items() & self.cluster.ids().items())
        assert kept == 2, f"{kept} pods were left alone"
        return "the broken pod was replaced by itself, the others were left alone"

    @property
    def _way(self) -> Upgrade:
        assert self._earlier is not None
        return self._earlier.way

    def _roll_back(self) -> None:
        with self.cluster.helm() as helm:
            helm.rollback(RELEASE)

    def _roll(self, change: Callable[[], None], image: str) -> str:
        cluster = self.cluster
        before = cluster.ids()
        watch = rollout.Watch(
            lambda: rollout.look(cluster.pods(), cluster.page("/cluster/members"), cluster.page("/shards"))
        )
        watch.start()
        try:
            change()
            self._until_replaced(before)
        finally:
            looks = watch.end()
        faults = rollout.faults(looks, image)
        assert not faults, faults
        names = ", ".join(name.removeprefix(f"{SET}-") for name in rollout.order(looks))
        up = min(each.up for each in looks)
        return f"pods {names}, each when all others were ready; {up} nodes up at least, a majority in every group"

    def good_upgrade(self) -> str:
        """A new template: every pod goes and comes."""
        before = self.cluster.ids()
        self._upgrade({"podAnnotations": {"upgraded": "yes"}})
        self._until_replaced(before)
        return "three pods restarted"

    def grow(self) -> str:
        """Two more nodes join and get votes."""
        return self._grow({"replicaCount": 5})

    def grow_blind(self) -> str:
        """The same, and the pods are restarted without a right to ask the API server."""
        return self._grow({"replicaCount": 5, "rbac": {"create": False}})

    def _grow(self, values: dict[str, Any]) -> str:
        self._upgrade(values)
        self._until_ready(5)
        self._until(
            lambda: len(self.cluster.members()) == 5 and self.cluster.voting() == {3}, "five members, votes moved"
        )
        return f"members {', '.join(self.cluster.members())}; three vote in each group"

    def shrink(self) -> str:
        """Two leave, at the same time."""
        self._upgrade({"replicaCount": 3})
        self._until_ready(3)
        self._until(lambda: self.cluster.members() == [f"{SET}-{n}" for n in range(3)], "three members")
        assert self.cluster.voting() == {3}
        return f"members {', '.join(self.cluster.members())}; three vote in each group"

    def kill(self) -> str:
        """A pod without a warning."""
        name = f"{SET}-1"
        before = self.cluster.ids()
        self.cluster.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
        self._until(lambda: self.cluster.ids().get(name, before[name]) != before[name], "another pod")
        self._until_ready(3)
        return "the pod came back with its volume"

    def delete_two(self) -> str:
        """No disruption budget is in the way of that: one of the two waits until the other one is back."""
        before = self.cluster.ids()
        went = [f"{SET}-{number}" for number in (1, 2)]
        for name in went:
            self.cluster.core.delete_namespaced_pod(name, NAMESPACE)
        up = [3]

        def are_back() -> bool:
            up.append(sum(row["up"] for row in self.cluster.page("/cluster/members")["members"]))
            return not {(name, before[name]) for name in went} & self.cluster.ids().items()

        self._until(are_back, "others in their place")
        self._until_ready(3)
        assert min(up) == 2, f"{min(up)} nodes were up"
        return "one after the other: never less than two nodes were up"

    def drain(self) -> str:
        """Each pod is evicted as soon as the disruption budget lets it."""
        before = self.cluster.ids()
        refused = 0
        for name in before:
            deadline_s = time.monotonic() + WITHIN_S
            while not _evicted(self.cluster, name):
                refused += 1
                assert time.monotonic() < deadline_s, f"{name} can't be evicted"
                time.sleep(1)
        self._until_replaced(before)
        return f"{len(before)} evictions; the disruption budget refused {refused} times until the one before was back"

    def from_secrets(self) -> str:
        """Instead of the first release, one that has everything secret from secrets; `helm test`, a client."""
        cluster = self.cluster
        with cluster.helm() as helm:
            helm.uninstall(RELEASE)
        self._until(lambda: not cluster.pods(), "no pods")
        with tempfile.TemporaryDirectory(prefix="mayfly-k8s-tls-") as folder:
            authority = from_secrets.make_secrets(cluster.core, NAMESPACE, Path(folder))
            with cluster.helm() as helm:
                # The definitions are loaded by a hook: this returns when its job has succeeded.
                values = {**cluster.values, **from_secrets.values()}
                helm.install(CHART, from_secrets.RELEASE, values, timeout=round(WITHIN_S))
                self._until(lambda: sum(map(_is_ready, cluster.pods())) == 3, "3 ready pods")
                helm.test(from_secrets.RELEASE, timeout=round(WITHIN_S))
            from_secrets.check(cluster.address(from_secrets.SERVICE), authority)
        return "definitions loaded, `helm test` succeeded, the user of the definitions published and got through TLS"

    def _upgrade(self, values: dict[str, Any]) -> None:
        self._values = {**self._values, **values}
        with self.cluster.helm() as helm:
            helm.upgrade(CHART, RELEASE, self._values)

    def _until_replaced(self, before: dict[str, str]) -> None:
        """Wait until there are as many others, all ready."""
        self._until(lambda: not before.items() & self.cluster.ids().items(), "other pods")
        self._until_ready(len(before))

    def _until_ready(self, number: int) -> None:
        self._until(lambda: self.cluster.is_ready(number), f"{number} ready pods")

    def _until(self, happened: Callable[[], bool], what: str) -> None:
        from tests.integration.nodes import wait_for

        def has_happened() -> bool:
            # The service may still send somebody to a node that is gone.
            with contextlib.suppress(OSError):
                return happened()
            return False

        wait_for(has_happened, what, WITHIN_S, LOOK_EVERY_S)


def _is_ready(pod: Any) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or [])


def _waits_for_image(pod: Any) -> bool:
    states = [status.state.waiting for status in pod.status.container_statuses or []]
    return any(state is not None and state.reason in ("ErrImageNeverPull", "ImagePullBackOff") for state in states)


def _is_refused(pod: Any) -> bool:
    """Whether the pod's node was started twice at least, and did not take its data."""
    ends = [status.last_state.terminated for status in pod.status.container_statuses or [] if status.restart_count]
    return any(end is not None and end.exit_code == REFUSED for end in ends)


def _evicted(cluster: Cluster, pod: str) -> bool:
    """Through the Eviction API, whose version depends on the server; False if the disruption budget is in the way."""
    major, minor = map(int, cluster.version.split(".")[:2])
    version = "policy/v1" if (major, minor) >= (1, 22) else "policy/v1beta1"
    body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    try:
        cluster.core.create_namespaced_pod_eviction(pod, NAMESPACE, body)
    except cluster.client.ApiException as error:
        if error.status != 429:
            raise
        return False
    return True


def begin_load(cluster: Cluster, rate: float) -> tuple[Clients, list[str]]:
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
    load.begin(publishers_of(load, QUEUES, seed, rate), consumers_of(load, QUEUES, seed))
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
            wait_for(lambda: _is_empty(cluster, queue), f"an empty queue {queue}", WITHIN_S, 0.2)  # noqa: B023
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
