"""The layout of a group's state in a snapshot.

    state = version u8, time_ms u64, led_ms u64, count u32, session*, [count u32, piece*,] machine state
    session = node u32, incarnation u64, sequence u64, state u8 (ENDED, OPEN, CUT or FED)
    piece = whole u64, node u32, entry u64, start u32, length u32 (see `cluster.group.pieces`)

Version 2 has pieces, from `cluster.versions.LEVEL_PIECES` on; a group without any is of version 1.
"""

import struct
from collections.abc import Sequence
from typing import Final

from mayfly.cluster.group.pieces import PieceRow
from mayfly.cluster.group.sessions import SESSION_STATES, SessionRow

_HEADER: Final = struct.Struct("<BQQI")
_SESSION: Final = struct.Struct("<IQQB")
_COUNT: Final = struct.Struct("<I")
_PIECE: Final = struct.Struct("<QIQII")
_VERSION: Final = 1
_VERSION_WITH_PIECES: Final = 2


class GroupStateError(Exception):
    """Bytes that are not a group's state of a known version."""


def encode_group_head(
    time_ms: int, led_ms: int, sessions: list[SessionRow], pieces: Sequence[PieceRow] = ()
) -> bytes:
    """What stands before the machine's state; equal states give equal bytes (RULES C1)."""
    rows = [_SESSION.pack(node, incarnation, sequence, state) for node, incarnation, sequence, state in sessions]
    version = _VERSION
    if pieces:
        version = _VERSION_WITH_PIECES
        rows.append(_COUNT.pack(len(pieces)))
        rows += [_PIECE.pack(*piece) for piece in pieces]
    return b"".join([_HEADER.pack(version, time_ms, led_ms, len(sessions)), *rows])


def decode_group_head(data: bytes) -> tuple[int, int, list[SessionRow], list[PieceRow], int]:
    """(time_ms, led_ms, sessions, pieces, where the machine's state begins). Raises GroupStateError."""
    if len(data) < _HEADER.size:
        raise GroupStateError(f"group state of {len(data)} bytes, at least {_HEADER.size} expected")
    version, time_ms, led_ms, count = _HEADER.unpack_from(data)
    if version not in (_VERSION, _VERSION_WITH_PIECES):
        raise GroupStateError(f"group state of version {version}, {_VERSION} or {_VERSION_WITH_PIECES} expected")
    end = _HEADER.size + count * _SESSION.size
    if len(data) < end:
        raise GroupStateError(f"group state ends in the session table ({count} sessions, {len(data)} bytes)")
    rows: list[SessionRow] = []
    for position in range(_HEADER.size, end, _SESSION.size):
        node, incarnation, sequence, state = _SESSION.unpack_from(data, position)
        if state not in SESSION_STATES:
            raise GroupStateError(f"session of node {node} in state {state}, 0, 1, 2 or 3 expected")
        rows.append((node, incarnation, sequence, state))
    if version == _VERSION:
        return time_ms, led_ms, rows, [], end
    start = end + _COUNT.size
    if len(data) < start:
        raise GroupStateError(f"group state ends before its pieces ({len(data)} bytes)")
    (count,) = _COUNT.unpack_from(data, end)
    end = start + count * _PIECE.size
    if len(data) < end:
        raise GroupStateError(f"group state ends in its pieces ({count}, {len(data)} bytes)")
    return time_ms, led_ms, rows, [_PIECE.unpack_from(data, at) for at in range(start, end, _PIECE.size)], end
