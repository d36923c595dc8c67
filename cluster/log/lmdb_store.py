"""The log of a node in one LMDB environment."""

from pathlib import Path

from cluster.log.batch import StoredGroup, WriteBatch
from cluster.raft.messages import Entry


class LmdbLogStore:
    """A `LogStore` in a folder."""

    def __init__(self, path: Path | str, map_size_bytes: int, node_identity: str = "") -> None:
        """Open or create. Raises `StoreRefused`."""
        raise NotImplementedError

    def load(self) -> dict[int, StoredGroup]:
        raise NotImplementedError

    def write(self, batch: WriteBatch) -> None:
        raise NotImplementedError

    def read_entry(self, group: int, index: int) -> Entry:
        raise NotImplementedError

    def get_meta(self, key: str) -> bytes | None:
        raise NotImplementedError

    def put_meta(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    def free_bytes(self) -> int:
        raise NotImplementedError

    def used_bytes(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
