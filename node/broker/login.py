"""Whether a client is who it says: what follows its connection.start-ok.

A password is checked in a thread, slowly on purpose. Logins from where others have failed wait, and so do those of
which too many are being checked (`failed_logins`, `password_line`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mayfly.node.amqp.events import AuthenticationRequested
from mayfly.node.amqp.sasl import EXTERNAL
from mayfly.node.broker.failed_logins import origin_of
from mayfly.node.broker.operation import nothing
from mayfly.node.broker.password_line import Turn
from mayfly.node.catalog import UpgradePassword, UserRecord
from mayfly.node.catalog.passwords import NOBODYS_HASH

if TYPE_CHECKING:
    from mayfly.node.broker.broker import Broker
    from mayfly.node.broker.connection import ClientConnection

logger = logging.getLogger(__name__)


class Login:
    """The login of one connection. `ClientConnection.logged_in` is called when it is right."""

    def __init__(self, connection: ClientConnection, loopback: bool) -> None:
        """`loopback` says whether the client is on this machine."""
        self._connection = connection
        self._broker: Broker = connection.broker
        self._loopback = loopback
        self._origin = origin_of(connection.peer)
        self._slowed: AuthenticationRequested | None = None
        """A login that waits, because others from there have failed."""
        self._turn: Turn | None = None
        """What is called when this login is the next one in line to have its password checked."""
        self._slowed_until_ms = 0

    def tick(self, now_ms: int) -> None:
        """A login that waits may have waited long enough."""
        slowed = self._slowed
        if slowed is not None and now_ms >= self._slowed_until_ms and not self._connection.over:
            self.stop_waiting()
            self._look_at(slowed, True)

    def request(self, event: AuthenticationRequested) -> None:
        """The client has named itself: say yes or no, now or later."""
        broker = self._broker
        user, password = event.username, event.password.encode("utf-8", "surrogateescape")
        record = broker.cluster.catalog.user(user)
        if event.fault:
            self._slow_down(event)
        elif user in broker.settings.loopback_users and not self._loopback:
            self._refuse_login(event, f"user '{user}' can only connect via localhost")
        elif event.mechanism == EXTERNAL:
            if record is None:
                self._refuse_login(event, "the certificate names no user that is there")
            else:
                self._accept(record)
        elif record is not None and broker.credentials.known(user, record.password_hash, password):
            self._accept(record)
        else:
            self._slow_down(event)

    def _slow_down(self, event: AuthenticationRequested) -> None:
        """Look at the login now, or later where others have failed. Those that do not say whose they are count as
        one user's."""
        broker = self._broker
        delay_ms = broker.failed_logins.delay_ms(self._origin, event.username, broker.now_ms)
        if not delay_ms:
            self._look_at(event, False)
        elif broker.failed_logins.begin_waiting(self._origin, event.username):
            self._slowed, self._slowed_until_ms = event, broker.now_ms + delay_ms
        else:
            self._turn_away(event, "too many logins from there wait already")

    def _look_at(self, event: AuthenticationRequested, has_waited: bool) -> None:
        if event.fault:
            self._refuse_login(event, event.fault)
        else:
            self._check_password(event, has_waited)

    def stop_waiting(self) -> None:
        """The client is gone, or its turn has come: it holds no place any more."""
        if self._slowed is not None:
            self._broker.failed_logins.end_waiting(self._origin, self._slowed.username)
            self._slowed = None
        if self._turn is not None:
            self._broker.password_line.leave(self._origin, self._turn)
            self._turn = None

    def _stand_in_line(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Too many from there are being checked. What they come to may slow this one, or make it needless to check."""

        def turn() -> None:
            self._turn = None
            if has_waited:
                self._check_password(event, True)
            else:
                self.request(event)

        if self._broker.password_line.stand(self._origin, turn):
            self._turn = turn
        else:
            self._turn_away(event, "too many passwords wait to be checked")

    def _check_password(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Have the password checked: in a thread, and for users that are not there as well, so that the time taken does
        not tell who is. `has_waited`: as long as it had to for the failures of others."""
        broker = self._broker
        record = broker.cluster.catalog.user(event.username)
        serial = -1 if record is None or not record.password_hash else record.serial
        stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
        digest = broker.credentials.digest(
            event.username, stored, event.password.encode("utf-8", "surrogateescape")
        )

        def verified(result: object) -> None:
            self._password_checked(event, stored, serial, result)

        waiting = broker.password_checks.get(digest)
        if waiting is not None:
            waiting.append(verified)
            return
        if not broker.password_line.begin(self._origin):
            self._stand_in_line(event, has_waited)
            return
        broker.password_checks[digest] = [verified]

        def answered(result: object) -> None:
            for each in broker.password_checks.pop(digest, []):
                each(result)
            broker.password_line.end(self._origin)

        self._connection.host.verify_password(stored, event.password, answered)

    def _password_checked(self, event: AuthenticationRequested, stored: str, serial: int, result: object) -> None:
        broker = self._broker
        if self._connection.over:
            if serial < 0 or result is False:
                broker.failed_logins.failed(self._origin, event.username, broker.now_ms)
            return
        record = broker.cluster.catalog.user(event.username)
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
            broker.credentials.remember(event.username, stored, password)
            if isinstance(result, str):
                broker.credentials.remember(event.username, result, password)
                broker.cluster.submit_catalog(UpgradePassword(event.username, stored, result), nothing)
            self._accept(record)
        self._connection.mark()

    def _refuse_login(self, event: AuthenticationRequested, why: str) -> None:
        """It was looked at, and is wrong: that counts."""
        self._broker.failed_logins.failed(self._origin, event.username, self._broker.now_ms)
        self._answer_refused(event, why)

    def _turn_away(self, event: AuthenticationRequested, why: str) -> None:
        """It was not looked at, and may have been right."""
        self._broker.failed_logins.turned_away()
        self._answer_refused(event, why)

    def _answer_refused(self, event: AuthenticationRequested, why: str) -> None:
        logger.warning("connection %s: login of %r refused: %s", self._connection.name, event.username, why)
        self._connection.amqp.authentication_failed(why)
        self._connection.mark()

    def _accept(self, user: UserRecord) -> None:
        self._broker.failed_logins.succeeded(self._origin, user.name)
        self._connection.logged_in(user)
