"""Runs of 64-bit numbers as bytes, little-endian, and back: quick for long runs. HOT."""

import sys
from array import array
from collections.abc import Iterable
from typing import Final

from mayfly.node.shard.errors import ShardError

NUMBER_BYTES: Final = 8
_SWAP: Final = sys.byteorder == "big"


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Unsigned 64-bit numbers, eight bytes each. OverflowError when one does not fit."""
    packed = array("Q", numbers)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


def unpack_numbers(data: bytes, position: int, count: int, end: int) -> "array[int]":
    """``count`` unsigned numbers from ``position`` on; ShardError when they would go past ``end``."""
    stop = position + count * NUMBER_BYTES
    if stop > end:
        raise ShardError(f"{count} numbers at {position} reach past {end}")
    numbers = array("Q")
    numbers.frombytes(data[position:stop])
    if _SWAP:
        numbers.byteswap()
    return numbers


def u16_at(data: bytes, position: int) -> int:
    """The unsigned number of two bytes there. (Compiled, that is quicker than `struct`.)"""
    return data[position] | data[position + 1] << 8


def u32_at(data: bytes, position: int) -> int:
    """The same of four."""
    return data[position] | data[position + 1] << 8 | data[position + 2] << 16 | data[position + 3] << 24


def pack_signed(numbers: Iterable[int]) -> bytes:
    """Signed 64-bit numbers, eight bytes each. OverflowError when one does not fit."""
    packed = array("q", numbers)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


def unpack_signed(data: bytes) -> "array[int]":
    """All signed numbers in ``data``; ShardError when it is not whole numbers."""
    if len(data) % NUMBER_BYTES:
        raise ShardError(f"{len(data)} bytes are no column of numbers")
    numbers = array("q")
    numbers.frombytes(data)
    if _SWAP:
        numbers.byteswap()
    return numbers
