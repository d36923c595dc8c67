"""What the HTTP server asks the node for."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from node.parked_selection import Selection

#: (name, help, "gauge" or "counter", [(labels, value), ...]). A counter's name may leave `_total` out.
Metric: TypeAlias = tuple[str, str, str, Sequence[tuple[Mapping[str, str], float]]]


class StatusProvider(Protocol):
    """A running node as others see it. All methods answer at once and from memory."""

    def is_live(self) -> bool:
        """False: the process should be replaced."""

    def readiness(self) -> tuple[bool, str]:
        """Whether clients can be served, and the reason where they cannot."""

    def status(self) -> dict[str, Any]:
        """Nodes, groups, queues and alarms as this node knows them; goes through JSON."""

    def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One queue as this node has it: id, shard, leader, counts; None if it knows of none. No use of it (L2)."""

    def metrics_snapshot(self) -> Sequence[Metric]:
        """The node's metrics now."""


class OperatorPort(Protocol):
    """What operators may see and do. What changes something answers (status, JSON) when the catalog has decided."""

    async def may_operate(self, user: str, password: str, loopback: bool) -> bool:
        """Whether that is an administrator with the right password, where that user may come from; by the catalog
        as it is now, or as this node has it if it has no leader."""

    async def freshness(self) -> dict[str, Any]:
        """Waits, not long, until this node shows what the cluster has now. `current` says whether it does, and
        `reason` why not."""

    def members(self) -> list[dict[str, Any]]:
        """The members of the cluster."""

    def groups(self) -> list[dict[str, Any]]:
        """Who votes in which group, and who shall."""

    def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """Dead letters that wait (RULES D8): the parked ones that are meant, and the lanes."""

    async def settle_dead_letters(self, release: bool, selection: Selection) -> tuple[HTTPStatus, dict[str, Any]]:
        """Have the parked ones that are meant routed again, or dropped; answers when it is done."""

    async def remove_member(self, name: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Begin to take a member out."""

    async def move_group(self, group: int, voters: tuple[str, ...]) -> tuple[HTTPStatus, dict[str, Any]]:
        """Choose the voters of a group; nobody: have them worked out."""

    async def transfer_group(self, group: int, leader: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Choose the leader of a group among its voters."""
