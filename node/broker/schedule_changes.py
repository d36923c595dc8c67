"""The header `x-schedule-cancel`: a publish that cancels what waits under a message id, and is not stored (RULES S4).

With `x-delay` or `x-deliver-at` beside it, what waits is due at that time from then on. It means something only where a
queue that the message goes to allows schedules, as those headers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.amqp.field_table import LONG_STRING, VOID, to_python
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.operation import AmqpError
from mayfly.node.shard.commands import CANCEL
from mayfly.node.shard.message_id import digest_of
from mayfly.node.shard.results import Published

SCHEDULE_CANCEL: Final = "x-schedule-cancel"
CANCELLED: Final = (CANCEL, 0)
"""In place of a time."""
_NAME: Final = b"x-schedule-cancel"
_LONGEST_ID_OCTETS: Final = 255
_SHOWN_CHARACTERS: Final = 100


def digest_to_change(content: Content) -> bytes:
    """Of the message id that a publish means by the header; empty if it has none. Raises AmqpError 406 for what can be
    no message id."""
    value = content.header_value(_NAME)
    if value is None:
        return b""
    if value.tag != LONG_STRING or not 0 < len(value.octets()) <= _LONGEST_ID_OCTETS:
        shown = "void" if value.tag == VOID else repr(to_python(value.tag, value.raw))[:_SHOWN_CHARACTERS]
        raise AmqpError(
            PRECONDITION_FAILED,
            f"invalid message: {SCHEDULE_CANCEL} = {shown} ({value.type_name()}): a message id is expected, a string "
            f"of 1 to {_LONGEST_ID_OCTETS} octets",
        )
    return digest_of(value.octets())


def refused_in_transaction() -> AmqpError:
    """A commit can't be told that nothing was waiting."""
    return AmqpError(
        PRECONDITION_FAILED,
        f"invalid message: {SCHEDULE_CANCEL} can be no part of a transaction: another channel is for it",
    )


class ScheduleChange:
    """One such publish, which may go to queues of several shards."""

    def __init__(self, content: Content | None, shards: int) -> None:
        """``content`` is returned to the client if nothing waits anywhere under the id; None: it is not mandatory."""
        self.content: Content | None = content
        self.open_shards: int = shards
        self.is_nowhere: bool = True
        """Whether no shard has said yet that something waited there, or that it can't tell."""


class RunChanges:
    """Those of one run."""

    def __init__(self, send_returns: Callable[[list[Content]], None]) -> None:
        self._send_returns = send_returns
        self._changes: list[tuple[int, ScheduleChange]] = []

    def add(self, place: int, change: ScheduleChange) -> None:
        """The publish at this place in the run is one."""
        self._changes.append((place, change))

    def answered(self, done: OnDone | None, result: object) -> None:
        """The shard's answer to the run; ``done`` is told it behind the returns that follow from it."""
        returns: list[Content] = []
        not_waiting = set(result.not_waiting) if isinstance(result, Published) else set()
        for place, change in self._changes:
            change.open_shards -= 1
            change.is_nowhere = change.is_nowhere and place in not_waiting
            if change.open_shards == 0 and change.is_nowhere and change.content is not None:
                returns.append(change.content)
        if returns:
            self._send_returns(returns)
        if done is not None:
            done(result)
