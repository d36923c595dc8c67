"""The catalog's stored form: one MessagePack array with a format version.

Tables keep their order, so that a replica that came from a snapshot goes on exactly as one that did not.
"""
from __future__ import annotations

from typing import Final

import msgspec

from mayfly.cluster.versions import LEVEL_SNAPSHOT_SAYS_LEVEL
from mayfly.node.catalog.members import Members, StoredMembers
from mayfly.node.catalog.records import (
    BindingRecord,
    ExchangeRecord,
    NodeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.state import FIRST_LEVEL, CatalogState
from mayfly.node.catalog.vhost import Vhost

FORMAT_VERSION: Final = 6
"""2: vhosts have policies; what was written as 1 is read as having none. 3: members have failure domains; what was
written before is read as knowing none. 4: topic permissions, and limits and serials of users and vhosts; before: none,
and serial 0. 5: which definitions were loaded; before: none. 6: the feature level; before: the first."""

_WITHOUT_LEVEL: Final = 5
"""Written as long as there may be members that read no other: what they don't know at a row's end they pass over."""

_READABLE: Final = (1, 2, 3, 4, _WITHOUT_LEVEL, FORMAT_VERSION)


class MalformedSnapshot(ValueError):
    """The bytes are not a catalog snapshot this version can read, or it is of another number of shards."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format_version: int


class _StoredVhost(msgspec.Struct, frozen=True, array_like=True):
    vhost: VhostRecord
    exchanges: list[ExchangeRecord]
    bindings: list[BindingRecord]
    policies: list[PolicyRecord] = []
    operator_policies: list[PolicyRecord] = []


class _StoredCatalog(msgspec.Struct, frozen=True, array_like=True):
    format_version: int
    shard_count: int
    next_queue_id: int
    vhosts: list[_StoredVhost]
    queues: list[QueueRecord]
    users: list[UserRecord]
    permissions: list[PermissionRecord]
    nodes: list[NodeRecord]
    members: StoredMembers = StoredMembers()
    topic_permissions: list[TopicPermissionRecord] = []
    next_serial: int = 1
    definitions_digest: str = ""
    level: int = FIRST_LEVEL


_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(_Header)
_decoder = msgspec.msgpack.Decoder(_StoredCatalog)


def dump(state: CatalogState) -> bytes:
    """The whole state."""
    return _encoder.encode(
        _StoredCatalog(
            FORMAT_VERSION if state.level >= LEVEL_SNAPSHOT_SAYS_LEVEL else _WITHOUT_LEVEL,
            state.shard_count,
            state.next_queue_id,
            [
                _StoredVhost(
                    vhost.record, list(vhost.exchanges()), list(vhost.bindings()), list(vhost.policies.records()),
                    list(vhost.operator_policies.records()),
                )
                for vhost in state.vhosts.values()
            ],
            list(state.queues.values()),
            list(state.users.values()),
            list(state.permissions.records()),
            list(state.nodes.values()),
            state.members.stored(),
            list(state.topic_permissions.records()),
            state.next_serial,
            state.definitions_digest,
            state.level,
        )
    )


def load(data: bytes, shard_count: int) -> CatalogState:
    """The state in a snapshot. Raises MalformedSnapshot."""
    try:
        version = _header_decoder.decode(data).format_version
        if version not in _READABLE:
            raise MalformedSnapshot(f"format {version} of the catalog; this version reads up to {FORMAT_VERSION}")
        stored = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedSnapshot(f"not a catalog snapshot: {error}") from error
    if stored.shard_count != shard_count:
        raise MalformedSnapshot(
            f"the catalog was made for {stored.shard_count} shards, this node has {shard_count}"
        )
    state = CatalogState(shard_count)
    state.next_queue_id = stored.next_queue_id
    try:
        for stored_vhost in stored.vhosts:
            vhost = state.vhosts[stored_vhost.vhost.name] = Vhost(stored_vhost.vhost)
            for policy in stored_vhost.policies:
                vhost.policies.put(policy)
            for policy in stored_vhost.operator_policies:
                vhost.operator_policies.put(policy)
            for exchange in stored_vhost.exchanges:
                vhost.add_exchange(exchange)
        for queue in stored.queues:
            arguments, settings = state.shared(queue.arguments, queue.settings)
            vhost_name = state.vhosts[queue.vhost].record.name
            state.add_queue(
                msgspec.structs.replace(queue, vhost=vhost_name, arguments=arguments, settings=settings)
            )
        for stored_vhost in stored.vhosts:
            for binding in stored_vhost.bindings:
                state.vhosts[stored_vhost.vhost.name].add_binding(binding)
    except (KeyError, IndexError) as error:
        raise MalformedSnapshot(f"the catalog snapshot contradicts itself: {error}") from error
    state.users = {user.name: user for user in stored.users}
    for permission in stored.permissions:
        state.permissions.put((permission.user, permission.vhost), permission)
    for restriction in stored.topic_permissions:
        state.topic_permissions.put((restriction.user, restriction.vhost, restriction.exchange), restriction)
    state.next_serial = stored.next_serial
    state.definitions_digest = stored.definitions_digest
    state.level = stored.level
    state.nodes = {node.id: node for node in stored.nodes}
    state.members = Members(shard_count, stored.members)
    return state
