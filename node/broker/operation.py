"""Operations of several steps, without an event loop.

An operation is a generator: it yields requests to the cluster and is sent their
answers.  `Operation` drives one generator; while a request is under way nothing
runs.  Requests that are answered at once (a shard in this process) do not grow
the stack.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterFacade, OnDone, SessionLost, UnreadableMessage
from mayfly.node.catalog import Refusal

logger = logging.getLogger(__name__)

SOFT_ERRORS: Final = frozenset((311, 313, 403, 404, 405, 406))
"""Reply codes that close a channel; all others close the connection (AMQP 0-9-1, 1.8.3.8)."""


class AmqpError(Exception):
    """A refusal for the client: a reply code and a text without the code's name."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        # No property: mypyc's exceptions cannot have any.
        self.closes_connection = code not in SOFT_ERRORS
        """Whether the whole connection must go."""


def no_room_error(why: str) -> AmqpError:
    """What a client is told instead of an answer (see `ClusterFacade.no_room`)."""
    return AmqpError(506, f"this node can do nothing, {why}")


class Request:
    """One step of an operation; `start` must lead to one call of `done`."""

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        """Set the step going."""
        raise NotImplementedError


class CatalogStep(Request):
    """Submit a catalog command; answers with its result."""

    def __init__(self, command: Any) -> None:
        self.command = command

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.submit_catalog(self.command, done)


class BarrierStep(Request):
    """Wait until the local catalog replica is as new as this moment."""

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.catalog_barrier(done)


class SpreadStep(Request):
    """Wait until what this operation has changed in the catalog is known to the other nodes, too."""

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.catalog_spread(done)


class LaterStep(Request):
    """Wait a moment, for what must be asked for again."""

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.later(done)


class ServeStep(Request):
    """Wait until this node is one whose clients see what clients of other nodes have changed."""

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.serve(done)


class RoutingTurnStep(Request):
    """Wait for a connection's turn to route (`node.catalog.routing_steps`)."""

    def __init__(self, client: object) -> None:
        self.client = client

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.catalog.routing_turns.enter(self.client, partial(done, None))


class OwnerStep(Request):
    """Wait while the owner of a queue cannot be reached and the queue is still there; answers a bool: whether it is
    worthwhile to ask again."""

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.await_owner(self.queue_id, done)


class ReplyAddressStep(Request):
    """Ask whether the channel of an address for direct replies is there; answers a bool."""

    def __init__(self, address: str) -> None:
        self.address = address

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.ask_for_reply_address(self.address, done)


class ShardStep(Request):
    """Submit a session command to a shard; answers with its result."""

    def __init__(self, shard_id: int, command: bytes) -> None:
        self.shard_id = shard_id
        self.command = command

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.shard(self.shard_id).submit(self.command, done)


class ShardsStep(Request):
    """Submit a session command to each of several shards at once; answers with their results, in order."""

    def __init__(self, commands: list[tuple[int, bytes]]) -> None:
        self.commands = commands
        self._results: list[object] = [None] * len(commands)
        self._open = len(commands)
        self._done: OnDone | None = None

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        self._done = done
        if not self.commands:
            done(self._results)
        for place, (shard_id, command) in enumerate(self.commands):
            cluster.shard(shard_id).submit(command, partial(self._answered, place))

    def _answered(self, place: int, result: object) -> None:
        self._results[place] = result
        self._open -= 1
        if self._open == 0 and self._done is not None:
            self._done(self._results)


class PiecesStep(Request):
    """Submit a large session command to a shard, a piece at a time; answers with its result."""

    def __init__(self, shard_id: int, command: bytes) -> None:
        self._shard_id = shard_id
        self._command = command

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        cluster.shard(self._shard_id).submit_in_pieces(self._command, done)


Steps = Generator[Request, Any, None]
"""What an operation's generator looks like."""


class Operation:
    """Drives the generator of one operation to its end."""

    def __init__(
        self,
        cluster: ClusterFacade,
        steps: Steps,
        failed: Callable[[AmqpError], None],
        finished: Callable[[], None],
    ) -> None:
        """`failed(error)` is called if the generator raises AmqpError, then, and in any
        other case, `finished()`; each at most once."""
        self._cluster = cluster
        self._steps = steps
        self._failed = failed
        self._finished = finished
        self._inside = False
        self._answered = False
        self._answer: object = None
        self.over = False

    def start(self) -> None:
        """Run up to the first request that is not answered at once."""
        self._run(None)

    def _done(self, answer: object) -> None:
        if self.over or self._answered:
            return
        if self._inside:
            self._answered = True
            self._answer = answer
            return
        self._run(answer)

    def _run(self, answer: object) -> None:
        self._inside = True
        try:
            while True:
                self._answered = False
                request = self._steps.send(answer)
                request.start(self._cluster, self._done)
                if not self._answered:
                    return
                answer = self._answer
        except StopIteration:
            self.over = True
        except AmqpError as error:
            self.over = True
            self._failed(error)
        except UnreadableMessage as unreadable:
            logger.error("an operation failed: %s", unreadable)
            self.over = True
            self._failed(AmqpError(541, "a message cannot be read"))
        except Exception:
            # A defect of ours must not end the node: the client is told, the log has the trace.
            logger.exception("an operation failed")
            self.over = True
            self._failed(AmqpError(541, "internal error"))
        finally:
            self._inside = False
            self._answered = False
            self._answer = None
        if self.over:
            self._finished()


def as_error(refusal: Refusal) -> AmqpError:
    """A refusal of the catalog as the error for the client."""
    return AmqpError(refusal.code, refusal.text)


def check(refusal: Refusal | None) -> None:
    """Raise if there is a refusal."""
    if refusal is not None:
        raise as_error(refusal)


def known(answer: Any) -> Any:
    """The answer; raises AmqpError if it is a refusal, or if the cluster lost track of the command."""
    if isinstance(answer, Refusal):
        raise as_error(answer)
    if isinstance(answer, SessionLost):
        raise AmqpError(541, "the cluster lost track of the operation; it may or may not have been done")
    return answer


def nothing(result: object) -> None:
    """For commands whose result nobody waits for."""
    if isinstance(result, SessionLost):
        logger.debug("the fate of a clean-up command is unknown")


__all__ = [
    "SESSION_LOST",
    "SOFT_ERRORS",
    "AmqpError",
    "BarrierStep",
    "CatalogStep",
    "LaterStep",
    "Operation",
    "OwnerStep",
    "PiecesStep",
    "ReplyAddressStep",
    "Request",
    "RoutingTurnStep",
    "ServeStep",
    "ShardStep",
    "ShardsStep",
    "SpreadStep",
    "Steps",
    "as_error",
    "check",
    "known",
    "no_room_error",
    "nothing",
]
