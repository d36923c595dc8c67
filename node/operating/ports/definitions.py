"""All that clients and operators have declared, out and in."""

from typing import Any, Protocol

from mayfly.node.operating.ports.answers import Answer


class DefinitionsPort(Protocol):
    """RabbitMQ's definitions: export and import."""

    async def export(self) -> dict[str, Any]:
        """All definitions."""
        ...

    async def import_(self, data: bytes) -> Answer:
        """Do what a file says: 200 with `notes` on what was left out, 400 with the `reason` (nothing is done), 504."""
        ...
