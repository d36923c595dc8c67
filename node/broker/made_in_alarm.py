"""What clients make while an alarm is on. It blocks who publishes; queues, exchanges and bindings take memory and disk,
too.

They cannot all be refused, or held back: who comes to empty the queues that have caused the alarm may need a queue of
his own for it (Celery's workers declare theirs before they consume). So each user may make a number of them.
"""

from __future__ import annotations

from mayfly.node.broker.operation import AmqpError


class MadeInAlarm:
    """How much each user has made through this node since the alarm is on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[str, int] = {}

    def check(self, user: str, alarm: str | None) -> None:
        """The user is about to make a queue, an exchange or a binding. Raises AmqpError (406) if that is too many;
        `alarm` is what is told of the one that is on, None if there is none."""
        if alarm is None:
            return
        made = self._made.get(user, 0)
        if made >= self._most:
            raise AmqpError(
                406,
                f"user '{user}' has made {made} queues, exchanges and bindings while the cluster is {alarm}:"
                " that is the most until it no longer is",
            )
        self._made[user] = made + 1

    def alarm_is_over(self) -> None:
        """Count anew with the next alarm."""
        self._made.clear()
