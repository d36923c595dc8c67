"""Where pages that take work are made: one at a time of a line, each once for all who wait for it.

They must not keep others waiting: AMQP clients and health checks have the same event loop. So whoever comes while a
page is being made waits for the next making of it, with all others who do; and after each the loop is left to others
for several times as long as that has taken. What makes a page does it in steps, between which others have their turn
(`node.operating.turns`). There are two lines: pages of what this node has do not wait for those that ask other nodes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp import web

_LOG: Final = logging.getLogger(__name__)
_REST: Final = 4
"""Pages take a fifth of the time at most, as long as others want the rest."""
_LONGEST_REST_S: Final = 1.0
_SENDING_S: Final = 0.000_3
"""What it takes to read a request and to send a page, about."""


class Made(NamedTuple):
    """A page, for any number of answers."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK

    def response(self) -> web.Response:
        """An answer with it, which nobody is to keep."""
        headers = {"Cache-Control": "no-store", "Content-Type": self.content_type}
        return web.Response(body=self.body, status=self.status, headers=headers)


Make = Callable[[], Awaitable[Made]]


class TooManyWait(Exception):
    """There is no place in the line."""


class _Order:
    """One page, and who waits for it."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self.waiting: list[asyncio.Future[Made]] = []


class _Line:
    """Pages that are made one after the other, by their names."""

    def __init__(self) -> None:
        self.orders: dict[str, _Order] = {}
        self.working: asyncio.Task[None] | None = None


class PageQueue:
    """For one node."""

    def __init__(
        self,
        most_waiting: int,
        now_s: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """So many may wait. `now_s` is the loop's time if not given; `sleep` takes seconds."""
        self._most_waiting = most_waiting
        self._now_s = now_s
        self._sleep = sleep
        self._lines = {False: _Line(), True: _Line()}
        """Of pages that ask no other node, and of those that do."""
        self._waiting = 0

    async def get(self, name: str, make: Make, asks_others: bool = False) -> Made:
        """The page of that name as it is now: its making begins after this was called. `asks_others`: it may have to
        wait for other nodes. Raises TooManyWait, and what `make` raises."""
        if self._waiting >= self._most_waiting:
            raise TooManyWait
        line = self._lines[asks_others]
        order = line.orders.get(name)
        if order is None:
            order = line.orders[name] = _Order(make)
        made: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
        order.waiting.append(made)
        if line.working is None:
            line.working = asyncio.get_running_loop().create_task(self._work(line))
        self._waiting += 1
        try:
            return await made
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Nobody waits any more."""
        for line in self._lines.values():
            if line.working is not None:
                line.working.cancel()
                line.working = None
            for order in line.orders.values():
                for made in order.waiting:
                    made.cancel()
            line.orders.clear()

    async def _work(self, line: _Line) -> None:
        while line.orders:
            order = line.orders.pop(next(iter(line.orders)))
            began_s = self._time_s()
            try:
                page = await order.make()
            except Exception as error:
                for made in order.waiting:
                    if not made.done():
                        made.set_exception(error)
            except BaseException as error:
                for made in order.waiting:
                    made.cancel()
                # What a page waits for may have been given up: no other page is to wait for that.
                task = asyncio.current_task()
                if not isinstance(error, asyncio.CancelledError) or task is None or task.cancelling():
                    raise
            else:
                for made in order.waiting:
                    if not made.done():
                        made.set_result(page)
            took_s = self._time_s() - began_s + _SENDING_S * len(order.waiting)
            await self._sleep(min(_LONGEST_REST_S, _REST * took_s))
        line.working = None

    def _time_s(self) -> float:
        return asyncio.get_running_loop().time() if self._now_s is None else self._now_s()
