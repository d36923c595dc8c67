"""The way between a simulated client and a node: octets with delays, and what breaks when the node dies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from simulation.cluster.events import EventQueue
from simulation.cluster.randomness import exponential_us


class ServerEnd(Protocol):
    """A node's end of a connection."""

    def receive(self, octets: bytes) -> None:
        """Octets came."""
        ...

    def lost(self) -> None:
        """The client is gone."""
        ...

    def client_reads_again(self) -> None:
        """The client takes what was kept for it."""
        ...


class Wire:
    """One TCP connection between a client and a machine; reliable and in order, until either end is gone."""

    def __init__(self, queue: EventQueue, random: Random, mean_us: int) -> None:
        self._queue = queue
        self._random = random
        self._mean_us = mean_us
        self._clear_at_us = [0, 0]
        self.open = True
        self.client_reads = True
        """Whether the client takes what comes; else it stays at the node."""
        self.server: ServerEnd | None = None
        self.run_on_server: Callable[[Callable[[], None]], None] = lambda action: action()
        self.to_client: Callable[[bytes], None] = lambda octets: None
        self.client_broken: Callable[[], None] = lambda: None
        self.left_us = -1
        """When the node gave its socket what the client reads now."""

    def _later(self, way: int, action: Callable[[], None]) -> None:
        arrival = (
            self._queue.now_us + 30 + exponential_us(self._random, self._mean_us, 50 * self._mean_us)
        )
        arrival = max(arrival, self._clear_at_us[way] + 1)
        self._clear_at_us[way] = arrival
        self._queue.at(arrival, action)

    def write_from_client(self, octets: bytes) -> None:
        """The client sends."""

        def arrive() -> None:
            if self.open and self.server is not None:
                self.run_on_server(lambda: self._serve(octets))

        self._later(0, arrive)

    def _serve(self, octets: bytes) -> None:
        if self.open and self.server is not None:
            self.server.receive(octets)

    def let_client_read(self, reads: bool) -> None:
        """The client takes nothing from now on, or goes on: the node is told of that by its socket."""
        self.client_reads = reads

        def arrive() -> None:
            if self.open and self.server is not None:
                self.run_on_server(self.server.client_reads_again)

        if reads:
            self._later(0, arrive)

    def write_from_server(self, octets: bytes, left_us: int) -> None:
        """The node sends what it gave its socket then."""

        def arrive() -> None:
            if self.open:
                self.left_us = left_us
                self.to_client(octets)

        self._later(1, arrive)

    def close_by_server(self) -> None:
        """The node has closed its end: the client reads that behind all that was sent."""

        def arrive() -> None:
            if self.open:
                self.open = False
                self.client_broken()

        self._later(1, arrive)

    def drop_by_client(self) -> None:
        """The client's process is gone: the node learns of it like of anything it sends."""

        def arrive() -> None:
            if self.server is not None:
                self.run_on_server(self.server.lost)

        self.to_client = lambda octets: None
        self.client_broken = lambda: None
        self._later(0, arrive)

    def machine_died(self) -> None:
        """The node's process is gone: nothing arrives any more, the client reads the end of the stream."""
        self.open = False
        self.server = None
        self._later(1, lambda: self.client_broken())
