"""Who may ask a node over HTTP: users of the catalog, by name and password."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Final

from node.broker.credentials import CredentialCache
from node.broker.failed_logins import FailedLogins
from node.catalog import Catalog, UpgradePassword, UserRecord
from node.catalog.passwords import NOBODYS_HASH, SALT_BYTES, check_and_renew

_LOOPBACK_ONLY: Final = "guest"
_THREADS: Final = 2
THREADS_NAME: Final = "http-login"
_KEY_BYTES: Final = 32

ORIGIN: ContextVar[str] = ContextVar("origin", default="")
"""The address that the request under way comes from; see `node.broker.failed_logins.origin_of`."""


class Logins:
    """Checks passwords in threads of its own: whoever tries many over HTTP keeps no others waiting, such as the disk's
    or the logins of AMQP clients. Addresses whose logins fail are slowed down as those of AMQP clients are."""

    def __init__(self, catalog: Catalog, renew: Callable[[UpgradePassword], None] | None = None) -> None:
        """`renew` gives a better hash of a password that was right to the catalog."""
        self._renew = renew
        self._catalog = catalog
        self.failed: FailedLogins = FailedLogins()
        self._verified = CredentialCache(random.SystemRandom().randbytes(_KEY_BYTES))
        self.threads: Executor = ThreadPoolExecutor(_THREADS, THREADS_NAME)

    async def login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        """The user, if that is the password; guest from this machine only."""
        record = self._catalog.user(user)
        if record is not None and user == _LOOPBACK_ONLY and not loopback:
            record = None
        octets = password.encode("utf-8", "surrogateescape")
        if record is None or not self._verified.known(user, record.password_hash, octets):
            record = await self._checked(user, record, password) if await self._has_waited() else None
            if record is None:
                self.failed.failed(ORIGIN.get(), _now_ms())
                return None
            self._verified.remember(user, record.password_hash, octets)
        self.failed.succeeded()
        return record

    async def _has_waited(self) -> bool:
        """Wait as long as whoever asks has to; False: too many from there do."""
        origin = ORIGIN.get()
        delay_ms = self.failed.delay_ms(origin, _now_ms())
        if delay_ms:
            if not self.failed.begin_waiting(origin):
                return False
            try:
                await asyncio.sleep(delay_ms / 1000)
            finally:
                self.failed.end_waiting(origin)
        return True

    async def _checked(self, user: str, record: UserRecord | None, password: str) -> UserRecord | None:
        """The user, if it is there and that is the password. It takes as long if nobody is."""
        stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
        salt = random.SystemRandom().randbytes(SALT_BYTES)
        loop = asyncio.get_running_loop()
        right, better = await loop.run_in_executor(self.threads, check_and_renew, stored, password, salt)
        now = self._catalog.user(user)
        if not right or record is None or now is None or now.serial != record.serial:
            return None
        if better and self._renew is not None:
            self._renew(UpgradePassword(user, stored, better))
        # What was checked is what counts: a password that was changed meanwhile is checked the next time.
        return now if now.password_hash == stored else None

    def close(self) -> None:
        """End the threads, after the checks that have begun; those that wait are cancelled."""
        self.threads.shutdown(wait=True, cancel_futures=True)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
