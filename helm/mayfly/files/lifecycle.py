"""Starts and stops the node of a pod: `lifecycle.py start` becomes the node, `lifecycle.py stop` is the preStop hook.

start: the first pods begin the cluster together (seeds); all others join, and so does a pod that was scaled away before
and comes back: it was taken out of the cluster, so that its data is of no more use.
stop: a pod that is scaled away takes its node out of the cluster and returns when all it held is elsewhere. One that is
only restarted is drained.

Nothing but the standard library; what it needs to know is in the environment, by the chart.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

VOLUME = Path(os.environ.get("CHART_VOLUME", "/var/lib/mayfly"))
DATA = VOLUME / "data"
LEAVING = VOLUME / "leaving"
"""There: this node was told to leave the cluster; it may be that it did."""
JOINED = VOLUME / "joined"
"""There: this node has joined a cluster that was there, though its number is one of those that begin."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ASK_WITHIN_S = 3.0
TRY_EVERY_S = 2.0


class Pod:
    """What the chart has told this pod."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.name = environment["POD_NAME"]
        self.namespace = environment["POD_NAMESPACE"]
        self.set, _, number = self.name.rpartition("-")
        self.number = int(number)
        self.founders = int(environment["CHART_FOUNDERS"])
        self._domain = environment["CHART_DOMAIN"]
        self.user = environment["MAYFLY_DEFAULT_USER"]
        self.drain_timeout_s = environment.get("CHART_DRAIN_TIMEOUT_S", "60")

    def host(self, number: int) -> str:
        """The name under which others reach a pod of the set."""
        return f"{self.set}-{number}.{self._domain}"

    def peer(self, number: int) -> str:
        """A pod's address for other nodes."""
        return f"{self.host(number)}:25672"

    def others(self) -> list[int]:
        """The numbers of pods that are there if this one is: sets grow and shrink at the end."""
        return [number for number in range(max(self.number, self.founders)) if number != self.number]


def settings_of(pod: Pod, joins: bool, through: str) -> dict[str, str]:
    """The node's settings that depend on the pod."""
    settings = {
        "MAYFLY_NAME": pod.name,
        "MAYFLY_DATA_DIR": str(DATA),
        "MAYFLY_ADVERTISED_PEER_ADDRESS": pod.peer(pod.number),
    }
    if joins:
        return {**settings, "MAYFLY_JOIN": through}
    return {**settings, "MAYFLY_SEEDS": ",".join(pod.peer(number) for number in range(pod.founders))}


def members(pod: Pod) -> tuple[str, set[str]] | None:
    """The peer address of a node that answers, and the names of all members as it has them; None: nobody answers."""
    for number in pod.others():
        try:
            with urllib.request.urlopen(
                f"http://{pod.host(number)}:15672/cluster/members", timeout=ASK_WITHIN_S
            ) as answer:
                rows = json.load(answer)["members"]
        except (OSError, ValueError, KeyError):
            continue
        return pod.peer(number), {row["name"] for row in rows if row["state"] != "removed"}
    return None


def forget_if_removed(pod: Pod, names: set[str]) -> None:
    """A node that was told to leave and is no member any more comes back as a new one."""
    if not LEAVING.exists():
        return
    if pod.name not in names:
        say("was taken out of the cluster: joins it as a new node")
        shutil.rmtree(DATA, ignore_errors=True)
        JOINED.touch()
    LEAVING.unlink()


def start(pod: Pod) -> None:
    """Become the node."""
    through = pod.peer(0 if pod.number else 1)
    if LEAVING.exists() or pod.number >= pod.founders or JOINED.exists():
        while (found := members(pod)) is None and not (DATA.exists() and not LEAVING.exists()):
            say("nobody answers yet")
            time.sleep(TRY_EVERY_S)
        if found is not None:
            through = found[0]
            forget_if_removed(pod, found[1])
    joins = pod.number >= pod.founders or JOINED.exists()
    os.environ.update(settings_of(pod, joins, through))
    os.execvp("mayfly", ["mayfly", "node"])


def wanted_replicas(pod: Pod, tries: int = 5) -> int | None:
    """How many pods the set is to have; None: nobody can say, or the set is being deleted."""
    try:
        request = urllib.request.Request(
            f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
            f"/apis/apps/v1/namespaces/{pod.namespace}/statefulsets/{pod.set}",
            headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"},
        )
        context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        with urllib.request.urlopen(request, timeout=ASK_WITHIN_S, context=context) as answer:
            found: dict[str, Any] = json.load(answer)
    except (OSError, ValueError, KeyError) as error:
        if tries > 1:
            time.sleep(TRY_EVERY_S)
            return wanted_replicas(pod, tries - 1)
        say(f"cannot ask for the set, takes it for a restart: {error}")
        return None
    return None if "deletionTimestamp" in found["metadata"] else int(found["spec"]["replicas"])


def stop(pod: Pod) -> None:
    """Leave the cluster, if the pod is scaled away for good; else drain."""
    wanted = wanted_replicas(pod)
    # A set of no pods at all is one that is switched off, and keeps its data.
    if wanted is not None and 0 < wanted <= pod.number:
        leave(pod, wanted)
    else:
        drain(pod)


def leave(pod: Pod, wanted: int) -> None:
    """Take this node out through one that stays; tries until that is done or the pod's time is over."""
    LEAVING.touch()
    while True:
        for number in range(wanted):
            if mayfly("cluster", "remove", pod.name, "--node", f"{pod.host(number)}:15672", "--user", pod.user):
                return
        time.sleep(TRY_EVERY_S)


def drain(pod: Pod) -> None:
    """Hand over what this node leads and send its clients elsewhere, where this version can."""
    if subprocess.run(["mayfly", "drain", "--help"], capture_output=True, check=False).returncode == 0:
        mayfly("drain", "--node", "127.0.0.1:15672", "--user", pod.user, "--timeout", pod.drain_timeout_s)


def mayfly(*words: str) -> bool:
    """An operator's command; whether it succeeded."""
    return subprocess.run(["mayfly", *words], check=False).returncode == 0


def say(text: str) -> None:
    """To the pod's log."""
    print(f"lifecycle: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    {"start": start, "stop": stop}[sys.argv[1]](Pod(dict(os.environ)))
