"""Who may ask a node over HTTP: users of the catalog, by name and password."""

import asyncio
from typing import Final

from node.catalog import Catalog, UserRecord
from node.catalog.passwords import verify_password

_LOOPBACK_ONLY: Final = "guest"


async def login(catalog: Catalog, user: str, password: str, loopback: bool) -> UserRecord | None:
    """The user, if that is the password; guest from this machine only. The slow check is done in a thread."""
    record = catalog.user(user)
    if record is None or not record.password_hash or (user == _LOOPBACK_ONLY and not loopback):
        return None
    loop = asyncio.get_running_loop()
    right = await loop.run_in_executor(None, verify_password, record.password_hash, password)
    return record if right else None
