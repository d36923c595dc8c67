"""Who a node is, for good: written when its data folder is first used, and compared with at every later start."""

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """What a node that is in a cluster keeps of itself.

    `founded` is what the first members derive from their seeds, "" for a node that was alone or joined later: it says
    whether settings and data belong together. `store` names the data: no other folder has it. `cluster` is the same on
    all members, whatever becomes of the membership.
    """

    cluster: str
    node: int
    name: str
    store: str
    shards: int
    replication_factor: int
    founded: str = ""
    joined: bool = False

    def encode(self) -> bytes:
        """The stored form."""
        return msgspec.json.encode(self)


class KnownMembers(msgspec.Struct, frozen=True):
    """The members as last heard of: whom to connect to after a restart.

    `members` maps node ids to (name, peer address), `stores` to what their data is called and `starts` to the count of
    their starts, as far as that was heard: a node that starts knows it before its catalog has caught up, or been
    rebuilt.
    """

    version: int
    members: dict[int, tuple[str, str]]
    stores: dict[int, str] = {}
    starts: dict[int, int] = {}

    def encode(self) -> bytes:
        """The stored form."""
        return msgspec.json.encode(self)


class MalformedIdentity(ValueError):
    """The stored bytes are not an identity of a version that this node knows."""


def decode_identity(data: bytes) -> Identity:
    """The identity in the bytes. Raises MalformedIdentity."""
    try:
        return msgspec.json.decode(data, type=Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedIdentity(f"not an identity of this version: {error}") from error


def decode_members(data: bytes) -> KnownMembers:
    """The members in the bytes. Raises MalformedIdentity."""
    try:
        return msgspec.json.decode(data, type=KnownMembers)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedIdentity(f"not a list of members of this version: {error}") from error
