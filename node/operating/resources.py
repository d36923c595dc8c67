"""What each node knows of itself alone, such as its memory: asked of all."""

from collections.abc import Callable
from typing import Any

import msgspec

from mayfly.node.operating.node_questions import NodeQuestions


class _Ask(msgspec.Struct, tag="NodeResources"):
    """`Resources.of_all`."""


class Resources:
    """For one node."""

    def __init__(self, questions: NodeQuestions, own: Callable[[], dict[str, Any]]) -> None:
        """`own()`: in the fields of RabbitMQ's `/api/nodes`."""
        self._questions = questions
        questions.add(_Ask, dict[str, Any], lambda _: own())

    async def of_all(self) -> dict[int, dict[str, Any]]:
        """By node, of those that answer."""
        return await self._questions.ask_all(_Ask())
