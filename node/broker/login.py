"""Whether a client is who it says: what follows its connection.start-ok.

A token in place of a password (`tokens`) is looked at here and now; its user is whom it names. A password is checked in
a thread, slowly on purpose. Logins from where others have failed wait, and so do those of which too many are being
checked (`failed_logins`, `password_line`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mayfly.node.amqp.events import AuthenticationRequested
from mayfly.node.amqp.sasl import EXTERNAL
from mayfly.node.broker.client import Client
from mayfly.node.broker.cluster_facade import ClusterFacade, OnDone
from mayfly.node.broker.credentials import CredentialCache
from mayfly.node.broker.failed_logins import FailedLogins, origin_of
from mayfly.node.broker.operation import nothing
from mayfly.node.broker.password_line import PasswordLine, Turn
from mayfly.node.broker.tokens import TokenLogins
from mayfly.node.catalog import UpgradePassword, UserRecord
from mayfly.node.catalog.passwords import NOBODYS_HASH
from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.oauth.token import looks_like_token

logger = logging.getLogger(__name__)

NO_TOKENS: Final = "no tokens are taken"


class NodeLogins:
    """What the logins of one node have in common."""

    def __init__(
        self, cluster: ClusterFacade, loopback_users: frozenset[str], secret: bytes, tokens: TokenLogins | None
    ) -> None:
        """`loopback_users` may log in from this machine only; `secret`: unpredictable octets; `tokens`: None where
        none are taken."""
        self.tokens: TokenLogins | None = tokens
        self.cluster: ClusterFacade = cluster
        self.loopback_users: frozenset[str] = loopback_users
        self.credentials: CredentialCache = CredentialCache(secret)
        self.failed: FailedLogins = FailedLogins()
        self.line: PasswordLine = PasswordLine()
        self.checks: dict[bytes, list[OnDone]] = {}
        """Who waits for which check: clients that come at the same time with the same password share one."""
        self.now_ms: int = 0
        """As connections were last told."""


class Login:
    """The login of one connection."""

    def __init__(
        self, client: Client, node: NodeLogins, peer: str, loopback: bool,
        accepted: Callable[[UserRecord | TokenUser], None],
    ) -> None:  # fmt: skip
        """`peer` is the client's address; `loopback` says whether it is on this machine. `accepted` is called when the
        login is right."""
        self._client: Client = client
        self._node: NodeLogins = node
        self._cluster: ClusterFacade = node.cluster
        self._loopback = loopback
        self._accepted: Callable[[UserRecord | TokenUser], None] = accepted
        self._origin = origin_of(peer)
        self._slowed: AuthenticationRequested | None = None
        """A login that waits, because others from there have failed."""
        self._turn: Turn | None = None
        """What is called when this login is the next one in line to have its password checked."""
        self._slowed_until_ms = 0

    def tick(self, now_ms: int) -> None:
        """A login that waits may have waited long enough."""
        slowed = self._slowed
        if slowed is not None and now_ms >= self._slowed_until_ms and not self._client.over:
            self.stop_waiting()
            self._look_at(slowed, True)

    def request(self, event: AuthenticationRequested) -> None:
        """The client has named itself: say yes or no, now or later."""
        node = self._node
        user, password = event.username, event.password.encode("utf-8", "surrogateescape")
        record = self._cluster.catalog.user(user)
        inner = self._client.socket.inner
        if event.fault:
            self._slow_down(event)
        elif self._is_token(event):
            # Nobody guesses a signature, and to look at it takes less than a connection does: it need not wait.
            self.look_at_token(event.password, lambda answer: self._token_looked_at(event, answer))
        elif isinstance(inner, TokenUser):
            self._accepted(inner)
        elif inner is None and node.tokens is not None and node.tokens.only:
            self._refuse_login(event, "it shows no token, and nothing else is taken")
        elif user in node.loopback_users and not self._loopback:
            self._refuse_login(event, f"user '{user}' can only connect via localhost")
        elif event.mechanism == EXTERNAL:
            if record is None:
                self._refuse_login(event, "the certificate names no user that is there")
            else:
                self._accept(record)
        elif record is not None and node.credentials.known(user, record.password_hash, password):
            self._accept(record)
        else:
            self._slow_down(event)

    def _slow_down(self, event: AuthenticationRequested) -> None:
        """Look at the login now, or later where others have failed. Those that do not say whose they are count as
        one user's."""
        node = self._node
        delay_ms = node.failed.delay_ms(self._origin, event.username, node.now_ms)
        if not delay_ms:
            self._look_at(event, False)
        elif node.failed.begin_waiting(self._origin, event.username):
            self._slowed, self._slowed_until_ms = event, node.now_ms + delay_ms
        else:
            self._turn_away(event, "too many logins from there wait already")

    def _look_at(self, event: AuthenticationRequested, has_waited: bool) -> None:
        if event.fault:
            self._refuse_login(event, event.fault)
        else:
            self._check_password(event, has_waited)

    # -- tokens -----------------------------------------------------------------------

    def _is_token(self, event: AuthenticationRequested) -> bool:
        return self._node.tokens is not None and event.mechanism != EXTERNAL and looks_like_token(event.password)

    def look_at_token(self, token: str, done: Callable[[TokenUser | str], None]) -> None:
        """Whom the token names, or why it does not count: now, or when the provider's keys have been looked at."""
        tokens = self._node.tokens
        answer = NO_TOKENS if tokens is None else tokens.look_at(token)
        if answer is not None or tokens is None:
            done(answer or NO_TOKENS)
            return

        def renewed() -> None:
            if not self._client.over:
                done(tokens.look_at(token) or "it is signed with a key that the provider does not show")
                self._client.mark()

        tokens.renew_keys(renewed)

    def _token_looked_at(self, event: AuthenticationRequested, answer: TokenUser | str) -> None:
        if isinstance(answer, str):
            self._turn_away(event, f"its token does not count: {answer}")
        elif answer.name in self._node.loopback_users and not self._loopback:
            self._turn_away(event, f"user '{answer.name}' can only connect via localhost")
        else:
            # The name that was said beside it is anybody's, and has not succeeded.
            self._node.failed.accepted += 1
            self._accepted(answer)

    # -- passwords --------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """The client is gone, or its turn has come: it holds no place any more."""
        if self._slowed is not None:
            self._node.failed.end_waiting(self._origin, self._slowed.username)
            self._slowed = None
        if self._turn is not None:
            self._node.line.leave(self._origin, self._turn)
            self._turn = None

    def _stand_in_line(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Too many from there are being checked. What they come to may slow this one, or make it needless to check."""

        def turn() -> None:
            self._turn = None
            if has_waited:
                self._check_password(event, True)
            else:
                self.request(event)

        if self._node.line.stand(self._origin, turn):
            self._turn = turn
        else:
            self._turn_away(event, "too many passwords wait to be checked")

    def _check_password(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Have the password checked: in a thread, and for users that are not there as well, so that the time taken does
        not tell who is. `has_waited`: as long as it had to for the failures of others."""
        node = self._node
        record = self._cluster.catalog.user(event.username)
        serial = -1 if record is None or not record.password_hash else record.serial
        stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
        digest = node.credentials.digest(
            event.username, stored, event.password.encode("utf-8", "surrogateescape")
        )

        def verified(result: object) -> None:
            self._password_checked(event, stored, serial, result)

        waiting = node.checks.get(digest)
        if waiting is not None:
            waiting.append(verified)
            return
        if not node.line.begin(self._origin):
            self._stand_in_line(event, has_waited)
            return
        node.checks[digest] = [verified]

        def answered(result: object) -> None:
            for each in node.checks.pop(digest, []):
                each(result)
            node.line.end(self._origin)

        self._client.host.verify_password(stored, event.password, answered)

    def _password_checked(self, event: AuthenticationRequested, stored: str, serial: int, result: object) -> None:
        node = self._node
        if self._client.over:
            if serial < 0 or result is False:
                node.failed.failed(self._origin, event.username, node.now_ms)
            return
        record = self._cluster.catalog.user(event.username)
        if serial < 0:
            self._refuse_login(event, "no such user, or none with a password")
        elif result is not True and not isinstance(result, str):
            self._refuse_login(event, "wrong password")
        elif record is None or record.serial != serial:
            self._turn_away(event, "deleted meanwhile")
        elif record.password_hash != stored:
            self._check_password(event, True)  # It was changed meanwhile, or stored in a better way.
        else:
            password = event.password.encode("utf-8", "surrogateescape")
            node.credentials.remember(event.username, stored, password)
            if isinstance(result, str):
                node.credentials.remember(event.username, result, password)
                self._cluster.submit_catalog(UpgradePassword(event.username, stored, result), nothing)
            self._accept(record)
        self._client.mark()

    def _refuse_login(self, event: AuthenticationRequested, why: str) -> None:
        """It was looked at, and is wrong: that counts."""
        self._node.failed.failed(self._origin, event.username, self._node.now_ms)
        self._answer_refused(event, why)

    def _turn_away(self, event: AuthenticationRequested, why: str) -> None:
        """It was not looked at, and may have been right."""
        self._node.failed.turned_away()
        self._answer_refused(event, why)

    def _answer_refused(self, event: AuthenticationRequested, why: str) -> None:
        # Some clients show their token as the name, too.
        named = "(a token)" if looks_like_token(event.username) else event.username
        logger.warning("connection %s: login of %r refused: %s", self._client.name, named, why)
        self._client.amqp.authentication_failed(why)
        self._client.mark()

    def _accept(self, user: UserRecord) -> None:
        self._node.failed.succeeded(self._origin, user.name)
        self._accepted(user)
