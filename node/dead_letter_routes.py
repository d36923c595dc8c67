"""From a death in a shard's outbox to the decision that goes into the log (RULES D5, D6, D8)."""

from typing import Protocol

from cluster.group import Group
from node.broker.cluster_facade import TRANSIENT_SHARD_BASE
from node.catalog import Catalog, QueueRecord
from node.dead_letter.routing import DeadLetterRouter
from node.shard import commands
from node.shard.message import Message
from node.shard.outbox import Death


def content_of(data: bytes, message: Message) -> commands.Content:
    """The content of a message, cut from the payload of its entry."""
    header = message.offset + message.key_length
    body = header + message.header_length
    return commands.Content(
        data[message.offset : header], data[header:body], data[body : body + message.body_length]
    )


class TransientTargets(Protocol):
    """The way to queues that live in one node's memory."""

    def publish_transient(self, queues: list[QueueRecord], content: commands.Content) -> None:
        """Enqueue there, once at most: such a queue is gone with its node, so there is nothing to be exact about."""
        ...


class DeathRouter:
    """Decides with the local catalog; the decision counts once it is in the log."""

    def __init__(self, catalog: Catalog, transient: TransientTargets) -> None:
        self._router = DeadLetterRouter(catalog)
        self._transient = transient

    def decide(self, group: Group, death: Death) -> commands.RouteDecision:
        """Where a dead message goes."""
        message = death.message
        original = content_of(group.log.data(message.index), message)
        decision = self._router.decide(death.settings, original, death.reason, death.time_ms // 1000)
        if decision.unroutable:
            outcome = commands.PARKED
            if death.settings.dead_letter_at_most_once:
                outcome = commands.DROPPED_UNROUTABLE
            return commands.RouteDecision(death.sequence, outcome)
        content = commands.Content(
            decision.content.exchange_and_key, decision.content.header, decision.content.body
        )
        local: list[int] = []
        remote: list[tuple[int, int]] = []
        transient: list[QueueRecord] = []
        for queue in decision.targets:
            if queue.shard == group.id:
                local.append(queue.id)
            elif queue.shard < TRANSIENT_SHARD_BASE:
                remote.append((queue.shard, queue.id))
            else:
                transient.append(queue)
        if transient:
            self._transient.publish_transient(transient, content)
        if local or remote:
            return commands.RouteDecision(death.sequence, commands.ROUTED, local, remote, content)
        if transient:
            return commands.RouteDecision(death.sequence, commands.DROPPED_UNROUTABLE)
        return commands.RouteDecision(death.sequence, commands.DROPPED_CYCLE)


