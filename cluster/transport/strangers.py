"""How many connections there may be that have not shown whose they are. Pure."""

from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

from mayfly.cluster import limits

Connection = TypeVar("Connection")


class Strangers(Generic[Connection]):
    """Connections without a proof yet, by the address from which they come.

    Whoever comes is let in, and the eldest of its address has to go if there are too many from there; if there are too
    many in all, the eldest of the address that has most. So who floods a port is in its own way, and a member, which is
    a stranger for a round trip or two, finds room.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[Connection, None]] = {}
        self._origins: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._origins

    def came(self, connection: Connection, host: str) -> Connection | None:
        """Somebody has connected from this host; whom to turn away for it. That one counts until it is `gone`."""
        origin = origin_of(host)
        self._origins[connection] = origin
        own = self._of.setdefault(origin, {})
        own[connection] = None
        if len(own) > limits.MAX_STRANGERS_OF_ADDRESS:
            return next(iter(own))
        if len(self._origins) > limits.MAX_STRANGERS:
            # Of several that have as many, the one that began first: not the one that has just come.
            crowd = max(self._of, key=lambda each: len(self._of[each]))
            return next(iter(self._of[crowd]))
        return None

    def gone(self, connection: Connection) -> bool:
        """It is closed, or no stranger any more; whether it was one."""
        origin = self._origins.pop(connection, None)
        if origin is None:
            return False
        own = self._of[origin]
        del own[connection]
        if not own:
            del self._of[origin]
        return True


def origin_of(host: str) -> str:
    """What connections from one place have in common: the IPv4 address, or the network of an IPv6 address, of which one
    machine has as many as it likes."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped is not None else address.exploded[:19]
    return str(address)
