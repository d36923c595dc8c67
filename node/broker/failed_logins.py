"""Logins that failed lately, by user and by where they came from: whoever guesses is slowed down.

The first few failures of a user from an address cost nothing. After that each further login of that user from there
waits before its password is looked at, longer with each failure, and few wait at once; what was verified a moment ago
(`credentials`) does not wait. Many failures from one address slow all its users but those who have succeeded there:
behind a load balancer everybody has one address. A minute without a failure ends it. A success does not: a guesser may
have an account of its own. Only what was looked at and found wrong is a failure: who is turned away does not thereby
prolong it.
"""

from __future__ import annotations

import ipaddress

from mayfly.node.limits import (
    LOGIN_ADDRESSES,
    LOGIN_DELAY_FIRST_MS,
    LOGIN_DELAY_MOST_MS,
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_FREE_OF_ORIGIN,
    LOGIN_FAILURES_KEPT_MS,
    LOGIN_NAME_CHARACTERS,
    LOGINS_WAITING,
    LOGINS_WAITING_OF_ORIGIN,
)

_Pair = tuple[str, str]


class _Failures:
    """A bounded table of failures by key, the one heard of longest ago first. An address alone has the user ""."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._known: dict[_Pair, tuple[int, int]] = {}

    @property
    def size(self) -> int:
        return len(self._known)

    def add(self, key: _Pair, now_ms: int) -> None:
        count, last_ms = self._known.pop(key, (0, now_ms))
        if now_ms - last_ms > LOGIN_FAILURES_KEPT_MS:
            count = 0
        self._known[key] = (count + 1, now_ms)
        if len(self._known) > LOGIN_ADDRESSES:
            del self._known[next(iter(self._known))]

    def delay_ms(self, key: _Pair, now_ms: int) -> int:
        known = self._known.get(key)
        if known is None:
            return 0
        if now_ms - known[1] > LOGIN_FAILURES_KEPT_MS:
            del self._known[key]
            return 0
        beyond = known[0] - self._free
        return 0 if beyond < 0 else min(LOGIN_DELAY_FIRST_MS << min(beyond, 16), LOGIN_DELAY_MOST_MS)


class FailedLogins:
    """What is remembered, in bounded memory, and what waits."""

    def __init__(self) -> None:
        self.accepted: int = 0
        self.refused: int = 0
        self._by_pair = _Failures(LOGIN_FAILURES_FREE)
        self._by_origin = _Failures(LOGIN_FAILURES_FREE_OF_ORIGIN)
        self._succeeded: dict[_Pair, None] = {}
        self._waiting: dict[_Pair, int] = {}

    @property
    def addresses(self) -> int:
        """How many are remembered for their failures."""
        return self._by_origin.size

    def delay_ms(self, origin: str, user: str, now_ms: int) -> int:
        """How long a login of the user from there is to wait now; 0 for most."""
        pair = _pair(origin, user)
        delay_ms = self._by_pair.delay_ms(pair, now_ms)
        of_origin_ms = self._by_origin.delay_ms((origin, ""), now_ms)
        return delay_ms if pair in self._succeeded else max(delay_ms, of_origin_ms)

    def begin_waiting(self, origin: str, user: str) -> bool:
        """A login from there begins to wait; False: too many do."""
        pair, alone = _pair(origin, user), (origin, "")
        of_pair, of_origin = self._waiting.get(pair, 0), self._waiting.get(alone, 0)
        if of_pair >= LOGINS_WAITING or of_origin >= LOGINS_WAITING_OF_ORIGIN:
            return False
        self._waiting[pair] = of_pair + 1
        self._waiting[alone] = of_origin + 1
        return True

    def end_waiting(self, origin: str, user: str) -> None:
        """One that began to wait does so no longer."""
        for key in (_pair(origin, user), (origin, "")):
            left = self._waiting[key] - 1
            if left:
                self._waiting[key] = left
            else:
                del self._waiting[key]

    def failed(self, origin: str, user: str, now_ms: int) -> None:
        """A login was wrong: no such user, not that password, or not from there."""
        self.refused += 1
        self._by_pair.add(_pair(origin, user), now_ms)
        self._by_origin.add((origin, ""), now_ms)

    def turned_away(self) -> None:
        """A login was refused without a look at its password."""
        self.refused += 1

    def succeeded(self, origin: str, user: str) -> None:
        """A login was accepted."""
        self.accepted += 1
        pair = _pair(origin, user)
        self._succeeded.pop(pair, None)
        self._succeeded[pair] = None
        if len(self._succeeded) > LOGIN_ADDRESSES:
            del self._succeeded[next(iter(self._succeeded))]


def _pair(origin: str, user: str) -> _Pair:
    # A user never is "", which stands for the address alone.
    return origin, user[:LOGIN_NAME_CHARACTERS] or "\0"


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
