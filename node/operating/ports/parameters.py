"""RabbitMQ's parameters of vhosts: what stands behind limits and operator policies."""

from typing import Any, Protocol

from mayfly.node.operating.ports.answers import Answer

Path = dict[str, str]
"""The component, vhost and name in the path of a page, as far as they are given."""


class ParametersPort(Protocol):
    """Of the components `operator_policy` and `vhost-limits`; there are no others here."""

    def parameters(self, at: Path) -> list[dict[str, Any]] | None:
        """Those of the component and vhost; None where there is no such vhost."""

    async def put_parameter(self, at: Path, content: dict[str, Any]) -> Answer:
        """Set one. Raises ValueError for a body that can't be."""

    async def delete_parameter(self, at: Path) -> Answer:
        """Take one away."""
