"""Who may ask a node over HTTP: users of the catalog, by name and password, and whom a token names."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from mayfly.node.broker.credentials import CredentialCache
from mayfly.node.broker.failed_logins import FailedLogins
from mayfly.node.broker.password_line import PasswordLine
from mayfly.node.broker.tokens import TokenLogins
from mayfly.node.catalog import Catalog, UpgradePassword, UserRecord
from mayfly.node.catalog.passwords import NOBODYS_HASH, SALT_BYTES, check_and_renew
from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.oauth.token import looks_like_token
from mayfly.node.operating.ports.users import ORIGIN

_LOOPBACK_ONLY: Final = "guest"
_THREADS: Final = 2
THREADS_NAME: Final = "http-login"
_KEY_BYTES: Final = 32

log = logging.getLogger(__name__)


class Logins:
    """Checks passwords in threads of its own: whoever tries many over HTTP keeps no others waiting, such as the disk's
    or the logins of AMQP clients. Addresses whose logins fail are slowed down as those of AMQP clients are."""

    def __init__(
        self,
        catalog: Catalog,
        renew: Callable[[UpgradePassword], None] | None = None,
        now_ms: Callable[[], int] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tokens: TokenLogins | None = None,
    ) -> None:
        """`renew` gives a better hash of a password that was right to the catalog. `now_ms` is the loop's time if not
        given, `sleep` takes seconds. Without `tokens` none are taken."""
        self.tokens: TokenLogins | None = tokens
        self._renew = renew
        self._now_ms: Callable[[], int] = now_ms or _loop_ms
        self._sleep = sleep
        self._catalog = catalog
        self.failed: FailedLogins = FailedLogins()
        self._line = PasswordLine()
        self._verified = CredentialCache(random.SystemRandom().randbytes(_KEY_BYTES))
        self.threads: Executor = ThreadPoolExecutor(_THREADS, THREADS_NAME)

    async def login(
        self, user: str, password: str, loopback: bool, catch_up: Callable[[], Awaitable[object]] | None = None
    ) -> UserRecord | TokenUser | None:
        """The user, if that is the password; guest from this machine only. A token as the password names its own user,
        whatever `user` is. `catch_up` brings the catalog up to date, for users alone: whoever guesses costs the cluster
        nothing."""
        if looks_like_token(password) and (self.tokens is not None or not user):
            named = await self._named_by(password, loopback)
            if named is not None and catch_up is not None:
                await catch_up()
            return named
        if self.tokens is not None and self.tokens.only:
            self.failed.turned_away()
            return None
        record = await self._login(user, password, loopback)
        if record is None or catch_up is None:
            return record
        await catch_up()
        now = self._catalog.user(user)
        if now is not None and (now.serial, now.password_hash) == (record.serial, record.password_hash):
            return now
        return await self._login(user, password, loopback)

    async def _named_by(self, token: str, loopback: bool) -> TokenUser | None:
        """Whom a token names that counts here."""
        tokens = self.tokens
        answer = None if tokens is None else tokens.look_at(token)
        if answer is None and tokens is not None:
            renewed = asyncio.Event()
            tokens.renew_keys(renewed.set)
            await renewed.wait()
            answer = tokens.look_at(token)
        if isinstance(answer, TokenUser) and (loopback or answer.name != _LOOPBACK_ONLY):
            self.failed.accepted += 1
            return answer
        why = answer if isinstance(answer, str) else "its key is not known"
        if isinstance(answer, TokenUser):
            why = f"user '{answer.name}' can only connect via localhost"
        log.warning("a token was refused over HTTP: %s", why)
        self.failed.turned_away()
        return None

    async def _login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        origin = ORIGIN.get()
        if not self._is_known(user, password, loopback):
            if not await self._has_begun(origin, user):
                self.failed.turned_away()
                return None
            if self._is_known(user, password, loopback):  # It was checked for another request meanwhile.
                self._line.end(origin)
            else:
                right = await self._checked(origin, user, self._record(user, loopback), password)
                if not right:
                    self.failed.failed(origin, user, self._now_ms())
                self._line.end(origin)  # The next one sees the failure.
                if not right:
                    return None
        self.failed.succeeded(origin, user)
        return self._record(user, loopback)

    def _record(self, user: str, loopback: bool) -> UserRecord | None:
        return None if user == _LOOPBACK_ONLY and not loopback else self._catalog.user(user)

    def _is_known(self, user: str, password: str, loopback: bool) -> bool:
        record = self._record(user, loopback)
        return record is not None and self._verified.known(user, record.password_hash, _octets(password))

    async def _has_begun(self, origin: str, user: str) -> bool:
        """Wait as long as whoever asks has to, and in line; then a check has begun. False: too many from there do."""
        has_waited = False
        while True:
            delay_ms = 0 if has_waited else self.failed.delay_ms(origin, user, self._now_ms())
            if delay_ms:
                if not self.failed.begin_waiting(origin, user):
                    return False
                try:
                    await self._sleep(delay_ms / 1000)
                finally:
                    self.failed.end_waiting(origin, user)
                has_waited = True
            if self._line.begin(origin):
                return True
            if not await self._had_turn(origin):
                return False
            if has_waited or not self.failed.delay_ms(origin, user, self._now_ms()):
                return True
            self._line.end(origin)

    async def _had_turn(self, origin: str) -> bool:
        """Stand in line until a check may begin, and begin it. False: the line is full."""
        came: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def turn() -> None:
            if not came.done():
                came.set_result(self._line.begin(origin))

        if not self._line.stand(origin, turn):
            return False
        try:
            return await came
        except asyncio.CancelledError:
            self._line.leave(origin, turn)
            if came.done() and not came.cancelled() and came.result():
                self._line.end(origin)
            raise

    async def _checked(self, origin: str, user: str, record: UserRecord | None, password: str) -> bool:
        """Whether the user is there and that is the password; it takes as long if nobody is."""
        stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
        salt = random.SystemRandom().randbytes(SALT_BYTES)
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self.threads, check_and_renew, stored, password, salt)
        try:
            right, better = await asyncio.shield(checking)
        except BaseException:
            # The thread goes on when the request is cancelled.
            checking.add_done_callback(lambda _: self._line.end(origin))
            raise
        now = self._catalog.user(user)
        if not right or record is None or now is None or now.serial != record.serial:
            return False
        self._verified.remember(user, stored, _octets(password))
        if better and self._renew is not None:
            self._verified.remember(user, better, _octets(password))
            self._renew(UpgradePassword(user, stored, better))
        # What was checked is what counts: a password that was changed meanwhile is checked the next time.
        return now.password_hash == stored

    def close(self) -> None:
        """End the threads, after the checks that have begun; those that wait are cancelled."""
        self.threads.shutdown(wait=True, cancel_futures=True)


def _octets(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
