"""Pods that go without anybody having changed the release."""

from __future__ import annotations

import time

from tests.k8s.cluster import NAMESPACE, SET, WITHIN_S, Cluster
from tests.k8s.release import Release, delete_pod


def kill(release: Release) -> str:
    """A pod without a warning."""
    name = f"{SET}-1"
    before = release.cluster.ids()
    delete_pod(release, name, 0)
    release.until(lambda: release.cluster.ids().get(name, before[name]) != before[name], "another pod")
    release.until_ready(3)
    return "the pod came back with its volume"


def delete_two(release: Release) -> str:
    """No disruption budget is in the way of that: one of the two waits until the other one is back."""
    cluster = release.cluster
    before = cluster.ids()
    went = [f"{SET}-{number}" for number in (1, 2)]
    for name in went:
        delete_pod(release, name)
    up = [3]

    def are_back() -> bool:
        up.append(sum(row["up"] for row in cluster.page("/cluster/members")["members"]))
        return not {(name, before[name]) for name in went} & cluster.ids().items()

    release.until(are_back, "others in their place")
    release.until_ready(3)
    assert min(up) == 2, f"{min(up)} nodes were up"
    return "one after the other: never less than two nodes were up"


def drain(release: Release) -> str:
    """Each pod is evicted as soon as the disruption budget lets it."""
    before = release.cluster.ids()
    refused = 0
    for name in before:
        deadline_s = time.monotonic() + WITHIN_S
        while not _evicted(release.cluster, name):
            refused += 1
            assert time.monotonic() < deadline_s, f"{name} can't be evicted"
            time.sleep(1)
    release.until_replaced(before)
    return f"{len(before)} evictions; the disruption budget refused {refused} times until the one before was back"


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
