"""Logins that failed lately, by where they came from: whoever guesses is slowed down.

The first few failures of an address cost nothing. After that each further login from there waits before its password is
looked at, longer with each failure, and few wait at once; what was verified a moment ago (`credentials`) does not wait.
A minute without a failure ends it. A success does not: a guesser may have an account of its own.
"""

from __future__ import annotations

import ipaddress

from node.limits import (
    LOGIN_ADDRESSES,
    LOGIN_DELAY_FIRST_MS,
    LOGIN_DELAY_MOST_MS,
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_KEPT_MS,
    LOGINS_WAITING,
)


class _Origin:
    """One address."""

    __slots__ = ("failures", "last_ms", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.last_ms = 0
        self.waiting = 0


class FailedLogins:
    """A bounded table of addresses, the one heard of longest ago first."""

    def __init__(self) -> None:
        self.accepted: int = 0
        self.refused: int = 0
        self._origins: dict[str, _Origin] = {}

    @property
    def addresses(self) -> int:
        """How many are remembered."""
        return len(self._origins)

    def delay_ms(self, origin: str, now_ms: int) -> int:
        """How long a login from there is to wait now; 0 for most."""
        known = self._origins.get(origin)
        if known is None:
            return 0
        if now_ms - known.last_ms > LOGIN_FAILURES_KEPT_MS and not known.waiting:
            del self._origins[origin]
            return 0
        beyond = known.failures - LOGIN_FAILURES_FREE
        return 0 if beyond < 0 else min(LOGIN_DELAY_FIRST_MS << min(beyond, 16), LOGIN_DELAY_MOST_MS)

    def begin_waiting(self, origin: str) -> bool:
        """A login from there begins to wait; False: too many do."""
        known = self._origins.get(origin)
        if known is None:
            return True
        if known.waiting >= LOGINS_WAITING:
            return False
        known.waiting += 1
        return True

    def end_waiting(self, origin: str) -> None:
        """One that began to wait does so no longer."""
        known = self._origins.get(origin)
        if known is not None and known.waiting:
            known.waiting -= 1

    def failed(self, origin: str, now_ms: int) -> None:
        """A login from there was refused."""
        self.refused += 1
        known = self._origins.pop(origin, None) or _Origin()
        known.failures += 1
        known.last_ms = now_ms
        self._origins[origin] = known
        if len(self._origins) > LOGIN_ADDRESSES:
            del self._origins[next(iter(self._origins))]

    def succeeded(self) -> None:
        """A login was accepted."""
        self.accepted += 1


def origin_of(peer: str) -> str:
    """What counts as one address of `peer` (host:port): of IPv6 the network, in which everybody has many addresses."""
    host = peer.rpartition(":")[0] or peer
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
