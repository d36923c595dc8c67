"""What routing costs, counted, and whose turn it is to route where it costs much.

Bindings, keys and headers come from clients, and to route one message can't be interrupted: some of them cost a
thousand times what others do. So all routing of a node is counted in steps of about half a microsecond, and whoever
routes many messages, a channel that publishes or the duty that sees to a shard's dead, looks before each of them
whether the turn is over. If it is, it stands in line, and goes on in a later turn of the node: everything else that the
node does comes between. Each in the line has a turn, one after the other, however much it has to do.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mayfly.node.limits import ROUTING_STEPS_OF_MESSAGE, ROUTING_STEPS_PER_TURN


class RoutingSteps:
    """What routing has cost so far: nodes of trees of patterns, words held against chunks of them, values of headers
    made ready and held against bindings, exchanges come to with each key, queues found."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0

    def check(self, before: int) -> None:
        """Raise TooManySteps if one message, whose routing began at `before`, has taken so many."""
        if self.taken - before > ROUTING_STEPS_OF_MESSAGE:
            raise TooManySteps


class TooManySteps(Exception):
    """To route a message takes more than ROUTING_STEPS_OF_MESSAGE: it has too many keys for so many exchanges. It has
    no route then."""


class RoutingTurns:
    """The turns of one node. A turn ends with the message that takes it past ROUTING_STEPS_PER_TURN."""

    def __init__(self, steps: RoutingSteps) -> None:
        self.steps: RoutingSteps = steps
        """Those that count. They only grow."""
        self._ends_at = steps.taken + ROUTING_STEPS_PER_TURN
        self._line: deque[object] = deque()
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        """By who is in the line."""

    @property
    def is_over(self) -> bool:
        """Whether nobody is to route a message in this turn any more."""
        return self.steps.taken >= self._ends_at

    @property
    def has_waiting(self) -> bool:
        """Whether somebody stands in line."""
        return len(self._line) > 0

    def enter(self, who: object, go_on: Callable[[], None]) -> None:
        """Stand in line as `who`, which has one turn whatever it waits for: `go_on()` when it is there. It may route
        one message at least, and is to look after each whether the turn is over."""
        waiting = self._waiting.get(who)
        if waiting is None:
            waiting = self._waiting[who] = deque()
            self._line.append(who)
        waiting.append(go_on)

    def begin(self) -> None:
        """A turn of the node begins: who stands in line goes on, the first one first."""
        self._ends_at = self.steps.taken + ROUTING_STEPS_PER_TURN
        while self._line and not self.is_over:
            who = self._line.popleft()
            waiting = self._waiting[who]
            go_on = waiting.popleft()
            if waiting:
                self._line.append(who)
            else:
                del self._waiting[who]
            go_on()
