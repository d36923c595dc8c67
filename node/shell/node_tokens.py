"""Tokens at one node: the clock that they are looked at by, and where the provider's keys come from, a file or an
address.

An address is asked at the start, every five minutes, and when a token names a key that is not known, but not again
within ten seconds: strangers can name any. What can't be had leaves the keys that are there in use.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import aiohttp

from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.limits import SIGNING_KEYS_BYTES
from mayfly.node.oauth.authority import Authority, TokenRules
from mayfly.node.oauth.claims import ClaimRules
from mayfly.node.oauth.keys import KeySet, UnusableKey, read_keys
from mayfly.node.oauth.token import TokenRefused, UnknownKey
from mayfly.node.settings import NodeSettings

FRESH_S: Final = 300.0
"""How long keys of an address are in use before it is asked again."""
AGAIN_S: Final = 10.0
"""So long it is not asked again, whatever tokens name; and after so long, if it has shown no keys so far."""
_PATIENCE_S: Final = 5.0
_PIECE_BYTES: Final = 16 * 1024
_NO_PREFIX: Final = "none"

log = logging.getLogger("mayfly.tokens")


def rules_of(settings: NodeSettings) -> TokenRules:
    """What tokens must be, as the settings say."""
    prefix = settings.oauth2_scope_prefix
    claims = ClaimRules(
        resource_server_id=settings.oauth2_resource_server_id,
        verify_audience=settings.oauth2_verify_aud,
        issuer=settings.oauth2_issuer,
        scope_prefix="" if prefix == _NO_PREFIX else prefix or None,
        additional_scopes=tuple(settings.oauth2_additional_scopes_key.split()),
        scope_aliases=_aliases_in(settings.oauth2_scope_aliases),
        preferred_names=tuple(filter(None, settings.oauth2_preferred_username_claims.split(","))),
    )
    return TokenRules(claims, frozenset(settings.oauth2_algorithms.split(",")), settings.oauth2_leeway_ms)


def _aliases_in(text: str) -> dict[str, tuple[str, ...]]:
    pairs = [each.split("=") for each in text.split(",") if each]
    return {alias.strip(): tuple(scopes.split()) for alias, scopes in pairs}


def keys_in_file(path: Path) -> KeySet:
    """The keys of the setting `oauth2_key_file`. Raises OSError, with file and setting."""
    try:
        with path.open("rb") as file:
            content = file.read(SIGNING_KEYS_BYTES + 1)
    except OSError as error:
        raise OSError(f"oauth2_key_file = {path} can't be read: {error.strerror}") from None
    try:
        return _read(content, str(path))
    except UnusableKey as error:
        raise OSError(f"oauth2_key_file = {path}: {error}") from None


def _read(content: bytes, where: str) -> KeySet:
    if len(content) > SIGNING_KEYS_BYTES:
        raise UnusableKey(f"it has more than {SIGNING_KEYS_BYTES} octets")
    keys, left_out = read_keys(content)
    for note in left_out:
        log.warning("keys of tokens in %s: %s", where, note)
    return keys


class NodeTokens:
    """Implements `TokenLogins`."""

    def __init__(
        self, settings: NodeSettings, begin: Callable[[Coroutine[Any, Any, None]], None],
        now_ms: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """`begin` has something done beside all else. `now_ms` is the system's time since 1970 unless it is given: the
        provider goes by that, not by how long this machine has been up. Raises OSError: `oauth2_key_file`."""
        self.only: bool = not settings.takes_passwords
        self._begin = begin
        self._now_ms: Callable[[], int] = now_ms or _now_ms
        self._file = settings.oauth2_key_file
        self._url = settings.oauth2_jwks_url
        self._ca = settings.oauth2_jwks_ca
        self._authority = Authority(rules_of(settings), KeySet())
        self._tls: ssl.SSLContext | None = None
        self._waiting: list[Callable[[], None]] = []
        self._asked_s: float | None = None
        self._is_asking = False
        self.read_file()

    @property
    def file(self) -> Path | None:
        """Where the keys are, if in a file."""
        return self._file

    def look_at(self, token: str) -> TokenUser | str | None:
        """See `TokenLogins.look_at`."""
        try:
            return self._authority.user_of(token, self._now_ms())
        except UnknownKey:
            return None
        except TokenRefused as refused:
            return str(refused)

    def renew_keys(self, done: Callable[[], None]) -> None:
        """See `TokenLogins.renew_keys`."""
        self._waiting.append(done)
        if self._is_asking:
            return
        if not self._url or (self._asked_s is not None and time.monotonic() - self._asked_s < AGAIN_S):
            self._tell()
        else:
            self._is_asking = True
            self._begin(self._ask())

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done()
            except Exception:  # A defect of one: the others wait as well, and keys are to be asked for again.
                log.exception("a login that waited for keys of tokens failed")

    def read_file(self) -> None:
        """Read the keys' file again, if they are in one. Raises OSError, and keeps those that are in use."""
        if self._file is not None:
            self._authority.keys = keys_in_file(self._file)

    async def watch(self) -> None:
        """Ask the address now and then; for ever, if there is one."""
        while self._url:
            if not self._is_asking:
                self._is_asking = True
                await self._ask()
            await asyncio.sleep(FRESH_S if len(self._authority.keys) else AGAIN_S)

    async def _ask(self) -> None:
        try:
            self._authority.keys = keys = _read(await self._fetched(), self._url)
            log.info("%d keys of tokens are read from %s", len(keys), self._url)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning(
                "keys of tokens can't be had from %s: %s; those from before stay in use: %d",
                self._url, str(error) or type(error).__name__, len(self._authority.keys),
            )  # fmt: skip
        finally:
            self._is_asking = False
            self._asked_s = time.monotonic()
            self._tell()

    async def _fetched(self) -> bytes:
        """What the address answers. A redirect is no answer: it may lead to anybody."""
        if self._tls is None:
            # Once: it reads a hundred authorities and more.
            self._tls = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        content = b""
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls),
                timeout=aiohttp.ClientTimeout(total=_PATIENCE_S),
                auto_decompress=False,
            ) as session,
            session.get(self._url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise UnusableKey(f"it answers {response.status}")
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                content += piece
                if len(content) > SIGNING_KEYS_BYTES:
                    raise UnusableKey(f"it answers with more than {SIGNING_KEYS_BYTES} octets")
        return content


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
