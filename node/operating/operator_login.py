"""Who may ask a node over HTTP: users of the catalog, by name and password."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from node.catalog import Catalog, UserRecord
from node.catalog.passwords import verify_password

_LOOPBACK_ONLY: Final = "guest"
_THREADS: Final = 2
THREADS_NAME: Final = "http-login"


class Logins:
    """Checks passwords in threads of its own: whoever tries many over HTTP keeps no others waiting, such as the disk's
    or the logins of AMQP clients."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._threads = ThreadPoolExecutor(_THREADS, THREADS_NAME)

    async def login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        """The user, if that is the password; guest from this machine only."""
        record = self._catalog.user(user)
        if record is None or not record.password_hash or (user == _LOOPBACK_ONLY and not loopback):
            return None
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(self._threads, verify_password, record.password_hash, password)
        return record if right else None

    def close(self) -> None:
        """End the threads, after the checks that have begun; those that wait are cancelled."""
        self._threads.shutdown(wait=True, cancel_futures=True)
