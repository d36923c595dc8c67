"""Who may ask a node over HTTP: users of the catalog, by name and password."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from node.catalog import Catalog, UpgradePassword, UserRecord
from node.catalog.passwords import SALT_BYTES, check_and_renew

_LOOPBACK_ONLY: Final = "guest"
_THREADS: Final = 2
THREADS_NAME: Final = "http-login"


class Logins:
    """Checks passwords in threads of its own: whoever tries many over HTTP keeps no others waiting, such as the disk's
    or the logins of AMQP clients."""

    def __init__(self, catalog: Catalog, renew: Callable[[UpgradePassword], None] | None = None) -> None:
        """`renew` gives a better hash of a password that was right to the catalog."""
        self._renew = renew
        self._catalog = catalog
        self.threads: Executor = ThreadPoolExecutor(_THREADS, THREADS_NAME)

    async def login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        """The user, if that is the password; guest from this machine only."""
        record = self._catalog.user(user)
        if record is None or not record.password_hash or (user == _LOOPBACK_ONLY and not loopback):
            return None
        loop = asyncio.get_running_loop()
        salt = random.SystemRandom().randbytes(SALT_BYTES)
        stored = record.password_hash
        right, better = await loop.run_in_executor(self.threads, check_and_renew, stored, password, salt)
        now = self._catalog.user(user)
        if not right or now is None or now.serial != record.serial:
            return None
        if better and self._renew is not None:
            self._renew(UpgradePassword(user, stored, better))
        return now

    def close(self) -> None:
        """End the threads, after the checks that have begun; those that wait are cancelled."""
        self.threads.shutdown(wait=True, cancel_futures=True)
