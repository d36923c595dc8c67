"""A wire between peers that breaks when it is told to."""

import asyncio
from collections.abc import Callable


class Wire:
    """A TCP forwarder. While `cut_every_bytes` is set, all connections break when one has carried so much there, but
    not more than `most_cuts` times."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut_every_bytes = 0
        self.most_cuts = 1 << 30
        self.cuts = 0
        self.bytes_there = 0
        self.port = 0
        self.stops_at_bytes = 0
        """When so much was carried there, nothing more is until `takes` is set; 0: never."""
        self.takes = asyncio.Event()
        """While this is not set, nothing is carried there."""
        self.takes.set()
        self.sees: Callable[[bytes], object] = len
        """Is shown all that is carried, both ways."""
        self.changes: Callable[[bytes], bytes] = bytes
        """What becomes of what is carried there."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        """Break all connections and take no more."""
        self._server.close()
        self.takes.set()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        both = {writer, far_writer}
        self._writers |= both
        await asyncio.gather(self._pump(reader, far_writer, True), self._pump(far_reader, writer, False))
        self._writers -= both

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: bool) -> None:
        carried = 0
        try:
            while data := await reader.read(1 << 16):
                if there:
                    await self.takes.wait()
                carried += len(data) if there else 0
                self.bytes_there += len(data) if there else 0
                if there and 0 < self.stops_at_bytes <= self.bytes_there:
                    self.stops_at_bytes = 0
                    self.takes.clear()
                self.sees(data)
                writer.write(self.changes(data) if there else data)
                await writer.drain()
                if there and 0 < self.cut_every_bytes <= carried and self.cuts < self.most_cuts:
                    self.cuts += 1
                    self.cut()
        except OSError:
            pass
        finally:
            writer.transport.abort()
