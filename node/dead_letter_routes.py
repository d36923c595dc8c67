"""From a death in a shard's outbox to the decision that goes into the log (RULES D5, D6, D8)."""

from cluster.group import Group
from node.catalog import Catalog
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


class DeathRouter:
    """Decides with the local catalog; the decision counts once it is in the log."""

    def __init__(self, catalog: Catalog) -> None:
        self._router = DeadLetterRouter(catalog)

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
        if not decision.targets:
            return commands.RouteDecision(death.sequence, commands.DROPPED_CYCLE)
        local = [queue.id for queue in decision.targets if queue.shard == group.id]
        remote = [(queue.shard, queue.id) for queue in decision.targets if queue.shard != group.id]
        content = commands.Content(
            decision.content.exchange_and_key, decision.content.header, decision.content.body
        )
        return commands.RouteDecision(death.sequence, commands.ROUTED, local, remote, content)
