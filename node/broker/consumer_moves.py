"""A consumer whose queue has moved to another shard is attached there; its client hears nothing of it. And one is
detached, wherever its queue may move meanwhile.

What it holds is settled in the old shard, under its old id. Until that has been done a limit of unacknowledged messages
counts in each of the two shards by itself.
"""

from __future__ import annotations

from typing import Any, Final

from mayfly.node.broker.client import ClientChannel
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterFacade
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.node_consumers import NodeConsumers
from mayfly.node.broker.operation import LaterStep, ShardStep, Steps
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.shard.commands import KEPT, NOOP, encode_attach, encode_detach
from mayfly.node.shard.effects import ConsumerMoved
from mayfly.node.shard.message import GIVEN_BACK
from mayfly.node.shard.results import Attached, Gone, Moved

_NEXT_ENTRY: Final = bytes((NOOP,))


def detach(consumer: Consumer) -> Steps:
    """Have nothing more delivered to it. What it holds stays held."""
    holder = None
    while holder is not consumer.holder:
        # Its queue may move meanwhile, and it is attached under another name.
        holder = consumer.holder
        yield ShardStep(holder.shard_id, encode_detach(holder.queue_id, holder.holder_id, KEPT))
        # What it was given in the same entry of the log comes after that answer, and before that of another entry: it
        # is held, and its client has to know.
        yield ShardStep(holder.shard_id, _NEXT_ENTRY)


def attach_again(
    channel: ClientChannel, cluster: ClusterFacade, consumers: NodeConsumers, consumer: Consumer, moved: ConsumerMoved
) -> Steps:
    """Attach a consumer where its queue is now, then detach it where it was."""
    old = consumer.holder
    new_id = consumers.new_id()
    shard = moved.shard
    attach = encode_attach(
        old.queue_id, new_id, moved.prefetch, consumer.no_ack, moved.exclusive, moved.priority,
        consumer.window_bytes, again=True,
    )  # fmt: skip
    while consumers.by_id.get(old.holder_id) is consumer:
        answer: Any = yield ShardStep(shard, attach)
        is_its = consumers.by_id.get(old.holder_id) is consumer
        if isinstance(answer, Attached):
            if is_its:
                new = DeliveryHolder(new_id, shard, old.queue_id, old.timeout_ms)
                old.successor = new
                consumers.attached_again(consumer, new, cluster.shard(shard))
                cluster.shard(old.shard_id).submit(encode_detach(old.queue_id, old.holder_id, KEPT), None)
            else:
                # Cancelled meanwhile, or lost with its channel.
                cluster.shard(shard).submit(encode_detach(old.queue_id, new_id, GIVEN_BACK), None)
            return
        has_moved = isinstance(answer, Gone) and not answer.reason and cluster.catalog.queue_by_id(old.queue_id)
        if answer is SESSION_LOST or has_moved:
            shard = moved.shard
            yield LaterStep()
        elif isinstance(answer, Moved):
            if answer.shard == shard:
                yield LaterStep()
            shard = answer.shard
        else:
            # The queue was deleted, or somebody else has it for himself.
            if is_its:
                cluster.shard(old.shard_id).submit(encode_detach(old.queue_id, old.holder_id, KEPT), None)
                channel.consumer_cancelled(consumer.tag, old)
            return
