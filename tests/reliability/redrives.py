"""One run of a redrive: messages die, a preview, then they are redriven at a rate while nodes are killed; calm, the
judgement.

The messages die of their own expirations in one queue of each node and come together in one dead-letter queue. Nobody
consumes from any of them before all is over, so nothing hides behind a redelivery: then the queues hold each message
once, in order. A tenth is not picked, and stays.
"""

from __future__ import annotations

import http.client
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
from pamqp import commands

from bench.amqp_pipeline import METHOD, Pipeline, publish_method, with_properties
from simulation.node.checker import Violation
from tests.integration.clients import connect, declare_led_by
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask
from tests.reliability.chaos import LOGIN, Run, clients_of, hit_until, with_nodes
from tests.reliability.clients import Clients
from tests.reliability.faults import Surroundings
from tests.reliability.redrive_judging import Rate, Redriven, Sample, judge_rate, judge_redrive, rate_of

SECONDS_FOR_EACH_FAULT: Final = 9.0
"""Until all is whole again and has been calm: by that the rate is chosen, so that the redrive lasts as long as the
faults."""
BETWEEN_S: Final = (2.0, 5.0)
"""How long it is calm between faults: the rate is measured then."""
STAYS_EACH: Final = 10
STANDS_STILL_S: Final = 120.0
"""Without any progress for so long a run is given up."""
_BODY: Final = struct.Struct(">Q")
_HEADERS: Final = {staying: b"\x04pickS\x00\x00\x00\x03" + (b"no " if staying else b"yes") for staying in (True, False)}
_PICKED: Final = {"pick": "yes"}
_MARKS: Final = (b"\x07x-death", b"x-redriven-from")
_HEADER_FRAME: Final = 2
_BODY_FRAME: Final = 3
_BASIC: Final = commands.Basic.Deliver.frame_id.to_bytes(2, "big")
_WINDOW: Final = 2_000
_SAMPLE_S: Final = 0.1
_PREVIEW_MS: Final = 150_000
_TELL_S: Final = 5.0


@dataclass(slots=True)
class RedriveRun(Run):
    """What is to be run, and what has come of it. `seconds` and `rate` of its base mean nothing here."""

    messages: int = 5_000
    """So many are to move."""
    per_second: int = 0
    """0: so that it lasts as long as `least_faults` take."""
    judges_pace: bool = True
    """The rate, and whether there were enough faults meanwhile. Not on a machine that may be too busy for any."""
    source: str = ""
    redriven: Redriven = field(default_factory=lambda: Redriven((), 0, STAYS_EACH))
    samples: list[Sample] = field(default_factory=list)
    previewed_s: float = 0.0
    """What the preview took."""

    def __post_init__(self) -> None:
        self.between_s = BETWEEN_S
        if not self.per_second:
            lasts_s = SECONDS_FOR_EACH_FAULT * max(1, self.least_faults)
            self.per_second = max(1, round(self.messages / lasts_s))

    @property
    def measured(self) -> Rate:
        """How quickly it went."""
        return rate_of(self.samples, self.faults)


def carry_out_redrive(run: RedriveRun, folder: Path, say: bool = True) -> None:
    """The whole run. Its data and logs stay in the folder."""
    with_nodes(run, folder, partial(_under_faults, run, say=say))


def _under_faults(run: RedriveRun, nodes: Nodes, around: Surroundings, say: bool) -> None:
    clients = run.clients = clients_of(nodes, run.seed)
    tell = partial(print, flush=True) if say else _silent
    try:
        _bury(run, nodes, tell)
        _preview(run, nodes, tell)
        _redrive(run, nodes, around, clients, say, tell)
        nodes.until_well(STANDS_STILL_S)
        _wait_for_all(run, nodes)
        _read_back(run, nodes, tell)
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        run.violations += judge_redrive(run.redriven)
        if run.judges_pace:
            run.violations += judge_rate(run.per_second, run.measured)
        if run.judges_pace and not run.is_hit_enough:
            run.violations.append(
                Violation("faults", f"{len(run.faults)} while it lasted, {run.least_faults} were to be: a lower rate")
            )
    finally:
        clients.end()


def _silent(*_: object) -> None:
    """Nothing is told."""


# ------------------------------------------------------------------------------------------------ before the faults


def _bury(run: RedriveRun, nodes: Nodes, tell: Callable[..., None]) -> None:
    """Declare the queues, publish, and wait until all are dead."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    run.source = declare_led_by(nodes, channel, "dead", lambda leader: leader == 1)
    dying: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": run.source}
    queues = [
        declare_led_by(nodes, channel, f"work-{id}", lambda leader, id=id: leader == id, dying)  # type: ignore[misc]
        for id in nodes.ids
    ]
    connection.close()
    total = _total(run.messages, len(queues))
    found = run.redriven = Redriven(queues, total, STAYS_EACH, run.per_second)
    began_s = time.monotonic()
    with Pipeline(_uri(nodes, 1)) as publisher:
        publisher.publish_all(_messages(found), _WINDOW)
    tell(f"  {total} messages published in {time.monotonic() - began_s:.1f} s")
    all_dead = partial(_all_are, nodes, {run.source: total, **dict.fromkeys(queues, 0)})
    _wait_while_it_goes_on(all_dead, partial(nodes.ready, 1, run.source), f"{total} dead letters")
    tell(f"  all of them dead {time.monotonic() - began_s:.1f} s after the first publish")


def _total(moving: int, queues: int) -> int:
    """How many have to die that so many are picked."""
    total = moving
    while (picked := Redriven(("",) * queues, total, STAYS_EACH).moving) < moving:
        total += moving - picked
    return total


def _messages(found: Redriven) -> Iterator[bytes]:
    methods = [publish_method(queue) for queue in found.queues]
    for number in range(found.total):
        headers = _HEADERS[found.stays(number)]
        yield methods[number % len(methods)] + with_properties(_BODY.pack(number), expiration="1", headers=headers)


def _uri(nodes: Nodes, id: int) -> str:
    user, password = LOGIN
    return f"amqp://{user}:{password}@{nodes.plan(id).amqp}/%2f"


def _preview(run: RedriveRun, nodes: Nodes, tell: Callable[..., None]) -> None:
    began_s = time.monotonic()
    wish = {"headers": _PICKED, "count": 10, "within_ms": _PREVIEW_MS}
    status, ahead = _asked(nodes, 2, "POST", f"{_page(run)}/preview", wish)
    assert status == 200, f"the preview was answered with {status}: {ahead}"
    run.redriven.preview = ahead
    run.previewed_s = time.monotonic() - began_s
    tell(f"  previewed in {run.previewed_s:.1f} s: {ahead['moves']} move, {ahead['stays']} stay")


def _page(run: RedriveRun) -> str:
    return f"mayfly/queues/%2F/{run.source}/redrive"


def _asked(nodes: Nodes, id: int, method: str, path: str, content: object = None) -> tuple[int, Any]:
    return ask(nodes, id, method, path, content, LOGIN)


# ------------------------------------------------------------------------------------------------ the redrive


def _redrive(
    run: RedriveRun, nodes: Nodes, around: Surroundings, clients: Clients, say: bool, tell: Callable[..., None]
) -> None:
    """Start it, and one fault after the other until it is over."""
    wish = {"headers": _PICKED, "rate": run.per_second}
    status, answer = _asked(nodes, 1, "POST", _page(run), wish)
    assert status == 201, f"the redrive was not started: {status} {answer}"
    tell(f"  redriven at {run.per_second} a second")
    watcher = _Watcher(run, nodes, clients, tell)
    watcher.start()
    try:
        queues = [run.source, *run.redriven.queues]
        hit_until(lambda: watcher.is_over, run, nodes, around, clients, queues, say)
    finally:
        watcher.ended.set()
        watcher.join()
    assert watcher.is_done, f"it stands still: {watcher.last}"
    run.redriven.progress = watcher.last


class _Watcher(threading.Thread):
    """Asks for the redrive's progress all the while, whichever nodes are there."""

    def __init__(self, run: RedriveRun, nodes: Nodes, clients: Clients, tell: Callable[..., None]) -> None:
        super().__init__(name="progress", daemon=True)
        self.ended = threading.Event()
        self.last: dict[str, Any] = {}
        self.is_done = False
        self.is_over = False
        """It is done, or stands still."""
        self._run = run
        self._nodes = nodes
        self._clients = clients
        self._tell = tell
        self._moved_s = time.monotonic()
        self._told_s = time.monotonic()

    def run(self) -> None:
        """The thread."""
        ids = list(self._nodes.ids)
        while not self.is_over and not self.ended.wait(_SAMPLE_S):
            if not self._look(ids[0]):
                ids.append(ids.pop(0))
            if time.monotonic() - self._moved_s > STANDS_STILL_S:
                self.is_over = True

    def _look(self, id: int) -> bool:
        """Whether the node has answered."""
        try:
            status, row = _asked(self._nodes, id, "GET", _page(self._run))
        except (OSError, http.client.HTTPException, ValueError):
            return False
        if status != 200 or "moved" not in row:
            return False
        if row["moved"] > self.last.get("moved", -1):
            self._moved_s = time.monotonic()
        self.last = row
        self.is_done = self.is_over = row["state"] == "done"
        if not self.is_done:
            self._run.samples.append(Sample(self._clients.now_us(), row["moved"]))
        if time.monotonic() - self._told_s >= _TELL_S:
            self._told_s = time.monotonic()
            self._tell(
                f"  {self._clients.now_us() / 1e6:8.3f}s {row['moved']} of {self._run.messages} moved, "
                f"{len(self._run.faults)} faults"
            )
        return True


# ------------------------------------------------------------------------------------------------ after the faults


def _wait_for_all(run: RedriveRun, nodes: Nodes) -> None:
    """Until what has moved is where it belongs, on every node."""
    wait_for(
        lambda: all(nodes.status(id)["queues"]["outbox"] == 0 for id in nodes.ids), "nothing on its way", STANDS_STILL_S
    )
    queues = (run.source, *run.redriven.queues)
    first = {queue: nodes.ready(1, queue) for queue in queues}
    wait_for(partial(_all_are, nodes, first), "every node has as many", STANDS_STILL_S)


def _all_are(nodes: Nodes, wanted: dict[str, int]) -> bool:
    """Whether every node has so many messages in these queues."""
    return all(nodes.ready(id, queue) == count for id in nodes.ids for queue, count in wanted.items())


def _wait_while_it_goes_on(done: Callable[[], bool], progress: Callable[[], int], what: str) -> None:
    """However long a busy machine takes, as long as there is progress."""
    seen, moved_s = -1, time.monotonic()
    while not done():
        now = progress()
        if now != seen:
            seen, moved_s = now, time.monotonic()
        assert time.monotonic() - moved_s < STANDS_STILL_S, f"{what}: {seen}, and no more for {STANDS_STILL_S:.0f} s"
        time.sleep(0.2)


def _read_back(run: RedriveRun, nodes: Nodes, tell: Callable[..., None]) -> None:
    found = run.redriven
    for queue in found.queues:
        for id in nodes.ids:
            info = nodes.queue(id, queue)
            assert info is not None
            found.enqueued[id, queue] = info["enqueued"]
        found.came[queue], unmarked = _taken(nodes, queue)
        found.unmarked += unmarked
    found.left, _ = _taken(nodes, run.source)
    tell(f"  read back: {sum(map(len, found.came.values()))} moved, {len(found.left)} stayed")


def _taken(nodes: Nodes, queue: str) -> tuple[array[int], int]:
    """All that is in a queue, in order, and how many of it have no x-death or no mark of a redrive."""
    numbers, unmarked, left = array("Q"), 0, nodes.ready(1, queue)
    if not left:
        return numbers, 0
    with Pipeline(_uri(nodes, 1)) as client:
        client.begin_to_consume([queue])
        for kind, _, payload in client.frames():
            if kind == _HEADER_FRAME:
                unmarked += not all(mark in payload for mark in _MARKS)
            elif kind == _BODY_FRAME:
                numbers.append(_BODY.unpack(payload)[0])
                left -= 1
                if not left:
                    break
            assert kind != METHOD or payload[:2] == _BASIC, f"{queue}: {payload!r} instead of a delivery"
    wait_for(lambda: nodes.ready(1, queue) == 0, f"nothing is left in {queue}", STANDS_STILL_S)
    return numbers, unmarked
