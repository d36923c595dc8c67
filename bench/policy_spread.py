"""How soon a policy that concerns many queues counts for all of them, on every node; a part of `bench/expiry.py`.

A policy with `expires` for queues without any: who has one has a lease that runs, and `mayfly_lease_timers` counts
those on each node. Adding that up looks at all queues, so it is asked for only once a few queues of each node show the
change (`GET /queues/%2F/NAME`, which costs next to nothing). What is reported is when the count is known to be right,
from just before the request that changes the policy; so it is too long rather than too short.
"""

import base64
import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from bench.clusters import Cluster

_NAME: Final = "spread"
_PATTERN: Final = "^policy-"
_EXPIRES_MS: Final = 36_000_000
_SAMPLE: Final = 10
_LOOK_S: Final = 0.02
_WITHIN_S: Final = 120.0


def measure_changes(cluster: Cluster, names: Sequence[str], rounds: int) -> dict[str, float]:
    """`rounds` times a policy for all these queues is set and deleted again."""
    sample = [*random.Random(7).sample(list(names), min(_SAMPLE, len(names) - 1)), names[-1]]
    took: list[float] = []
    cpu_s = 0.0
    answered: list[float] = []
    for number in range(2 * rounds):
        setting = number % 2 == 0
        wanted = len(names) if setting else 0
        before_cpu_s = cluster.cpu_s()
        began = time.monotonic()
        _change(cluster.http[number % len(cluster.http)], setting)
        answered.append(time.monotonic() - began)
        took.append(max(_until(cluster, sample, setting, wanted)) - began)
        cpu_s += cluster.cpu_s() - before_cpu_s
        time.sleep(2)
    took.sort()
    return {
        "queues": len(names),
        "changes": len(took),
        "answered_s": sorted(answered)[len(answered) // 2],
        "effective_first_s": took[0],
        "effective_s": took[len(took) // 2],
        "effective_last_s": took[-1],
        "cpu_us_per_queue": cpu_s / len(took) / len(names) * 1e6,
    }


def _change(port: int, setting: bool) -> None:
    credentials = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    body = json.dumps({"pattern": _PATTERN, "definition": {"expires": _EXPIRES_MS}}) if setting else None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("PUT" if setting else "DELETE", f"/api/policies/%2F/{_NAME}", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status not in (http.client.CREATED, http.client.NO_CONTENT):
        raise SystemExit(f"the policy was not changed: {answer.status} {text!r}")


def _until(cluster: Cluster, sample: Sequence[str], setting: bool, wanted: int) -> list[float]:
    """When each node has the change everywhere."""
    moments = [0.0] * len(cluster.http)

    def watch(place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", cluster.http[place], timeout=60)
        deadline = time.monotonic() + _WITHIN_S
        left = list(sample)
        while time.monotonic() < deadline:
            if left:
                queue = json.loads(_get(connection, f"/queues/%2F/{left[-1]}"))
                if (queue["lease"] is not None) == setting:
                    left.pop()
                    continue
                time.sleep(_LOOK_S)
                continue
            asked = time.monotonic()
            if _leases(connection) == wanted:
                moments[place] = time.monotonic()
                return
            # Counting keeps the node from what is waited for: a fifth of its time at most.
            time.sleep(_LOOK_S + 4 * (time.monotonic() - asked))

    threads = [threading.Thread(target=watch, args=(place,)) for place in range(len(moments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if 0.0 in moments:
        raise SystemExit(f"not every queue follows the policy within {_WITHIN_S:.0f} s")
    return moments


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()


def _leases(connection: http.client.HTTPConnection) -> int:
    lines = _get(connection, "/metrics").decode().splitlines()
    return round(sum(float(line.split()[-1]) for line in lines if line.startswith("mayfly_lease_timers{")))
