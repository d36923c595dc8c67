"""What a node keeps on disk about itself. All names in its data folder are here, and all that is read and written there
but what its log stores (`cluster.store`) and snapshots on their way (`cluster.transport.spool`).

    log/            the log; in its metadata stands who the node is (`OwnRecord`)
    snapshots/      snapshots that have not come whole
    clock           which boot, and what the process clock showed at its beginning
    clocks-ahead    how far groups' clocks are ahead of that clock
    own-token       what hooks beside the node show instead of a login
    join-again      a founder joins: it was told that its place is taken
    *.given-up      folders of a founder that came too late, about to be deleted
    *.new           a file that is being written, as is *.unfinished
"""

import os
import random
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mayfly.cluster.log.batch import LogStore
from mayfly.cluster.store.folder import DAMAGED_FILE, sync_folder
from mayfly.node.membership.identity import Identity, KnownMembers, decode_identity, decode_members

_LOG: Final = "log"
_SNAPSHOTS: Final = "snapshots"
_CLOCK: Final = "clock"
_NEW_CLOCK: Final = "clock.new"
_CLOCKS_AHEAD: Final = "clocks-ahead"
_NEW_CLOCKS_AHEAD: Final = "clocks-ahead.new"
_OWN_TOKEN: Final = "own-token"
_JOIN_AGAIN: Final = "join-again"
_GIVEN_UP: Final = {name: f"{name}.given-up" for name in (_LOG, _SNAPSHOTS)}
"""The folders that a founder gives up that came too late, and what they are called meanwhile."""
_UNFINISHED: Final = ".unfinished"
_PROCESS: Final = "process"
"""`process2` and so on: the folders of the further nodes of `--processes`, which see to their own."""

OWN_FOLDERS: Final = frozenset((*_GIVEN_UP, *_GIVEN_UP.values()))
"""Folders in a data folder in which all is the node's."""
OWN_FILES: Final = frozenset(
    (_CLOCK, _NEW_CLOCK, _CLOCKS_AHEAD, _NEW_CLOCKS_AHEAD, _JOIN_AGAIN, _OWN_TOKEN, _OWN_TOKEN + _UNFINISHED)
)

_TOKEN_OCTETS: Final = 32


def is_own(name: str) -> bool:
    """Whether what has that name in a data folder is a node's."""
    of_process = name.startswith(_PROCESS) and name[len(_PROCESS):].isdigit()
    return name in OWN_FOLDERS or name in OWN_FILES or of_process


def unfinished(folder: Path) -> Path:
    """What a data folder is called, beside its place, until all of it is there."""
    return folder.with_name(folder.name + _UNFINISHED)


def random_name() -> str:
    """A name that nothing else has."""
    return random.SystemRandom().randbytes(8).hex()


class DataFolder:
    """The data folder of a node; it need not be there."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.log: Path = path / _LOG
        self.damaged_file: Path = self.log / DAMAGED_FILE
        self.snapshots: Path = path / _SNAPSHOTS
        self.clock: Path = path / _CLOCK
        self.own_token: Path = path / _OWN_TOKEN

    # ------------------------------------------------------------------ the clock

    def kept_clock(self) -> tuple[str, int] | None:
        """The boot, and the clock's origin in ns, that were kept last; None where nothing of that kind is there."""
        try:
            boot, origin = self.clock.read_text().split()
            return boot, int(origin)
        except (OSError, ValueError):
            return None

    def keep_clock(self, boot: str, origin_ns: int) -> None:
        """Not synced: a machine that loses it has started anew. Raises OSError."""
        new = self.path / _NEW_CLOCK
        new.write_text(f"{boot} {origin_ns}\n")
        new.replace(self.clock)

    def kept_ahead(self, boot: str, origin_ns: int) -> dict[int, tuple[int, int]] | None:
        """What `keep_ahead` kept last; None where it was beside another clock, or nothing of that kind is there."""
        try:
            first, *rows = (self.path / _CLOCKS_AHEAD).read_text().splitlines()
            if first != f"{boot} {origin_ns}":
                return None
            numbers = [[int(word) for word in row.split()] for row in rows]
            return {group: (term, ahead_ms) for group, term, ahead_ms in numbers}
        except (OSError, ValueError):
            return None

    def keep_ahead(self, boot: str, origin_ns: int, rows: dict[int, tuple[int, int]]) -> None:
        """Keep rows of group -> (term, ahead_ms) beside the clock of this boot and origin. Not synced, as that is not.
        Raises OSError."""
        new = self.path / _NEW_CLOCKS_AHEAD
        lines = [f"{boot} {origin_ns}", *(f"{group} {term} {ahead_ms}" for group, (term, ahead_ms) in rows.items())]
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.path / _CLOCKS_AHEAD)

    # ------------------------------------------------------------------ the own token

    def write_own_token(self) -> str:
        """Make another token and write it to its file, which the owner alone may read. Raises OSError; then there is no
        such file."""
        draft = self.path / (_OWN_TOKEN + _UNFINISHED)
        for old in (self.own_token, draft):
            old.unlink(missing_ok=True)
        text = secrets.token_urlsafe(_TOKEN_OCTETS)
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{text}\n")
            draft.rename(self.own_token)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return text

    # ------------------------------------------------------------------ founders that came too late

    def joins_again(self) -> bool:
        """Whether a node that is among the seeds has to join all the same."""
        return (self.path / _JOIN_AGAIN).exists()

    def join_again(self) -> None:
        """It has to from now on."""
        (self.path / _JOIN_AGAIN).touch()

    def begin_anew(self) -> None:
        """Give up the data of a founder that came too late: the next start joins the cluster as a new member.

        A crash leaves the old data whole or none of it, and once this has returned none. Raises OSError."""
        self.join_again()
        sync_folder(self.path)
        self._drop_given_up()
        for name, given_up in _GIVEN_UP.items():
            with suppress(FileNotFoundError):
                (self.path / name).rename(self.path / given_up)
        sync_folder(self.path)
        self._drop_given_up()

    def arrived(self) -> None:
        """The node is in a cluster: what `begin_anew` had put aside goes, if a crash kept it from that, and it need not
        join again."""
        self._drop_given_up()
        (self.path / _JOIN_AGAIN).unlink(missing_ok=True)

    def _drop_given_up(self) -> None:
        for given_up in _GIVEN_UP.values():
            shutil.rmtree(self.path / given_up, ignore_errors=True)


_IDENTITY: Final = "identity"
_MEMBERS: Final = "members"
_STORE: Final = "store"
_STARTS: Final = "starts"
_LEVEL: Final = "level"
_UNPROVEN: Final = "unproven"
_EARLIER_STARTS: Final = "earlier_starts"
_STARTS_KEPT: Final = 100

GetMeta = Callable[[str], bytes | None]
"""As `LogStore.get_meta`."""


def stored_identity(get: GetMeta) -> Identity | None:
    """Who the node is; None before it is in a cluster. Raises MalformedIdentity."""
    stored = get(_IDENTITY)
    return None if stored is None else decode_identity(stored)


def stored_members(get: GetMeta) -> KnownMembers | None:
    """The members as last heard of. Raises MalformedIdentity."""
    stored = get(_MEMBERS)
    return None if stored is None else decode_members(stored)


class OwnRecord:
    """What stands of a node in the metadata of its log. What is written is on disk when the call returns; all raise
    LogError."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def identity(self) -> Identity | None:
        """See `stored_identity`."""
        return stored_identity(self._store.get_meta)

    def members(self) -> KnownMembers | None:
        """See `stored_members`."""
        return stored_members(self._store.get_meta)

    def arrived(self, identity: Identity, members: KnownMembers) -> None:
        """The node is in a cluster, as this one, among these. The members first: who has an identity knows some."""
        self.keep_members(members)
        self._store.put_meta(_IDENTITY, identity.encode())

    def keep_members(self, members: KnownMembers) -> None:
        """The members, for the next start."""
        self._store.put_meta(_MEMBERS, members.encode())

    def store_name(self) -> str:
        """What the data is called; made up the first time."""
        name = self._store.get_meta(_STORE)
        if name is None:
            name = random_name().encode()
            self._store.put_meta(_STORE, name)
        return name.decode()

    def keep_store_name(self, name: str) -> None:
        """The data is called so from now on."""
        self._store.put_meta(_STORE, name.encode())

    def starts(self) -> int:
        """The count at the last start; 0 before the first."""
        return int(self._store.get_meta(_STARTS) or b"0")

    def earlier_starts(self) -> tuple[int, ...]:
        """The counts at the last starts, the oldest first. Those who know of one that lies between them and is none of
        them know that the data was put back to an earlier time, however often it was started since."""
        starts = self.starts()
        stored = self._store.get_meta(_EARLIER_STARTS)
        earlier = tuple(msgspec.json.decode(stored, type=list[int])) if stored else ()
        # An earlier version counts its starts, and keeps no others.
        return earlier if earlier[-1:] == (starts,) else (starts,) if starts else ()

    def keep_starts(self, starts: int) -> None:
        """The count at this start."""
        kept = (*self.earlier_starts(), starts)[-_STARTS_KEPT:]
        self._store.put_meta(_EARLIER_STARTS, msgspec.json.encode(kept))
        self._store.put_meta(_STARTS, str(starts).encode())

    def level(self) -> int | None:
        """The cluster's feature level as last heard of: a node that does not know it does not start."""
        level = self._store.get_meta(_LEVEL)
        return int(level) if level else None

    def keep_level(self, level: int) -> None:
        """The cluster's feature level, for the next start."""
        if self._store.get_meta(_LEVEL) != str(level).encode():
            self._store.put_meta(_LEVEL, str(level).encode())

    def is_unproven(self) -> bool:
        """Whether this node began as a founder and has never served since: nothing in its data is worth keeping when
        the others say that they have founded the cluster without it, or know its place as another one's."""
        return bool(self._store.get_meta(_UNPROVEN))

    def begin_unproven(self) -> None:
        """The node begins as a founder."""
        self._store.put_meta(_UNPROVEN, b"1")

    def keep_proven(self) -> None:
        """The node serves with this data."""
        if self.is_unproven():
            self._store.put_meta(_UNPROVEN, b"")
