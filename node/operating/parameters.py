"""RabbitMQ's parameters: the `ParametersPort`. They are another way to limits of vhosts and operator policies."""

from http import HTTPStatus
from typing import Any

from mayfly.node.catalog import Catalog
from mayfly.node.operating.access import Access
from mayfly.node.operating.definitions.exporting import parameters_of
from mayfly.node.operating.definitions.reading import OPERATOR_POLICY, VHOST_LIMITS
from mayfly.node.operating.management import Management
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request
from mayfly.node.operating.ports.management import PolicyWish
from mayfly.node.operating.ports.parameters import Path

_LIMITS_NAME = "limits"


class Parameters:
    """For one node."""

    def __init__(self, catalog: Catalog, management: Management, access: Access) -> None:
        self._catalog = catalog
        self._management = management
        self._access = access

    def parameters(self, at: Path) -> list[dict[str, Any]] | None:
        """See `ParametersPort.parameters`."""
        vhost = at.get("vhost")
        if vhost is not None and not self._catalog.has_vhost(vhost):
            return None
        return [row for row in parameters_of(self._catalog) if all(row[key] == at[key] for key in at)]

    async def put_parameter(self, at: Path, content: dict[str, Any]) -> Answer:
        """See `ParametersPort.put_parameter`."""
        if "value" not in content:
            raise ValueError("key_missing: value is missing in the body")
        component, value = at["component"], content["value"]
        if component not in (OPERATOR_POLICY, VHOST_LIMITS):
            return bad_request(f"Validation failed\n\ncomponent {component} not found\n")
        if not isinstance(value, dict):
            raise ValueError("value takes an object")
        if component == OPERATOR_POLICY:
            wish = PolicyWish(
                at["vhost"], at["name"], value.get("pattern"), value.get("definition"), value.get("priority"),
                value.get("apply-to"), True,
            )  # fmt: skip
            return await self._management.set_policy(wish)
        if at["name"] != _LIMITS_NAME:
            return bad_request(f"Validation failed\n\nname is '{at['name']}', {_LIMITS_NAME} is expected\n")
        return await self._put_limits(at["vhost"], value)

    async def _put_limits(self, vhost: str, limits: dict[str, Any]) -> Answer:
        record = self._catalog.vhost(vhost)
        if record is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        existed = bool(record.limits)
        for name in record.limits.keys() - limits.keys():
            await self._access.delete_limit({"vhost": vhost, "limit": name})
        for name, value in limits.items():
            answer = await self._access.put_limit({"vhost": vhost, "limit": name}, {"value": value}, "")
            if answer[0] >= HTTPStatus.BAD_REQUEST:
                return answer
        return (HTTPStatus.NO_CONTENT if existed else HTTPStatus.CREATED), {}

    async def delete_parameter(self, at: Path) -> Answer:
        """See `ParametersPort.delete_parameter`."""
        if not self.parameters(at):
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        if at["component"] == OPERATOR_POLICY:
            return await self._management.clear_policy(at["vhost"], at["name"], True)
        return await self._put_limits(at["vhost"], {})
