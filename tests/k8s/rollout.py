"""What is seen while one release replaces another pod by pod, and what must not be seen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

LOOK_EVERY_S: Final = 0.3


class Pod(NamedTuple):
    """A pod of a node at one moment."""

    id: str
    """Another id is another pod of that name."""
    image: str
    is_ready: bool
    is_ending: bool


class Look(NamedTuple):
    """Everything at one moment."""

    pods: dict[str, Pod]
    up: int
    """How many members are up."""
    stuck: tuple[int, ...]
    """Groups that have less than a majority of their voters up."""


def pod_of(found: Any) -> tuple[str, Pod]:
    """A pod's name and state, from what the API server says."""
    ready = any(each.type == "Ready" and each.status == "True" for each in found.status.conditions or [])
    ending = found.metadata.deletion_timestamp is not None
    return found.metadata.name, Pod(found.metadata.uid, found.spec.containers[0].image, ready, ending)


def look(pods: Sequence[Any], members: dict[str, Any], shards: dict[str, Any]) -> Look:
    """From a list of pods and two pages of a node."""
    up = {row["id"] for row in members["members"] if row["up"]}
    stuck = [
        row["group"] for row in shards["shards"] if len(up & set(row["voters"])) < len(row["voters"]) // 2 + 1
    ]
    return Look(dict(map(pod_of, pods)), len(up), tuple(stuck))


def order(looks: Sequence[Look]) -> list[str]:
    """Names of pods as they were told to stop."""
    told: dict[str, str] = {}
    for each in looks:
        for name, pod in each.pods.items():
            if pod.is_ending:
                told.setdefault(pod.id, name)
    return list(told.values())


def faults(looks: Sequence[Look], image: str) -> list[str]:
    """What is wrong with a rollout of that image to all pods, one at a time; nothing if it was as it has to be."""
    found = []
    number = len(looks[0].pods)
    told: set[str] = set()
    for each in looks:
        ending = {name for name, pod in each.pods.items() if pod.is_ending}
        if len(ending) > 1:
            found.append(f"{', '.join(sorted(ending))} stop at the same time")
        for name in ending:
            if each.pods[name].id not in told:
                told.add(each.pods[name].id)
                waits = [other for other, pod in each.pods.items() if other != name and not pod.is_ready]
                if waits:
                    found.append(f"{name} is told to stop before {', '.join(sorted(waits))} are ready")
        if each.up < number - 1:
            found.append(f"{each.up} of {number} nodes are up")
        if each.stuck:
            found.append(f"groups {', '.join(map(str, each.stuck))} have no majority")
    names = order(looks)
    if sorted(names) != sorted(looks[0].pods):
        found.append(f"{', '.join(names) or 'no pods'} were told to stop, not each once")
    found += [f"{name} has {pod.image}" for name, pod in looks[-1].pods.items() if pod.image != image]
    return list(dict.fromkeys(found))


class Watch(threading.Thread):
    """Looks all the time."""

    def __init__(self, take: Callable[[], Look]) -> None:
        """`take` may raise OSError or KeyError, where nobody answers, or a node that does not know: left out."""
        super().__init__(name="rollout", daemon=True)
        self.looks = [take()]
        self._take = take
        self._over = threading.Event()

    def run(self) -> None:
        """The thread."""
        while not self._over.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(OSError, KeyError):
            self.looks.append(self._take())

    def end(self) -> list[Look]:
        """Stop; all that was seen."""
        self._over.set()
        self.join()
        self._look()
        return self.looks
