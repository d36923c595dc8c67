"""The catalog's tables, and the changes that keep them consistent with one another."""
from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, Final

import msgspec

from mayfly.node.catalog import refusals
from mayfly.node.catalog.members import Members
from mayfly.node.catalog.permission_table import PermissionTable
from mayfly.node.catalog.placement import Placement
from mayfly.node.catalog.queue_table import QueueTable
from mayfly.node.catalog.records import (
    ExchangeRecord,
    GlobalParameterRecord,
    NodeRecord,
    PermissionRecord,
    QueueRecord,
    QueueSettings,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.switches import Switches
from mayfly.node.catalog.vhost import Vhost, predeclared_exchanges
from mayfly.node.numbers import transient_shard

FIRST_LEVEL: Final = 1
"""Of a cluster that has not said otherwise."""
DEFAULT_VHOST: Final = "/"
DEFAULT_USER: Final = "guest"
DEFAULT_PASSWORD: Final = "guest"
# That with a fixed salt: every replica begins with the same bytes.
_DEFAULT_PASSWORD_HASH: Final = (
    "scrypt$16384$8$1$4d6179666c794d512e6775657374"
    "$008348d20a014305b16c7655cfb5ed3a86f04aadec07b55ac47deb5214bc9c64"
)


_MOST_SHARED: Final = 4096
"""Arguments remembered, to be shared by further queues. When each queue has arguments of its own, nothing is gained."""

_encoder = msgspec.msgpack.Encoder()


class CatalogState:
    """The tables. Dictionaries only, and no sets: their order is that of the commands on every replica."""

    def __init__(self, founding_shards: int) -> None:
        self.founding_shards = founding_shards
        self.next_queue_id = 1
        self.next_serial = 1
        """Of users and vhosts; those that every cluster begins with have 0."""
        self.definitions_digest = ""
        self.level = FIRST_LEVEL
        """What may be written, see cluster/versions.py."""
        self.vhosts: dict[str, Vhost] = {}
        self.routing_steps = RoutingSteps()
        """In all of them; nothing of the state that is stored."""
        self.users: dict[str, UserRecord] = {}
        self.permissions: PermissionTable[PermissionRecord] = PermissionTable()
        """By user and vhost."""
        self.topic_permissions: PermissionTable[TopicPermissionRecord] = PermissionTable()
        """By user, vhost and exchange."""
        self.nodes: dict[int, NodeRecord] = {}
        self.members = Members(founding_shards)
        self.queues = QueueTable()
        self.placement = Placement(founding_shards)
        self.switches = Switches()
        self.global_parameters: dict[str, GlobalParameterRecord] = {}
        self.moving: dict[int, QueueRecord] = {}
        """The queues that are to move or are moving, by id."""
        self.copying: dict[int, QueueRecord] = {}
        """The streams that copy others, by id."""
        self._left: list[QueueRecord] = []
        """Queues of delayed exchanges whose vhosts have let them go; empty between commands."""
        self._shared: dict[bytes, tuple[dict[str, Any], QueueSettings]] = {}

    def add_defaults(self) -> None:
        """What a new cluster begins with: the vhost "/" and the user guest, who may do everything in it."""
        self.add_vhost(VhostRecord(DEFAULT_VHOST, "Default virtual host"))
        self.users[DEFAULT_USER] = UserRecord(DEFAULT_USER, _DEFAULT_PASSWORD_HASH, ("administrator",))
        self.permissions.put(
            (DEFAULT_USER, DEFAULT_VHOST), PermissionRecord(DEFAULT_USER, DEFAULT_VHOST, ".*", ".*", ".*")
        )

    def add_vhost(self, record: VhostRecord) -> None:
        """Add a vhost of a new name, with the exchanges every vhost has."""
        vhost = self.new_vhost(record)
        for exchange in predeclared_exchanges(record.name):
            vhost.add_exchange(exchange)

    def remove_vhost(self, name: str) -> tuple[QueueRecord, ...]:
        """Remove a vhost with its permissions and all in it; the queues that were there."""
        vhost = self.vhosts.pop(name)
        queues = (*vhost.queues.values(), *vhost.delay_queues.values())
        for queue in queues:
            self._forget_queue(queue)
        self.permissions.remove_all(None, name)
        self.topic_permissions.remove_all(None, name)
        self.switches.forget(name)
        return queues

    def remove_user(self, name: str) -> bool:
        """Remove a user with all permissions; whether there was one."""
        self.permissions.remove_all(name, None)
        self.topic_permissions.remove_all(name, None)
        return self.users.pop(name, None) is not None

    def existing_vhost(self, name: str) -> Vhost:
        """The vhost of that name. Raises Refusal if there is none."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise refusals.vhost_not_found(name)
        return vhost

    def existing_user(self, name: str) -> UserRecord:
        """The user of that name. Raises Refusal if there is none."""
        user = self.users.get(name)
        if user is None:
            raise refusals.user_not_found(name)
        return user

    # What `permissions.rights_digest` reads.

    def permission(self, user: str, vhost: str) -> PermissionRecord | None:
        """The user's permissions in the vhost."""
        return self.permissions.get((user, vhost))

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermissionRecord | None:
        """What restricts the user's routing keys at the exchange."""
        return self.topic_permissions.get((user, vhost, exchange))

    def exchange(self, vhost: str, name: str) -> ExchangeRecord | None:
        """The exchange of that name."""
        found = self.vhosts.get(vhost)
        return None if found is None else found.exchange(name)

    def new_serial(self) -> int:
        """A serial for a new user or vhost."""
        self.next_serial += 1
        return self.next_serial - 1

    def shared(
        self, arguments: dict[str, Any], settings: QueueSettings
    ) -> tuple[dict[str, Any], QueueSettings]:
        """The same arguments and settings as objects that other queues have as well: thousands of queues are declared
        alike, and the two take 400 bytes. Records are never changed, so nobody can tell."""
        key = _encoder.encode((arguments, settings))
        known = self._shared.get(key)
        if known is None:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            known = self._shared[key] = (arguments, settings)
        return known

    def add_queue(self, record: QueueRecord) -> None:
        """Add a queue to its vhost."""
        self.queues.put(record)
        self.vhosts[record.vhost].add_queue(record)
        if record.moving_to:
            self.moving[record.id] = record
        if record.settings.mirror is not None or record.settings.sources:
            self.copying[record.id] = record
        if record.replicated:
            self.placement.add(record.shard)

    def replace_queue(self, record: QueueRecord) -> None:
        """A replicated queue is known as this from now on, perhaps in another shard."""
        before = self.queues.get(record.id)
        if before is not None:
            self.placement.remove(before.shard)
        self.placement.add(record.shard)
        self.queues.put(record)
        self.moving.pop(record.id, None)
        if record.moving_to:
            self.moving[record.id] = record
        if record.id in self.copying:
            self.copying[record.id] = record
        self.vhosts[record.vhost].replace_queue(record)

    def remove_queues(self, ids: Iterable[int]) -> tuple[QueueRecord, ...]:
        """Remove queues with their bindings; those of the ids that were there."""
        removed = []
        for queue_id in ids:
            queue = self.queues.get(queue_id)
            if queue is not None:
                self.vhosts[queue.vhost].remove_queue(queue)
                self._forget_queue(queue)
                removed.append(queue)
        return tuple(removed)

    def new_vhost(self, record: VhostRecord) -> Vhost:
        """A vhost of a new name, without anything in it."""
        vhost = self.vhosts[record.name] = Vhost(record, self._left, self.routing_steps)
        return vhost

    def remove_left(self) -> list[QueueRecord]:
        """Remove the queues of delayed exchanges that have gone from their vhosts; which that were."""
        if not self._left:
            return self._left
        left = self._left.copy()
        self._left.clear()
        for queue in left:
            self._forget_queue(queue)
        return left

    def transient_queues(self, node_id: int, up_to_incarnation: int) -> list[QueueRecord]:
        """The transient queues of the node's incarnations up to and including this one."""
        shard, queues = transient_shard(node_id), self.queues
        owned = chain.from_iterable(queues.in_block(shard, block) for block in queues.blocks_of(shard))
        return [queue for queue in owned if queue.owner_incarnation <= up_to_incarnation]

    def take_apart(self, most: int) -> bool:
        """Remove so many queues of a state that is of no more use; whether there are others left."""
        self.remove_queues([queue.id for queue in islice(self.queues.values(), most)])
        return len(self.queues) > 0

    def _forget_queue(self, queue: QueueRecord) -> None:
        self.queues.remove(queue)
        self.moving.pop(queue.id, None)
        self.copying.pop(queue.id, None)
        if queue.replicated:
            self.placement.remove(queue.shard)
