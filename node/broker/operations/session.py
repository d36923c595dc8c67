"""Classes confirm and tx."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from node.broker.confirms import Confirms
from node.broker.operation import AmqpError, Steps

if TYPE_CHECKING:
    from node.broker.channel import Channel


def select(channel: Channel, method: Any, arguments: bytes) -> None:
    """confirm.select; a second one changes nothing."""
    if channel.publisher.confirms is None:
        channel.publisher.confirms = Confirms()
    if not method.nowait:
        channel.send(commands.Confirm.SelectOk())


def transactions(channel: Channel, method: Any, arguments: bytes) -> None:
    """tx.*: not there; publisher confirms are."""
    raise AmqpError(540, "transactions (tx) are not supported; use publisher confirms (confirm.select)")


HANDLERS: Final[dict[str, Callable[[Channel, Any, bytes], Steps | None]]] = {
    "Confirm.Select": select,
    "Tx.Select": transactions,
    "Tx.Commit": transactions,
    "Tx.Rollback": transactions,
}
