"""Who may come to a page of the management API."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.http.answers import answer, answered, not_authorised
from mayfly.node.http.api_routes import Who
from mayfly.node.http.logins import login_in
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.users import User

Handler = Callable[[web.Request, User], Awaitable[web.Response]]
"""Takes the request and who asks."""


class _Nobody:
    """Who has not logged in."""

    name = ""
    who = ""
    tags: tuple[str, ...] = ()


NOBODY: Final[User] = _Nobody()


class GatePort(Protocol):
    """What is known of users and vhosts."""

    async def login(self, user: str, password: str, loopback: bool) -> User | None:
        """The user, if the password is right and that user may come from there."""

    def has_vhost(self, vhost: str) -> bool:
        """Whether there is such a vhost."""

    def may_see(self, user: AnyUser, vhost: str) -> bool:
        """Whether the user may see that vhost: by a tag, or by having permissions in it."""

    def may_have_policies(self, user: AnyUser, vhost: str) -> bool:
        """Whether the user may come to policies of that vhost: administrators, and who has permissions in it."""


class Gate:
    """For one node."""

    def __init__(self, port: GatePort) -> None:
        self._port = port

    def for_users(self, who: Who | None, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler, for these; None is everybody. What it raises as ValueError is told: something in the request
        can't be."""

        async def handle(request: web.Request) -> web.Response:
            if who is None:
                return await handler(request, NOBODY)
            given = login_in(request)
            user = None if given is None else await self._port.login(*given)
            if user is None:
                return not_authorised("Login failed")
            if not who.tags & set(user.tags):
                return not_authorised(f"Not {who.name} user")
            vhost = request.match_info.get("vhost")
            refusal = None if vhost is None or not who.vhost else self._refusal(who, user, vhost)
            if refusal is not None:
                return refusal
            try:
                return await handler(request, user)
            except ValueError as error:
                return answered(*bad_request(str(error)))

        return handle

    def _refusal(self, who: Who, user: User, vhost: str) -> web.Response | None:
        port = self._port
        if not port.has_vhost(vhost):
            return answer({"error": "Object Not Found", "reason": f"no vhost '{vhost}'"}, HTTPStatus.NOT_FOUND)
        may = {"there": _anybody_may, "seen": port.may_see, "policies": port.may_have_policies}[who.vhost]
        if not may(user.who, vhost):
            return not_authorised(f"User not authorised to access virtual host '{vhost}'")
        return None


def _anybody_may(_user: AnyUser, _vhost: str) -> bool:
    """For pages that show nothing but what the user may see."""
    return True
