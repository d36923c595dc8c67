"""The catalog's tables, and the changes that keep them consistent with one another."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from mayfly.node.catalog import refusals
from mayfly.node.catalog.members import Members
from mayfly.node.catalog.permission_table import PermissionTable
from mayfly.node.catalog.placement import Placement
from mayfly.node.catalog.records import (
    ExchangeRecord,
    NodeRecord,
    PermissionRecord,
    QueueRecord,
    QueueSettings,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.vhost import Vhost, predeclared_exchanges

FIRST_LEVEL: Final = 1
"""Of a cluster that has not said otherwise."""
DEFAULT_VHOST: Final = "/"
DEFAULT_USER: Final = "guest"
# "guest" with a fixed salt: every replica begins with the same bytes.
_DEFAULT_PASSWORD_HASH: Final = (
    "scrypt$16384$8$1$4d6179666c794d512e6775657374"
    "$008348d20a014305b16c7655cfb5ed3a86f04aadec07b55ac47deb5214bc9c64"
)


_MOST_SHARED: Final = 4096
"""Arguments remembered, to be shared by further queues. When each queue has arguments of its own, nothing is gained."""

_encoder = msgspec.msgpack.Encoder()


class CatalogState:
    """The tables. Dictionaries only, and no sets: their order is that of the commands on every replica."""

    def __init__(self, shard_count: int) -> None:
        self.shard_count = shard_count
        self.next_queue_id = 1
        self.next_serial = 1
        """Of users and vhosts; those that every cluster begins with have 0."""
        self.definitions_digest = ""
        self.level = FIRST_LEVEL
        """What may be written, see cluster/versions.py."""
        self.vhosts: dict[str, Vhost] = {}
        self.users: dict[str, UserRecord] = {}
        self.permissions: PermissionTable[PermissionRecord] = PermissionTable()
        """By user and vhost."""
        self.topic_permissions: PermissionTable[TopicPermissionRecord] = PermissionTable()
        """By user, vhost and exchange."""
        self.nodes: dict[int, NodeRecord] = {}
        self.members = Members(shard_count)
        self.queues: dict[int, QueueRecord] = {}
        self.placement = Placement(shard_count)
        self._transient: dict[int, dict[int, QueueRecord]] = {}
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
        vhost = self.vhosts[record.name] = Vhost(record)
        for exchange in predeclared_exchanges(record.name):
            vhost.add_exchange(exchange)

    def remove_vhost(self, name: str) -> tuple[QueueRecord, ...]:
        """Remove a vhost with its permissions and all in it; the queues that were there."""
        vhost = self.vhosts.pop(name)
        queues = tuple(vhost.queues.values())
        for queue in queues:
            self._forget_queue(queue)
        self.permissions.remove_all(None, name)
        self.topic_permissions.remove_all(None, name)
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
        self.queues[record.id] = record
        self.vhosts[record.vhost].add_queue(record)
        if record.replicated:
            self.placement.add(record.shard)
        else:
            self._transient.setdefault(record.owner_node, {})[record.id] = record

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

    def transient_queues(self, node_id: int, up_to_incarnation: int) -> list[QueueRecord]:
        """The transient queues of the node's incarnations up to and including this one."""
        owned = self._transient.get(node_id, {})
        return [queue for queue in owned.values() if queue.owner_incarnation <= up_to_incarnation]

    def _forget_queue(self, queue: QueueRecord) -> None:
        del self.queues[queue.id]
        if queue.replicated:
            self.placement.remove(queue.shard)
        else:
            owned = self._transient[queue.owner_node]
            del owned[queue.id]
            if not owned:
                del self._transient[queue.owner_node]
