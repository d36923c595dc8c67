"""Mandatory publishes on their way to shards: what comes to no queue there goes back to the client.

The local catalog may have a queue that its shard has not got yet, or has not any more. The log decides: each shard says
which publishes are nowhere there (`node.shard.results.Published`), and the same of changes under whose id nothing waits
(RULES S4).
"""

from __future__ import annotations

from collections.abc import Sequence

from mayfly.node.amqp.content import Content
from mayfly.node.shard.results import Applied, Published


class MandatoryPublish:
    """One, which may go to queues of several shards."""

    def __init__(self, content: Content, shards: int) -> None:
        """``content`` is what the client is sent back."""
        self.content: Content = content
        self.open_shards: int = shards
        """How many have not answered yet."""
        self.is_nowhere: bool = True
        """Whether all that have answered said so. One that can't tell, or refuses it, does not."""


class MandatoryPart:
    """Those among the publishes that one shard is given together."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._publishes: list[MandatoryPublish] = []

    def add(self, place: int, publish: MandatoryPublish) -> None:
        """The publish at this place of the part, behind all that were added before, is one."""
        self._places.append(place)
        self._publishes.append(publish)

    def answered(self, result: object) -> list[Content]:
        """What goes back to the client now that the shard has answered."""
        nowhere: Sequence[int] = result.nowhere if isinstance(result, (Published, Applied)) else ()
        places = set(nowhere)
        returned: list[Content] = []
        for place, publish in zip(self._places, self._publishes, strict=True):
            publish.open_shards -= 1
            publish.is_nowhere = publish.is_nowhere and place in places
            if publish.is_nowhere and publish.open_shards == 0:
                returned.append(publish.content)
        return returned
