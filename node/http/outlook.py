"""What time will do to queues, and policies on trial: pages for which RabbitMQ's management API has no words."""

from collections.abc import Collection

from aiohttp import web

from mayfly.node.http.answers import answer, answered
from mayfly.node.http.gate import Handler
from mayfly.node.http.management import policy_wish
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.outlook import (
    LONGEST_WINDOW_MS,
    MOST_ROWS,
    MOST_WINDOWS,
    USUAL_ROWS,
    USUAL_WINDOWS_MS,
    ForecastWish,
    OutlookPort,
)
from mayfly.node.operating.ports.users import User


class OutlookPages:
    """Handlers for the routes of forecasts and trials."""

    def __init__(self, port: OutlookPort, management: ManagementPort) -> None:
        self._port = port
        self._management = management

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "forecast.get": self._forecast,
            "policies.try": self._try_policy,
            "operator-policies.try": self._try_operator_policy,
        }

    async def _forecast(self, request: web.Request, user: User) -> web.Response:
        vhost = request.match_info.get("vhost")
        vhosts: Collection[str] | None = None
        if vhost is not None:
            vhosts = [vhost]
        elif not self._management.sees_all(user.who):
            vhosts = self._management.vhosts_seen(user.who)
        return answer(await self._port.forecast(forecast_wish(request, vhosts)))

    async def _try_policy(self, request: web.Request, _user: User) -> web.Response:
        return await self._try(request, False)

    async def _try_operator_policy(self, request: web.Request, _user: User) -> web.Response:
        return await self._try(request, True)

    async def _try(self, request: web.Request, operator: bool) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        wish = policy_wish(await request.read(), vhost, name, operator)
        return answered(*await self._port.try_policy(wish, _number(request, "limit", MOST_ROWS, USUAL_ROWS)))


def forecast_wish(request: web.Request, vhosts: Collection[str] | None, led_here: bool = False) -> ForecastWish:
    """What the query of a request asks for. Raises ValueError with a text for the client."""
    texts = request.query.getall("within_ms", [])
    windows_ms = sorted({_whole("within_ms", text, LONGEST_WINDOW_MS) for text in texts}) or list(USUAL_WINDOWS_MS)
    if len(windows_ms) > MOST_WINDOWS:
        raise ValueError(f"within_ms is there {len(windows_ms)} times, at most {MOST_WINDOWS} times is expected")
    return ForecastWish(vhosts, windows_ms, _number(request, "limit", MOST_ROWS, USUAL_ROWS), led_here)


def _number(request: web.Request, name: str, most: int, usual: int) -> int:
    return _whole(name, request.query.get(name, str(usual)), most)


def _whole(name: str, text: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15 and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} is '{text}', it should be a number from 1 to {most}")
