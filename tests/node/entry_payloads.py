"""Payloads of entries without a log."""

from collections.abc import Mapping


class EntryPayloads:
    """Those that are given, by their indices. Implements `Payloads`; a view for each `piece_bytes`."""

    def __init__(self, by_index: Mapping[int, bytes], piece_bytes: int = 1 << 20) -> None:
        self._by_index = by_index
        self._piece_bytes = piece_bytes

    def data(self, index: int) -> bytes:
        return self._by_index[index]

    def views(self, index: int, start: int, length: int) -> list[memoryview]:
        whole = memoryview(self._by_index[index])[start : start + length]
        return [whole[at : at + self._piece_bytes] for at in range(0, length, self._piece_bytes)]
