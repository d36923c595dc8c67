"""All that clients and operators have declared, out and in."""

from typing import Any, Protocol

from mayfly.node.operating.ports.answers import Answer


class DefinitionsPort(Protocol):
    """RabbitMQ's definitions: export and import."""

    async def export(self, vhost: str | None = None) -> dict[str, Any]:
        """All definitions, or those in a vhost."""
        ...

    async def import_(self, data: bytes, strict: bool = False, vhost: str | None = None) -> Answer:
        """Do what a file says; where a vhost is given, in that one, what the file says of what is in a vhost. 200 with
        `notes` on what was left out, 400 with the `reason` (nothing is done), 504. `strict`: 400, with the `notes`, if
        anything would be left out."""
        ...
