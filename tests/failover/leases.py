"""Queues with a lease that nobody uses, while nodes fail: each goes, and none before its time (RULES L1, L7)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from mayfly.node.settings.kinds import Address
from simulation.node.checker import Violation
from tests.reliability.dead_letter_judging import CLOCKS_DIFFER_BY_US

EXPIRES_MS: Final = (3_000, 6_000, 9_000)
EVERY_S: Final = 1.0
_ASK_EVERY_S: Final = 0.1
_CONNECT_WITHIN_S: Final = 2.0


@dataclass(slots=True)
class Lease:
    """A queue with `x-expires`. Moments of the monotonic clock; 0: not yet."""

    queue: str
    expires_ms: int
    asked_s: float
    """Before it was declared: the lease began no earlier."""
    gone_s: float = 0.0
    """When a node that had made sure that it misses nothing knew of no such queue."""

    def fault(self, fast: float) -> str:
        """What is wrong with it, if it is gone. `fast`: the share of its time by which a clock may have gone faster."""
        early_s = self.asked_s + self.expires_ms / 1e3 * (1 - fast) - self.gone_s
        if self.gone_s and early_s > CLOCKS_DIFFER_BY_US / 1e6:
            return f"{self.queue} with {self.expires_ms} ms was gone {early_s:.3f} s early"
        return ""


class Leases(threading.Thread):
    """Declares one a second at any node that takes it, leaves it alone, and watches it go."""

    def __init__(
        self,
        nodes: Sequence[Address],
        login: tuple[str, str],
        ask: Callable[[int, str], tuple[int, str]],
        witnesses: Sequence[int],
    ) -> None:
        """`ask`: a node's answer (status, error) to the question whether there is a queue, by what the cluster has
        now."""
        super().__init__(name="leases", daemon=True)
        self.leases: list[Lease] = []
        self.failure: BaseException | None = None
        self._nodes = nodes
        self._credentials = pika.PlainCredentials(*login)
        self._ask = ask
        self._witnesses = witnesses
        self._enough = threading.Event()

    def run(self) -> None:
        """The thread: until it is enough, and all are gone."""
        try:
            number = 0
            due_s = time.monotonic()
            while not self._enough.is_set() or self.open():
                if not self._enough.is_set() and time.monotonic() >= due_s:
                    due_s = time.monotonic() + EVERY_S
                    self._declare(number)
                    number += 1
                for lease in self.open():
                    if lease.asked_s + lease.expires_ms / 2e3 < time.monotonic():
                        self._look(lease, self._witnesses[number % len(self._witnesses)])
                time.sleep(_ASK_EVERY_S)
        except Exception as error:
            self.failure = error

    def enough(self) -> None:
        """Declare no more."""
        self._enough.set()

    def open(self) -> list[Lease]:
        """Those that were not seen to be gone."""
        return [lease for lease in self.leases if not lease.gone_s]

    def judge(self, fast: float = 0.0) -> list[Violation]:
        """Every lease that ended early or did not end. `fast`: as for `Lease.fault`."""
        faults = [fault for lease in self.leases if (fault := lease.fault(fast))]
        kept = [f"{lease.queue} with {lease.expires_ms} ms is still there" for lease in self.open()]
        return [Violation("lease", text) for text in faults + kept]

    def _declare(self, number: int) -> None:
        address = self._nodes[number % len(self._nodes)]
        expires_ms = EXPIRES_MS[number % len(EXPIRES_MS)]
        lease = Lease(f"lease-{number}", expires_ms, time.monotonic())
        parameters = pika.ConnectionParameters(
            address.host,
            address.port,
            credentials=self._credentials,
            heartbeat=0,
            socket_timeout=_CONNECT_WITHIN_S,
            stack_timeout=_CONNECT_WITHIN_S,
            blocked_connection_timeout=_CONNECT_WITHIN_S,
        )
        try:
            connection = pika.BlockingConnection(parameters)
        except (AMQPError, AMQPConnectorException, OSError):
            return  # a node that is down, hangs or is cut off takes none
        connection.call_later(5, connection.close)
        try:
            connection.channel().queue_declare(lease.queue, durable=True, arguments={"x-expires": expires_ms})
        except (AMQPError, AMQPConnectorException, OSError):
            return  # it may be there or not
        self.leases.append(lease)
        # The node may close it at the same moment.
        with contextlib.suppress(AMQPError):
            connection.close()

    def _look(self, lease: Lease, witness: int) -> None:
        try:
            status, error = self._ask(witness, lease.queue)
        except OSError:
            return
        # With a reason in brackets the node says that it may have missed something.
        if status == HTTPStatus.NOT_FOUND and not error.endswith(")"):
            lease.gone_s = time.monotonic()
