"""Which connections, channels or consumers an operator asks for."""

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["connections", "channels", "consumers"]


class ClientSelection(NamedTuple):
    """Those of a user, in a vhost and of a connection, each None for any."""

    user: str | None = None
    vhost: str | None = None
    connection: str | None = None

    def has(self, user: str, vhost: str, connection: str) -> bool:
        """Whether what is of these is meant."""
        return self.user in (None, user) and self.vhost in (None, vhost) and self.connection in (None, connection)
