"""Connections between machines: reliable and in order while they last, and they break.

This is what a gRPC stream over TCP is. A frame is neither lost, doubled nor overtaken while its
connection stands; when the connection breaks, everything in flight is gone, both ends learn of it (not at
the same moment), and the connection is made again after a backoff. A blocked direction holds its frames
back, as TCP does, until it heals or the keepalive gives the connection up. `simulation.cluster.notices`
has the network without any promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from mayfly.cluster.limits import GONE_AFTER_MS
from simulation.cluster.events import MILLISECOND_US, EventQueue, Timer
from simulation.cluster.randomness import exponential_us

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The delays of a link, one way, and how its connections are kept. All in microseconds."""

    base_us: int = 150
    jitter_us: int = 150
    spike_probability: float = 0.0
    spike_us: int = 200 * MILLISECOND_US
    frame_loss: float = 0.0
    keepalive_us: int = 2_000 * MILLISECOND_US
    backoff_low_us: int = 50 * MILLISECOND_US
    backoff_high_us: int = 500 * MILLISECOND_US
    notice_us: int = 20 * MILLISECOND_US

    def delay_us(self, random: Random) -> int:
        """One draw of the one-way delay; `frame_loss` is for send queues that overflow, not for the wire."""
        delay = self.base_us + exponential_us(random, self.jitter_us, 50 * self.jitter_us)
        if self.spike_probability and random.random() < self.spike_probability:
            delay += exponential_us(random, self.spike_us, 10 * self.spike_us)
        return delay


class _Parcel(Generic[Payload]):
    """A payload on its way, and who wants to know what became of it."""

    __slots__ = ("bulk", "number", "payload", "result")

    def __init__(
        self, number: int, payload: Payload, bulk: bool, result: Callable[[bool], None] | None
    ) -> None:
        self.number = number
        self.payload = payload
        self.bulk = bulk
        self.result = result


class _Direction(Generic[Payload]):
    """One way of a connection: parcels on their way, in order, and those a blockage holds back."""

    __slots__ = ("blocked", "clear_at_us", "held", "results", "under_way")

    def __init__(self) -> None:
        self.blocked = False
        self.clear_at_us = [0, 0]
        self.held: list[_Parcel[Payload]] = []
        self.results: list[Callable[[bool], None]] = []
        self.under_way: dict[_Parcel[Payload], Timer] = {}


class _Pair:
    """The connection between two machines; the generation tells one life of it from the next."""

    __slots__ = ("connected", "generation", "keepalive", "noticed", "retry")

    def __init__(self) -> None:
        self.connected = False
        self.generation = 0
        self.noticed = 2
        self.keepalive: Timer | None = None
        self.retry: Timer | None = None


class StreamNetwork(Generic[Payload]):
    """All connections of a cluster. Ends are machine ids.

    `deliver(target, source, payload)`, `peer_up(end, other)`, `peer_down(end, other)` and `peer_gone(end, other)` are
    called at the virtual time at which that end sees it; per end they come in an order a real transport could show.
    """

    def __init__(
        self,
        queue: EventQueue,
        random: Random,
        profile: LinkProfile,
        deliver: Callable[[int, int, Payload], None],
        peer_up: Callable[[int, int], None],
        peer_down: Callable[[int, int], None],
        peer_gone: Callable[[int, int], None] = lambda end, other: None,
    ) -> None:
        self._queue = queue
        self._random = random
        self.profile = profile
        self._deliver = deliver
        self._peer_up = peer_up
        self._peer_down = peer_down
        self._peer_gone = peer_gone
        self._refusing: dict[int, bool] = {}
        self._running: dict[int, bool] = {}
        self._lives: dict[int, int] = {}
        self._answering: dict[int, bool] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._directions: dict[tuple[int, int], _Direction[Payload]] = {}
        self.sent = 0
        self.lost = 0

    def add(self, end: int) -> None:
        """A machine that may be started; it is down at first."""
        for other in self._running:
            self._pairs[_key(end, other)] = _Pair()
            self._directions[(end, other)] = _Direction()
            self._directions[(other, end)] = _Direction()
        self._running[end] = False
        self._lives[end] = 0
        self._answering[end] = True

    def start(self, end: int) -> None:
        """The process of `end` runs: connect it to everyone who runs."""
        self._running[end] = True
        self._lives[end] += 1
        self._answering[end] = True
        for other in self._running:
            if other != end:
                self._schedule_retry(end, other, first=True)

    def stop(self, end: int, refuses: bool = False) -> None:
        """The process of `end` is dead: its sockets are reset, its own notifications are dropped. Its machine
        `refuses` connections, or is off and answers nothing."""
        self._running[end] = False
        self._refusing[end] = refuses
        for other in self._running:
            if other != end:
                self._break(end, other)

    def set_answering(self, end: int, answering: bool) -> None:
        """A frozen process answers no keepalive and no new connection; its kernel goes on receiving."""
        self._answering[end] = answering
        for other in self._running:
            if other != end:
                self._watch(end, other)

    def connected(self, end: int, other: int) -> bool:
        """Whether the connection between the two stands (their ends may not have noticed otherwise yet)."""
        return self._pairs[_key(end, other)].connected

    def block(self, source: int, target: int) -> None:
        """Let nothing through from `source` to `target` until `unblock`: a one-way partition."""
        self._directions[(source, target)].blocked = True
        self._watch(source, target)

    def unblock(self, source: int, target: int) -> None:
        """Heal one direction: what was held back arrives now, in order, if the connection still stands."""
        direction = self._directions[(source, target)]
        if not direction.blocked:
            return
        direction.blocked = False
        held, direction.held = direction.held, []
        # Some were sent before the blockage and reached it after others.
        held.sort(key=lambda parcel: parcel.number)
        for parcel in held:
            self._launch(source, target, direction, parcel)
        self._watch(source, target)

    def reset(self, end: int, other: int) -> None:
        """Break the connection of the two as a firewall or a dying switch does; it is made again later."""
        self._break(end, other)

    def heal(self) -> None:
        """Remove every blockage; what is under way goes on at the pace that links have now.

        Else a frame that was sent while links were slow would hold up its stream long after all is healed.
        """
        for (source, target), direction in self._directions.items():
            # Held back as by a blockage, so that all goes on in its order.
            direction.blocked = True
            for parcel, timer in direction.under_way.items():
                timer.cancel()
                direction.held.append(parcel)
            direction.under_way.clear()
            direction.clear_at_us = [0, 0]
            self.unblock(source, target)

    def send(
        self,
        source: int,
        target: int,
        payload: Payload,
        bulk: bool = False,
        result: Callable[[bool], None] | None = None,
    ) -> None:
        """Put a frame on its way; without a connection it is dropped, as the transport promises no more.

        `bulk` frames have a stream of their own, slower and in order among themselves. `result(arrived)`
        is called at the sender's side when that is known, unless its process dies first.
        """
        self.sent += 1
        profile = self.profile
        if not self._pairs[_key(source, target)].connected or (
            profile.frame_loss and self._random.random() < profile.frame_loss
        ):
            self.lost += 1
            if result is not None:
                self._report(source, result, False)
            return
        direction = self._directions[(source, target)]
        if result is not None:
            direction.results.append(result)
        parcel = _Parcel(self.sent, payload, bulk, result)
        if direction.blocked:
            direction.held.append(parcel)
            return
        self._launch(source, target, direction, parcel)

    def _launch(
        self, source: int, target: int, direction: _Direction[Payload], parcel: _Parcel[Payload]
    ) -> None:
        """Let a parcel arrive after its delay, but not before the one ahead of it on its stream."""
        queue = self._queue
        arrival = queue.now_us + self.profile.delay_us(self._random) * (10 if parcel.bulk else 1)
        if arrival <= direction.clear_at_us[parcel.bulk]:
            arrival = direction.clear_at_us[parcel.bulk] + 1
        direction.clear_at_us[parcel.bulk] = arrival
        pair = self._pairs[_key(source, target)]
        generation = pair.generation

        def arrive() -> None:
            direction.under_way.pop(parcel, None)
            if pair.generation != generation or not pair.connected:
                self.lost += 1
            elif direction.blocked:
                direction.held.append(parcel)
            else:
                self._deliver(target, source, parcel.payload)
                if parcel.result is not None and parcel.result in direction.results:
                    direction.results.remove(parcel.result)
                    self._report(source, parcel.result, True)

        direction.under_way[parcel] = queue.at(arrival, arrive)

    def _report(self, end: int, result: Callable[[bool], None], arrived: bool) -> None:
        """Tell the sender what became of a parcel, if it is still the same process."""
        life = self._lives[end]

        def report() -> None:
            if self._running[end] and self._lives[end] == life:
                result(arrived)

        self._queue.after(self.profile.delay_us(self._random), report)

    def _break(self, end: int, other: int) -> None:
        pair = self._pairs[_key(end, other)]
        if not pair.connected:
            return
        pair.connected = False
        pair.generation += 1
        pair.noticed = 0
        self._cancel_keepalive(pair)
        for source, target in ((end, other), (other, end)):
            direction = self._directions[(source, target)]
            self.lost += len(direction.held)
            direction.held.clear()
            direction.under_way.clear()
            direction.clear_at_us = [0, 0]
            results, direction.results = direction.results, []
            for result in results:
                self._report(source, result, False)
        for this, that in (sorted((end, other)), sorted((end, other), reverse=True)):
            self._notice_down(pair, this, that)

    def _notice_down(self, pair: _Pair, end: int, other: int) -> None:
        life = self._lives[end]

        def look() -> None:
            alive = self._running[end] and self._lives[end] == life
            cut = self._directions[(end, other)].blocked or self._directions[(other, end)].blocked
            if alive and not cut and not self._running[other] and self._refusing.get(other):
                self._peer_gone(end, other)

        def notice() -> None:
            pair.noticed += 1
            if self._running[end] and self._lives[end] == life:
                self._peer_down(end, other)
                self._queue.after(self.profile.backoff_low_us + GONE_AFTER_MS * MILLISECOND_US, look)
            if pair.noticed == 2:
                self._schedule_retry(end, other, first=False)

        delay = exponential_us(self._random, self.profile.notice_us / 4, self.profile.notice_us)
        self._queue.after(delay, notice)

    def _schedule_retry(self, end: int, other: int, first: bool) -> None:
        pair = self._pairs[_key(end, other)]
        if pair.connected or pair.noticed < 2:
            return
        if pair.retry is not None:
            pair.retry.cancel()
        low, high = self.profile.backoff_low_us, self.profile.backoff_high_us
        delay = self._random.randint(0, low) if first else self._random.randint(low, high)

        def retry() -> None:
            pair.retry = None
            self._connect(pair, end, other)

        pair.retry = self._queue.after(delay, retry)

    def _connect(self, pair: _Pair, end: int, other: int) -> None:
        """Try once; a handshake needs both processes and both directions."""
        if not (self._running[end] and self._running[other]):
            return
        if not (self._answering[end] and self._answering[other]) or any(
            self._directions[way].blocked for way in ((end, other), (other, end))
        ):
            self._schedule_retry(end, other, first=False)
            return
        pair.connected = True
        self._peer_up(end, other)
        if pair.connected:
            self._peer_up(other, end)

    def _watch(self, end: int, other: int) -> None:
        """Start the keepalive timer of a connection that went silent, or stop it when it speaks again."""
        pair = self._pairs[_key(end, other)]
        silent = (
            not (self._answering[end] and self._answering[other])
            or self._directions[(end, other)].blocked
            or self._directions[(other, end)].blocked
        )
        if not silent:
            self._cancel_keepalive(pair)
            return
        if pair.connected and pair.keepalive is None:
            wait = self.profile.keepalive_us
            pair.keepalive = self._queue.after(
                wait // 2 + self._random.randint(0, wait), lambda: self._give_up(pair, end, other)
            )

    def _give_up(self, pair: _Pair, end: int, other: int) -> None:
        pair.keepalive = None
        self._break(end, other)

    def _cancel_keepalive(self, pair: _Pair) -> None:
        if pair.keepalive is not None:
            pair.keepalive.cancel()
            pair.keepalive = None


def _key(end: int, other: int) -> tuple[int, int]:
    return (end, other) if end < other else (other, end)
