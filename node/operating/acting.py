"""What a user of the management API does to queues, exchanges and messages: as an AMQP client, by the same way in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from pamqp import commands
from pamqp.base import Frame

from mayfly.node.amqp.errors import REPLY_NAMES
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.inner_client import InnerClient, Received
from mayfly.node.catalog.token_user import AnyUser

PATIENCE_S: Final = 10.0
"""So long an answer may take."""

Method = TypeVar("Method", bound=Frame)


class AmqpRefusal(Exception):
    """What was asked for is refused: AMQP's code, and its text without the name of the code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ActingClient:
    """A channel of a user in a vhost, open while it is used."""

    def __init__(self, broker: Broker, pump: Callable[[], None], user: AnyUser, vhost: str) -> None:
        self._came: asyncio.Queue[Received] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def soon(call: Callable[[], None]) -> None:
            pump()
            loop.call_soon(call)

        self._client = InnerClient(broker, user, vhost, soon, self._came.put_nowait)

    async def ask(self, method: Frame, *answers: type[Frame]) -> Received:
        """Send a method; what comes back, which is one of these. Raises AmqpRefusal, TimeoutError."""
        self._client.send(method)
        return await self.answer(*answers)

    def tell(self, method: Frame) -> None:
        """Send a method that has no answer."""
        self._client.send(method)

    def publish(self, method: Frame, header: bytes, body: bytes) -> None:
        """basic.publish, with the payload of its content header."""
        self._client.publish(method, header, body)

    async def answer(self, *answers: type[Frame]) -> Received:
        """The next thing that is one of these; others are passed over. Raises AmqpRefusal, TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                received = await self._came.get()
                method = received.method
                if isinstance(method, answers):
                    return received
                if isinstance(method, commands.Channel.Close | commands.Connection.Close):
                    code = method.reply_code or 0
                    raise AmqpRefusal(code, _without_name(code, method.reply_text))

    def close(self) -> None:
        """What is held goes back."""
        self._client.close()


class Acting:
    """For one node."""

    def __init__(self, broker: Broker, pump: Callable[[], None]) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._broker = broker
        self._pump = pump

    @asynccontextmanager
    async def client(self, user: AnyUser, vhost: str) -> AsyncIterator[ActingClient]:
        """The user, who has logged in, as a client in that vhost. Raises AmqpRefusal, TimeoutError."""
        client = ActingClient(self._broker, self._pump, user, vhost)
        try:
            await client.answer(commands.Channel.OpenOk)
            yield client
        finally:
            client.close()
            self._pump()

    async def ask(self, user: AnyUser, vhost: str, method: Frame, *answers: type[Frame]) -> Received:
        """What comes back for one method of the user. Raises AmqpRefusal, TimeoutError."""
        async with self.client(user, vhost) as client:
            return await client.ask(method, *answers)


def _without_name(code: int, text: str) -> str:
    return text.removeprefix(f"{REPLY_NAMES.get(code, code)} - ")
