"""The node that was killed is started again, alone and on its data, and catches up."""

import time
from typing import Final

from mayfly.node.demonstration.client import connect, wait_until
from mayfly.node.demonstration.narrator import Narrator
from mayfly.node.local_nodes.local_cluster import ClusterError, LocalCluster, NodePlan, fetch, log_tail
from mayfly.node.settings import NodeSettings

BACK_WITHIN_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_QUEUE: Final = "demo.after"


def play(narrator: Narrator, cluster: LocalCluster, victim: NodePlan, settings: NodeSettings) -> None:
    """Start the node that was killed and use it."""
    narrator.scene(f"3. {victim.name} comes back, on its data")
    witness = cluster.running()[0]
    goal = _commits(witness)
    narrator.say(f"$ {victim.command()}")
    started_s = time.monotonic()
    pid = cluster.start_node(victim)
    try:
        cluster.wait_until_serving(timeout_s=_PATIENCE_S)
    except ClusterError as error:
        narrator.promise(f"it serves again within {BACK_WITHIN_S:.0f} s", False, str(error))
        return
    took_ms = round(1000 * (time.monotonic() - started_s))
    if victim not in cluster.running():
        narrator.promise(f"it serves again within {BACK_WITHIN_S:.0f} s", False, f"it ended; {log_tail(victim)}")
        return
    text = f"it serves again within {BACK_WITHIN_S:.0f} s"
    narrator.promise(text, True, f"pid {pid}, after {took_ms} ms", took_ms <= 1000 * BACK_WITHIN_S)

    def caught_up() -> bool:
        here = _commits(victim, "applied")
        return all(here.get(group, -1) >= index for group, index in goal.items())

    kept = wait_until(caught_up, _PATIENCE_S)
    took_ms = round(1000 * (time.monotonic() - started_s))
    narrator.promise(
        "it has caught up with what was committed without it",
        kept,
        f"{len(goal)} groups, {sum(goal.values())} entries, after {took_ms} ms",
    )
    _use(narrator, victim, witness, settings)


def _use(narrator: Narrator, plan: NodePlan, other: NodePlan, settings: NodeSettings) -> None:
    """A message goes in on the node that came back, and out on another."""
    there, here = (
        connect(plan, settings, "demonstration: back"),
        connect(other, settings, "demonstration: other"),
    )
    try:
        publishing, getting = there.channel(), here.channel()
        publishing.queue_declare(_QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        publishing.confirm_delivery()
        publishing.basic_publish("", _QUEUE, b"hello", mandatory=True)
        _, _, body = getting.basic_get(_QUEUE, auto_ack=True)
        getting.queue_delete(_QUEUE)
    finally:
        there.close()
        here.close()
    narrator.promise(
        f"a message published on {plan.name} is got on {other.name}", body == b"hello", f"{body!r} received"
    )


def _commits(plan: NodePlan, key: str = "commit") -> dict[int, int]:
    """An index of every group, as the node has it."""
    _, status = fetch(plan.http, "/status")
    return {int(group["group"]): int(group[key]) for group in status["groups"]}
