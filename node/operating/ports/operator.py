"""What operators see and do."""

from typing import Any, Protocol

from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.trace_wish import TraceWish


class OperatorPort(Protocol):
    """What operators may see and do. What changes something answers (status, JSON) when the catalog has decided."""

    async def tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """The tags of a user with the right password, who may come from there; none for anybody else. By the catalog
        as it is now, or as this node has it if it has no leader."""

    async def monitor_tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """The same by the catalog as this node has it: for pages that show what it has, whatever the others do."""

    def is_own_token(self, text: str) -> bool:
        """Whether that is this node's own token (`node.operating.own_token`)."""

    def may_be_removed_by_token(self, name: str) -> bool:
        """Whether the member (its name or id) is this node, or one that this node hears nothing of."""

    async def freshness(self) -> dict[str, Any]:
        """Waits, not long, until this node shows what the cluster has now. `current` says whether it does, and
        `reason` why not."""

    async def members(self) -> dict[str, Any]:
        """The `members` of the cluster, and the `unknown_shards`, of which no node has told who votes."""

    def cluster(self) -> str:
        """The id of the cluster."""

    def level(self) -> int:
        """The cluster's feature level."""

    async def groups(self) -> list[dict[str, Any]]:
        """Who votes in which group, and who shall; `unknown` where no node has told who does."""

    async def replicas(self) -> list[dict[str, Any]]:
        """Which node has which group, who leads, and how far each replica is; `unknown` at one of which its node has
        told nothing within 2 s."""

    async def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """Dead letters that wait (RULES D8): the parked ones that are meant, the lanes, and the `unknown_shards`."""

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        """Have the parked ones that are meant routed again, or dropped; answers when it is done."""

    async def remove_member(self, name: str) -> Answer:
        """Begin to take a member out."""

    def drain(self) -> Answer:
        """Begin to drain this node; `/status` shows how far it has come."""

    async def snapshot(self, folder: str, whole: bool) -> Answer:
        """Copy this node's data to a folder of its machine; or the `whole` cluster's, from as many nodes as it takes,
        each in a folder of its own machine. Says which groups each copy has, and which are in none."""

    async def revive(self) -> Answer:
        """Have a drained node serve again."""

    def log_levels(self) -> dict[str, Any]:
        """The `levels` of this node's parts that have one of their own; of "" that of the process."""

    def set_log_level(self, part: str, level: str) -> Answer:
        """Until this node ends; "": as what it is a part of. Raises ValueError."""

    async def trace(self, wish: TraceWish) -> Answer:
        """What clients of this node do for that long; the `events`, and how many were `left_out`."""

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        """Choose the voters of a group; nobody: have them worked out."""

    async def move_queue(self, vhost: str, name: str, shard: int) -> Answer:
        """Have a queue move to another shard; answers when it has been told to."""

    def shard_count(self) -> int:
        """How many shards there are."""

    async def add_shards(self, total: int) -> Answer:
        """Have so many shards in all."""

    async def switch(self, vhost: str | None, feature: str, on: bool) -> Answer:
        """Switch a feature on or off, in a vhost or, for None, in the whole cluster (RULES X3)."""

    async def transfer_group(self, group: int, leader: str) -> Answer:
        """Choose the leader of a group among its voters."""
