"""What is known of the socket of a client: for operators, and for the limit of the node."""

from __future__ import annotations

from mayfly.node.catalog.token_user import AnyUser


class ClientSocket:
    """Both ends of it, as (host, port), whether it has TLS, and when it was accepted, in ms since 1970."""

    def __init__(
        self, peer: tuple[str, int], own: tuple[str, int], is_tls: bool, connected_at_ms: int,
        limit_reached: int | None = None, inner: AnyUser | None = None,
    ) -> None:  # fmt: skip
        """`limit_reached`: how many connections the node takes, if there were as many before this one. `inner`: there
        is no socket, but a part of the node that does something as this user (`InnerClient`), who has logged in."""
        self.inner: AnyUser | None = inner
        self.limit_reached: int | None = limit_reached
        self.peer: tuple[str, int] = peer
        self.own: tuple[str, int] = own
        self.is_tls: bool = is_tls
        self.connected_at_ms: int = connected_at_ms

    @property
    def is_inner(self) -> bool:
        """Whether there is a part of the node in place of a client."""
        return self.inner is not None

    @property
    def name(self) -> str:
        """As RabbitMQ names connections: where from and where to."""
        return f"{_shown(self.peer)} -> {_shown(self.own)}"


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
