"""The catalog's stored form: one MessagePack array with a format version, written and read in steps.

    catalog = [format, shards at the founding, next queue id, [vhost*], [queue*], [user*], [permission*], [node*],
               members, [topic permission*], next serial, digest of definitions, feature level, [what is off*],
               [global parameter*]]
    vhost   = [record, [exchange*], [binding*], [policy*], [operator policy*]]

Tables keep their order, so that a replica that came from a snapshot goes on exactly as one that did not. What a row
lacks at its end has its default, what it has more is passed over.

With a million queues it takes seconds. A snapshot is of the moment at which it was begun all the same: the large tables
lend their blocks (`node.catalog.blocks`), and the records in them never change.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, Final, TypeVar

import msgspec

from mayfly.cluster.versions import LEVEL_SHARDS_ADDED, LEVEL_SNAPSHOT_SAYS_LEVEL
from mayfly.node.catalog.members import Members, StoredMembers
from mayfly.node.catalog.message_pack import NotMessagePack, Walk, array_head
from mayfly.node.catalog.records import (
    BindingRecord,
    ExchangeRecord,
    GlobalParameterRecord,
    NodeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.state import FIRST_LEVEL, CatalogState
from mayfly.node.catalog.switches import Switches, SwitchRecord
from mayfly.node.catalog.vhost import Vhost
from mayfly.node.limits import SHARDS

FORMAT_VERSION: Final = 7
"""2: vhosts have policies; what was written as 1 is read as having none. 3: members have failure domains; what was
written before is read as knowing none. 4: topic permissions, and limits and serials of users and vhosts; before: none,
and serial 0. 5: which definitions were loaded; before: none. 6: the feature level; before: the first. 7: which shards
were added; before: none."""

_WITHOUT_ADDED_SHARDS: Final = 6
_WITHOUT_LEVEL: Final = 5
"""The two are written as long as there may be members that read no other: what they don't know at a row's end they pass
over."""

_READABLE: Final = (1, 2, 3, 4, _WITHOUT_LEVEL, _WITHOUT_ADDED_SHARDS, FORMAT_VERSION)

ROWS_WRITTEN_PER_STEP: Final = 16_384
ROWS_READ_PER_STEP: Final = 2_048
"""A few milliseconds of work each: a step is made in each tick."""

_OCTETS_PER_STEP: Final = 1 << 20
"""Rows that are larger than usual make smaller steps."""

_VHOST_ROWS: Final = 16
"""What a vhost costs beside its rows, in rows."""

_FIELDS: Final = 13
_FIELDS_AT_LEAST: Final = 8
_VHOST_FIELDS: Final = 5
_VHOST_FIELDS_AT_LEAST: Final = 3

_Record = TypeVar("_Record")


class MalformedSnapshot(ValueError):
    """The bytes are not a catalog snapshot this version can read, or it is of another number of shards."""


class _Rest(msgspec.Struct, frozen=True, array_like=True):
    """The fields behind the last table."""

    next_serial: int = 1
    definitions_digest: str = ""
    level: int = FIRST_LEVEL
    off: tuple[SwitchRecord, ...] = ()
    global_parameters: tuple[GlobalParameterRecord, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_number_decoder = msgspec.msgpack.Decoder(int)
_vhost_decoder = msgspec.msgpack.Decoder(VhostRecord)
_exchanges_decoder = msgspec.msgpack.Decoder(list[ExchangeRecord])
_bindings_decoder = msgspec.msgpack.Decoder(list[BindingRecord])
_policies_decoder = msgspec.msgpack.Decoder(list[PolicyRecord])
_queues_decoder = msgspec.msgpack.Decoder(list[QueueRecord])
_users_decoder = msgspec.msgpack.Decoder(list[UserRecord])
_permissions_decoder = msgspec.msgpack.Decoder(list[PermissionRecord])
_nodes_decoder = msgspec.msgpack.Decoder(list[NodeRecord])
_members_decoder = msgspec.msgpack.Decoder(StoredMembers)
_topic_permissions_decoder = msgspec.msgpack.Decoder(list[TopicPermissionRecord])
_rest_decoder = msgspec.msgpack.Decoder(_Rest)


def dump(state: CatalogState) -> bytes:
    """The whole state."""
    making = CatalogSnapshotInSteps(state)
    while True:
        data = making.step()
        if data is not None:
            return data


def load(data: bytes, founding_shards: int) -> CatalogState:
    """The state in a snapshot. Raises MalformedSnapshot."""
    reading = ReadingInSteps(data, founding_shards)
    while not reading.step():
        pass
    return reading.state


def _format(level: int) -> int:
    if level < LEVEL_SNAPSHOT_SAYS_LEVEL:
        return _WITHOUT_LEVEL
    return FORMAT_VERSION if level >= LEVEL_SHARDS_ADDED else _WITHOUT_ADDED_SHARDS


class _Pace:
    """When it is time for a pause, by work in rows."""

    def __init__(self, per_step: int) -> None:
        self._per_step = per_step
        self.left = per_step

    def is_over(self, rows: int) -> bool:
        """So much was done; whether this was a step."""
        self.left -= rows
        if self.left > 0:
            return False
        self.left = self._per_step
        return True


# ---------------------------------------------------------------------- writing

_Lent = deque[dict[int, _Record]]


class _VhostAsItIs:
    """A vhost at the moment of a snapshot."""

    __slots__ = ("bindings", "bindings_count", "exchanges", "policies", "record")

    def __init__(self, vhost: Vhost) -> None:
        self.record = vhost.record
        self.exchanges = list(vhost.exchanges())
        self.bindings = vhost.lend_bindings()
        self.bindings_count = vhost.bindings_count
        self.policies = [list(table.records()) for table in (vhost.policies, vhost.operator_policies)]


class CatalogSnapshotInSteps:
    """A snapshot of the state as it is now; commands may be applied between the steps."""

    def __init__(self, state: CatalogState) -> None:
        numbers = (_format(state.level), state.founding_shards, state.next_queue_id)
        # Members that don't know of these know no level at which there are any.
        late: list[object] = [state.switches.records(), list(state.global_parameters.values())]
        while late and not late[-1]:
            late.pop()
        self._written = BytesIO()
        self._written.write(b"".join([array_head(_FIELDS + len(late)), *map(_encoder.encode, numbers)]))
        rest: list[object] = [
            list(state.users.values()), list(state.permissions.records()), list(state.nodes.values()),
            state.members.stored(), list(state.topic_permissions.records()), state.next_serial,
            state.definitions_digest, state.level, *late,
        ]
        vhosts = deque(map(_VhostAsItIs, state.vhosts.values()))
        self._work = _Writer(self._written).write(vhosts, state.queues.lend(), len(state.queues), rest)

    def step(self) -> bytes | None:
        """Write some rows; the snapshot if these were the last, None before."""
        for _ in self._work:
            return None
        return self._written.getvalue()


class _Writer:
    """Writes into `written`, with pauses."""

    def __init__(self, written: BytesIO) -> None:
        self._write = written.write
        self._pace = _Pace(ROWS_WRITTEN_PER_STEP)

    def write(
        self, vhosts: deque[_VhostAsItIs], queues: _Lent[QueueRecord], queues_count: int, rest: list[object]
    ) -> Iterator[None]:
        """All that stands behind the first numbers."""
        self._write(array_head(len(vhosts)))
        while vhosts:
            vhost = vhosts.popleft()
            self._write(array_head(_VHOST_FIELDS) + _encoder.encode(vhost.record))
            yield from self._table(len(vhost.exchanges), _in_blocks(vhost.exchanges))
            yield from self._table(vhost.bindings_count, _values_of(vhost.bindings))
            self._write(b"".join(map(_encoder.encode, vhost.policies)))
            if self._pace.is_over(_VHOST_ROWS):
                yield
        yield from self._table(queues_count, _values_of(queues))
        for field in rest:
            if isinstance(field, list):
                yield from self._table(len(field), _in_blocks(field))
            else:
                self._write(_encoder.encode(field))

    def _table(self, count: int, blocks: Iterator[list[Any]]) -> Iterator[None]:
        self._write(array_head(count))
        for block in blocks:
            self._write(_encoder.encode(block)[len(array_head(len(block))) :])
            if self._pace.is_over(len(block)):
                yield


def _values_of(lent: _Lent[_Record]) -> Iterator[list[_Record]]:
    while lent:
        yield list(lent.popleft().values())


def _in_blocks(records: list[_Record]) -> Iterator[list[_Record]]:
    for start in range(0, len(records), ROWS_WRITTEN_PER_STEP):
        yield records[start : start + ROWS_WRITTEN_PER_STEP]


# ---------------------------------------------------------------------- reading


class ReadingInSteps:
    """Reads a snapshot; `state` is of use once all was read."""

    def __init__(self, data: bytes, founding_shards: int) -> None:
        self.state: CatalogState = CatalogState(founding_shards)
        self._work = _Reader(data, self.state).read()

    def step(self) -> bool:
        """Read some rows; whether these were the last. Raises MalformedSnapshot."""
        try:
            for _ in self._work:
                return False
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, NotMessagePack) as error:
            raise MalformedSnapshot(f"not a catalog snapshot: {error}") from error
        except (KeyError, IndexError) as error:
            raise MalformedSnapshot(f"the catalog snapshot contradicts itself: {error}") from error
        return True


class _Reader:
    """Fills a state, with pauses."""

    def __init__(self, data: bytes, state: CatalogState) -> None:
        self._state = state
        self._walk = Walk(data, 0)
        self._pace = _Pace(ROWS_READ_PER_STEP)

    def read(self) -> Iterator[None]:
        """All of it."""
        state, walk = self._state, self._walk
        fields = walk.enter_array()
        version = self._number()
        if version not in _READABLE:
            raise MalformedSnapshot(f"format {version} of the catalog; this version reads up to {FORMAT_VERSION}")
        if fields < _FIELDS_AT_LEAST:
            raise MalformedSnapshot(f"a catalog snapshot of {fields} fields, at least {_FIELDS_AT_LEAST} expected")
        founding_shards = self._number()
        if founding_shards != state.founding_shards:
            raise MalformedSnapshot(
                f"the catalog is of a cluster founded with {founding_shards} shards, this node's with "
                f"{state.founding_shards}"
            )
        state.next_queue_id = self._number()
        bindings: list[tuple[Vhost, Walk]] = []
        for _ in range(walk.enter_array()):
            yield from self._read_vhost(bindings)
        yield from self._rows(walk, _queues_decoder, partial(_add_queue, state))
        for vhost, there in bindings:
            yield from self._rows(there, _bindings_decoder, vhost.add_binding)
        yield from self._read_rest(fields)

    def _read_rest(self, fields: int) -> Iterator[None]:
        """What stands behind the queues."""
        state, walk = self._state, self._walk

        def add_user(user: UserRecord) -> None:
            state.users[user.name] = user

        def add_permission(record: PermissionRecord) -> None:
            state.permissions.put((record.user, record.vhost), record)

        def add_node(node: NodeRecord) -> None:
            state.nodes[node.id] = node

        def add_topic_permission(record: TopicPermissionRecord) -> None:
            state.topic_permissions.put((record.user, record.vhost, record.exchange), record)

        yield from self._rows(walk, _users_decoder, add_user)
        yield from self._rows(walk, _permissions_decoder, add_permission)
        yield from self._rows(walk, _nodes_decoder, add_node)
        left = fields - _FIELDS_AT_LEAST
        if left:
            state.members = Members(state.founding_shards, _members_decoder.decode(self._item()))
            left -= 1
        there, counted = state.members.shard_count, len(state.placement.counts)
        if counted > there:
            raise IndexError(f"a queue is in shard {counted}, there are {there}")
        state.placement.grow(there)
        if left:
            yield from self._rows(walk, _topic_permissions_decoder, add_topic_permission)
            left -= 1
        rest = _rest_decoder.decode(array_head(left) + walk.data[walk.position :])
        state.next_serial = rest.next_serial
        state.definitions_digest = rest.definitions_digest
        state.level = rest.level
        state.switches = Switches(rest.off)
        state.global_parameters = {record.name: record for record in rest.global_parameters}

    def _read_vhost(self, bindings: list[tuple[Vhost, Walk]]) -> Iterator[None]:
        """All but its bindings, which lead to queues that are still to come: they are passed over, and noted."""
        walk = self._walk
        fields = walk.enter_array()
        if fields < _VHOST_FIELDS_AT_LEAST:
            raise MalformedSnapshot(f"a vhost of {fields} fields, at least {_VHOST_FIELDS_AT_LEAST} expected")
        record = _vhost_decoder.decode(self._item())
        vhost = self._state.new_vhost(record)
        yield from self._rows(walk, _exchanges_decoder, vhost.add_exchange)
        bindings.append((vhost, Walk(walk.data, walk.position)))
        yield from self._pass_over(walk.enter_array())
        left = fields - _VHOST_FIELDS_AT_LEAST
        for table in (vhost.policies, vhost.operator_policies)[:left]:
            yield from self._rows(walk, _policies_decoder, table.put)
            left -= 1
        yield from self._pass_over(left)
        if self._pace.is_over(_VHOST_ROWS):
            yield

    def _rows(self, walk: Walk, decoder: Any, add: Callable[[Any], object]) -> Iterator[None]:
        """Add the records of the table here."""
        left = walk.enter_array()
        while left:
            start = walk.position
            count = walk.skip(min(left, self._pace.left), _OCTETS_PER_STEP)
            for record in decoder.decode(array_head(count) + walk.taken(start)):
                add(record)
            left -= count
            if self._pace.is_over(count):
                yield

    def _pass_over(self, items: int) -> Iterator[None]:
        while items:
            count = self._walk.skip(min(items, self._pace.left), _OCTETS_PER_STEP)
            items -= count
            if self._pace.is_over(count):
                yield

    def _item(self) -> bytes:
        start = self._walk.position
        self._walk.skip(1, 1)
        return self._walk.taken(start)

    def _number(self) -> int:
        return _number_decoder.decode(self._item())


def _add_queue(state: CatalogState, queue: QueueRecord) -> None:
    if queue.replicated:
        if not 1 <= queue.shard <= SHARDS:
            raise IndexError(f"queue {queue.id} is in shard {queue.shard}")
        # Which shards were added is said behind the queues.
        state.placement.grow(queue.shard)
    arguments, settings = state.shared(queue.arguments, queue.settings)
    vhost_name = state.vhosts[queue.vhost].record.name
    state.add_queue(msgspec.structs.replace(queue, vhost=vhost_name, arguments=arguments, settings=settings))

