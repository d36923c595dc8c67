"""Connections of clients over all nodes, as RabbitMQ's management API shows and closes them."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from math import isfinite
from typing import Any, Final

import msgspec

from node.broker.broker import Broker
from node.broker.connection import ClientConnection
from node.engine import Engine

_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 128 * 1024
"""What one answer has at most, but for one connection more: other things wait behind it."""
_DEEPEST: Final = 8
"""Tables in tables of client properties that are shown."""


class _Some(msgspec.Struct, tag=True):
    """Asks for so many connections, by name, and how many there are. Of whom: the empty string is everybody."""

    user: str
    start: int
    most: int


class _One(msgspec.Struct, tag=True):
    """Asks for one connection."""

    name: str


class _Close(msgspec.Struct, tag=True):
    """Asks to close one."""

    name: str
    reason: str


_Question = _Some | _One | _Close
_decoder: Final = msgspec.msgpack.Decoder(_Question)


class Connections:
    """What one node knows of its own connections, and asks the others about theirs.

    A node that cannot be reached, or does not answer in time, has none to show."""

    def __init__(self, engine: Engine, broker: Broker, pump: Callable[[], None]) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._broker = broker
        self._pump = pump
        engine.questions.answer = self._answer

    async def some(self, user: str, start: int, most: int) -> tuple[int, list[dict[str, Any]]]:
        """How many there are, and so many of them from a place on, by the ids of their nodes and by their names.
        `user`: of that one alone, if it is not empty. Those that come and go meanwhile may shift the others."""
        total = 0
        rows: list[dict[str, Any]] = []
        for node_id in sorted(self._engine.host.members):
            place = max(0, start - total)
            count = 0
            while True:
                answer = await self._ask(node_id, _Some(user, place, min(_AT_ONCE, most - len(rows))))
                if answer is None:
                    break
                count, found = answer
                rows += found
                place += len(found)
                if not found or len(rows) >= most:
                    break
            total += count
        return total, rows

    async def one(self, name: str) -> dict[str, Any] | None:
        """The connection of that name."""
        for node_id in sorted(self._engine.host.members):
            row: dict[str, Any] | None = await self._ask(node_id, _One(name))
            if row is not None:
                return row
        return None

    async def close(self, name: str, reason: str) -> bool:
        """Close the connection of that name (320); False if there is none."""
        for node_id in sorted(self._engine.host.members):
            if await self._ask(node_id, _Close(name, reason)):
                return True
        return False

    async def _ask(self, node_id: int, question: _Question) -> Any:
        """What the node says; None if it says nothing."""
        if node_id == self._engine.node_id:
            await asyncio.sleep(0)
            return self._answered(question)
        answers: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def answered(answer: bytes | None) -> None:
            if not answers.done():
                answers.set_result(answer)

        self._engine.questions.ask(node_id, msgspec.msgpack.encode(question), answered)
        self._pump()
        answer = await answers
        return None if not answer else msgspec.msgpack.decode(answer)

    def _answer(self, question: bytes) -> bytes:
        """See `PeerQuestions.answer`; nothing for what this version does not know."""
        try:
            asked = _decoder.decode(question)
        except msgspec.MsgspecError:
            return b""
        return msgspec.msgpack.encode(self._answered(asked))

    def _answered(self, question: _Question) -> Any:
        if isinstance(question, _Some):
            return self._here(question)
        found = next((each for each in self._running() if each.socket.name == question.name), None)
        if isinstance(question, _One):
            return None if found is None else self._shown(found)
        if found is not None:
            found.force_close(question.reason)
        return found is not None

    def _running(self) -> list[ClientConnection]:
        return [each for each in self._broker.connections.values() if each.is_running]

    def _here(self, question: _Some) -> tuple[int, list[dict[str, Any]]]:
        mine = [each for each in self._running() if question.user in ("", each.user)]
        rows: list[dict[str, Any]] = []
        size_bytes = 0
        if question.most > 0:
            mine.sort(key=lambda each: each.socket.name)
            for each in mine[question.start : question.start + min(question.most, _AT_ONCE)]:
                rows.append(self._shown(each))
                size_bytes += len(msgspec.msgpack.encode(rows[-1]))
                if size_bytes > _BYTES_AT_ONCE:
                    break
        return len(mine), rows

    def _shown(self, connection: ClientConnection) -> dict[str, Any]:
        """In RabbitMQ's fields."""
        socket, amqp = connection.socket, connection.amqp
        node = self._engine.catalog.node(self._engine.node_id)
        return {
            "name": socket.name,
            "node": f"node{self._engine.node_id}" if node is None else node.name,
            "type": "network",
            "protocol": "AMQP 0-9-1",
            "user": connection.user,
            "vhost": connection.vhost,
            "state": _state(connection),
            "host": socket.own[0],
            "port": socket.own[1],
            "peer_host": socket.peer[0],
            "peer_port": socket.peer[1],
            "ssl": socket.is_tls,
            "auth_mechanism": amqp.mechanism,
            "channels": len(connection.channels),
            "channel_max": amqp.channel_max,
            "frame_max": amqp.output.frame_max_bytes,
            "timeout": amqp.heartbeat_seconds,
            "connected_at": socket.connected_at_ms,
            "client_properties": _json(amqp.client_properties, 0),
        }


def _state(connection: ClientConnection) -> str:
    if connection.pressure.is_blocked:
        return "blocked"
    return "running" if connection.pressure.wants_reading else "flow"


def _json(value: object, depth: int) -> Any:
    """A value of a field table as JSON can have it."""
    if isinstance(value, bool | int) or value is None or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, dict | list) and depth < _DEEPEST:
        if isinstance(value, dict):
            return {_text(str(name)): _json(each, depth + 1) for name, each in value.items()}
        return [_json(each, depth + 1) for each in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return _text(str(value))


def _text(text: str) -> str:
    """The text without what no UTF-8 can say."""
    return text.encode("utf-8", "replace").decode("utf-8")
