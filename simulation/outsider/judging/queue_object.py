"""A queue as a sequential object: it is there or not, has users, a lease and, if nobody consumes from it, its messages
in order. What clients called, as operations on it.

RULES L2-L5, L10: declares, passive declares, gets and the end of a consumer renew the lease; it can only have ended
between two operations when a whole period lies behind the last renewal that surely was, and nobody consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simulation.outsider.judging.history import (
    CANCEL,
    CLOSED,
    CONFIRMED,
    CONSUME,
    DECLARE,
    DELETE,
    EMPTY,
    GET,
    OK,
    PASSIVE,
    PURGE,
    REFUSED,
    RETURNED,
    Call,
    DeclaredQueue,
)
from simulation.outsider.judging.linearizability import (
    NOT_LINEARIZABLE,
    UNDECIDED,
    TimedOperation,
    check,
)
from simulation.outsider.judging.view import Finding, View

PUBLISH, RELEASE, TOLD_GONE = "publish", "release", "told gone"
NOT_FOUND = 404
_NEVER_US = 1 << 62
_USES = (DECLARE, PASSIVE, DELETE, PURGE, GET, CONSUME, CANCEL)


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What was done to a queue and what came of it."""

    kind: str
    outcome: str
    message: int | None = None
    holder: str = ""
    takes: bool = False
    """Of a get: whether the message is gone with it."""
    code: int = 0
    is_doubtful: bool = False
    """Of a publish: something was done to the cluster, so that not all who have to know it may know yet that the queue
    was deleted and declared anew."""


class QueueState(NamedTuple):
    """Times are bounds: the last renewal was not before `since_us`, nor after `until_us`."""

    exists: bool
    now_us: int
    since_us: int
    until_us: int
    holders: frozenset[str]
    contents: tuple[int, ...]


NOTHING = QueueState(False, 0, 0, 0, frozenset(), ())


class QueueObject:
    """The object that a queue's clients should have seen. `late_ms` None: its lease may end as late as it likes."""

    def __init__(
        self,
        queue: DeclaredQueue,
        counts_messages: bool,
        clock_ms: int,
        late_ms: int | None,
        is_quiet: Callable[[int, int], bool],
    ) -> None:
        self._period_us = None if queue.expires_ms is None else queue.expires_ms * 1_000
        self._counts_messages = counts_messages
        self._clock_us = clock_ms * 1_000
        self._late_us = None if late_ms is None else late_ms * 1_000
        self._is_quiet = is_quiet

    def steps(self, state: QueueState, operation: TimedOperation[QueueUse]) -> list[QueueState]:
        """What may be after an operation, with the end of the lease before it or without."""
        state = state._replace(now_us=max(state.now_us, operation.began_us))
        before = [] if self._has_surely_ended(state) else [state]
        if self._may_have_ended(state, operation.ended_us):
            before.append(NOTHING._replace(now_us=state.now_us))
        after = [each for one in before for each in self._apply(one, operation)]
        return list(dict.fromkeys(after))

    def _may_have_ended(self, state: QueueState, latest_us: int | None) -> bool:
        """RULES L4, L3: never before its period has passed, never while somebody consumes."""
        if not state.exists or state.holders or self._period_us is None:
            return False
        # When something without an answer happened nobody knows: whether the end came before is asked of what follows.
        return latest_us is not None and state.since_us + self._period_us - self._clock_us <= latest_us

    def _has_surely_ended(self, state: QueueState) -> bool:
        """RULES L6: in a cluster that has its leaders a lease ends on time."""
        if not state.exists or state.holders or self._period_us is None or self._late_us is None:
            return False
        end_us = state.until_us + self._period_us + self._late_us + self._clock_us
        return state.now_us > end_us and self._is_quiet(state.since_us, state.now_us)

    def _apply(self, state: QueueState, operation: TimedOperation[QueueUse]) -> list[QueueState]:
        use = operation.what
        if use.outcome == "":
            return self._unanswered(state, operation)
        if use.outcome == CLOSED:
            return [state] if use.code != NOT_FOUND or not state.exists else []
        if use.kind == DELETE:
            return [NOTHING._replace(now_us=state.now_us)]
        if use.kind == TOLD_GONE:
            return [] if use.holder in state.holders else [state]
        if use.kind in (CANCEL, RELEASE):
            return [self._let_go(state, operation)]
        if use.kind == PUBLISH:
            return self._published(state, use)
        if use.kind == DECLARE and not state.exists:
            return [self._renewed(NOTHING._replace(exists=True, now_us=state.now_us), operation)]
        if not state.exists:
            return []
        state = self._renewed(state, operation)
        if use.kind == CONSUME:
            return [state._replace(holders=state.holders | {use.holder})]
        if use.kind == PURGE:
            return [state._replace(contents=())]
        return self._got(state, use) if use.kind == GET else [state]

    def _unanswered(self, state: QueueState, operation: TimedOperation[QueueUse]) -> list[QueueState]:
        """It happened; what would have been answered is not known. (That it did not happen is the search's part.)"""
        use = operation.what
        if use.kind == DELETE:
            return [NOTHING._replace(now_us=state.now_us)]
        if use.kind in (RELEASE, CANCEL):
            return [self._let_go(state, operation)]
        if use.kind == PUBLISH:
            return self._published(state, use) if state.exists else [state]
        if use.kind == DECLARE and not state.exists:
            return [self._renewed(NOTHING._replace(exists=True, now_us=state.now_us), operation)]
        if not state.exists:
            return [state]
        state = self._renewed(state, operation)
        if use.kind == PURGE or (use.kind == GET and use.takes):
            contents = () if use.kind == PURGE else state.contents[1:]
            return [state._replace(contents=contents)]
        return [state]

    def _published(self, state: QueueState, use: QueueUse) -> list[QueueState]:
        if use.outcome == RETURNED:
            return [] if state.exists and not use.is_doubtful else [state]
        if use.outcome == REFUSED:
            return [state]
        if not state.exists:
            return []
        if not self._counts_messages or use.message is None:
            return [state]
        return [state._replace(contents=(*state.contents, use.message))]

    def _got(self, state: QueueState, use: QueueUse) -> list[QueueState]:
        if not self._counts_messages:
            return [state]
        if use.outcome == EMPTY:
            return [] if state.contents else [state]
        if not state.contents or state.contents[0] != use.message:
            return []
        return [state._replace(contents=state.contents[1:])]

    def _let_go(self, state: QueueState, operation: TimedOperation[QueueUse]) -> QueueState:
        holder = operation.what.holder
        if holder not in state.holders:
            return state
        return self._renewed(state._replace(holders=state.holders - {holder}), operation)

    def _renewed(self, state: QueueState, operation: TimedOperation[QueueUse]) -> QueueState:
        """RULES L2: the full period starts again."""
        until_us = _NEVER_US if operation.ended_us is None else operation.ended_us
        return state._replace(since_us=max(state.since_us, state.now_us), until_us=max(state.until_us, until_us))


def operations_on(view: View, queue: DeclaredQueue) -> Iterator[TimedOperation[QueueUse]]:
    """What clients did to a queue, and when its users may have been gone."""
    consumes: dict[str, Call] = {}
    for call in view.calls.get(queue.name, ()):
        if call.bad or call.kind not in _USES:
            continue
        holder = f"{call.connection}/{call.tag}"
        use = QueueUse(call.kind, _outcome(call.outcome, call.code), call.message, holder, call.no_ack, call.code)
        yield TimedOperation(use, call.sent_us, None if use.outcome == "" else call.answered_us)
        if call.kind == CONSUME and call.outcome == OK:
            consumes[holder] = call
    for holder, call in consumes.items():
        yield TimedOperation(QueueUse(RELEASE, "", holder=holder), _doubtful_from_us(view, call), None)
    for gone in view.history.cancelled:
        holder = f"{gone.connection}/{gone.tag}"
        if gone.queue == queue.name and holder in consumes:
            began_us = (consumes[holder].answered_us or 0) + 1
            yield TimedOperation(QueueUse(TOLD_GONE, OK, holder=holder), began_us, max(gone.at_us, began_us))
    for publish in view.history.publishes:
        if queue.name in view.routed(publish):
            outcome = _outcome(publish.outcome, publish.code)
            answered_us = None if outcome == "" else publish.answered_us
            quiet = view.is_quiet(publish.sent_us, publish.answered_us or publish.sent_us)
            use = QueueUse(PUBLISH, outcome, publish.message, code=publish.code, is_doubtful=not quiet)
            yield TimedOperation(use, publish.sent_us, answered_us)


def _outcome(outcome: str, code: int) -> str:
    """The answer; "" when none is known."""
    if outcome in (OK, EMPTY, CONFIRMED, REFUSED, RETURNED) or (outcome == CLOSED and code):
        return outcome
    return ""


def _doubtful_from_us(view: View, call: Call) -> int:
    """From when on a consumer may be gone for the cluster: something was done to its node, or its connection ended."""
    end = view.ends.get(call.connection)
    end_us = view.history.phases.end_us if end is None else end.at_us
    for calls in view.calls.values():
        for other in calls:
            if other.connection == call.connection and (other.outcome not in (OK, EMPTY)):
                end_us = min(end_us, other.sent_us)
    for publish in view.history.publishes:
        if publish.connection == call.connection and publish.outcome not in (CONFIRMED, REFUSED, RETURNED):
            end_us = min(end_us, publish.sent_us)
    settle_us = view.setting.settle_ms * 1_000
    for trouble in view.history.troubles:
        if trouble.from_us <= end_us and trouble.to_us + settle_us >= call.sent_us:
            end_us = min(end_us, trouble.from_us)
    return max(call.sent_us, end_us)


def judge_objects(view: View) -> tuple[list[Finding], int]:
    """Each queue by itself, and for how many there was no verdict."""
    findings: list[Finding] = []
    undecided = 0
    dead_letter_targets = {
        target
        for queue in view.queues.values()
        for publish in ([*view.publishes.values()] if queue.dead_letter_key is None else [*view.publishes.values()][:1])
        for target in view.after_death(queue, publish)
    }
    for queue in view.queues.values():
        calls = view.calls.get(queue.name, ())
        if not any(call.kind in (PASSIVE, DELETE, GET) for call in calls):
            continue
        plain = not (queue.ttl_ms is not None or queue.max_length is not None or queue.allow_schedule)
        gets = [call for call in calls if call.kind == GET]
        plain = plain and queue.max_priority is None and queue.retry_min_ms is None
        plain = plain and not any(
            publish.expiration is not None for publish in view.publishes.values() if queue.name in view.routed(publish)
        )
        counts = plain and queue.name not in dead_letter_targets and all(call.no_ack for call in gets)
        counts = counts and not any(call.kind == CONSUME for call in calls) and not view.has_moved(queue.name)
        late_ms = None if view.setting.late_ms is None else view.setting.late_ms + view.setting.tick_ms
        model = QueueObject(queue, counts, view.setting.clock_ms, late_ms, view.is_quiet)
        verdict = check(operations_on(view, queue), NOTHING, model.steps)
        undecided += verdict.found == UNDECIDED
        if verdict.found == NOT_LINEARIZABLE and verdict.unexplained is not None:
            odd = verdict.unexplained
            findings.append(
                Finding(
                    "linearizable",
                    f"queue {queue.name}: nothing explains {odd.what.kind} -> {odd.what.outcome} {odd.what.code or ''}"
                    f" {odd.what.message if odd.what.message is not None else ''} of {odd.began_us}..{odd.ended_us} us",
                )
            )
    return findings, undecided
