"""The layout of a group's state in a snapshot.

    state = version u8, time_ms u64, led_ms u64, count u32, session*, machine state
    session = node u32, incarnation u64, sequence u64, state u8 (ENDED, OPEN, CUT or FED)
"""

import struct
from typing import Final

from mayfly.cluster.group.sessions import SESSION_STATES, SessionRow

_HEADER: Final = struct.Struct("<BQQI")
_SESSION: Final = struct.Struct("<IQQB")
_VERSION: Final = 1


class GroupStateError(Exception):
    """Bytes that are not a group's state of a known version."""


def encode_group_head(time_ms: int, led_ms: int, sessions: list[SessionRow]) -> bytes:
    """What stands before the machine's state; equal states give equal bytes (RULES C1)."""
    rows = [_SESSION.pack(node, incarnation, sequence, state) for node, incarnation, sequence, state in sessions]
    return b"".join([_HEADER.pack(_VERSION, time_ms, led_ms, len(rows)), *rows])


def decode_group_head(data: bytes) -> tuple[int, int, list[SessionRow], int]:
    """(time_ms, led_ms, sessions, where the machine's state begins). Raises GroupStateError."""
    if len(data) < _HEADER.size:
        raise GroupStateError(f"group state of {len(data)} bytes, at least {_HEADER.size} expected")
    version, time_ms, led_ms, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise GroupStateError(f"group state of version {version}, {_VERSION} expected")
    end = _HEADER.size + count * _SESSION.size
    if len(data) < end:
        raise GroupStateError(f"group state ends in the session table ({count} sessions, {len(data)} bytes)")
    rows: list[SessionRow] = []
    for position in range(_HEADER.size, end, _SESSION.size):
        node, incarnation, sequence, state = _SESSION.unpack_from(data, position)
        if state not in SESSION_STATES:
            raise GroupStateError(f"session of node {node} in state {state}, 0, 1, 2 or 3 expected")
        rows.append((node, incarnation, sequence, state))
    return time_ms, led_ms, rows, end
