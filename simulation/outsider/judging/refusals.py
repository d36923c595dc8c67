"""What must be refused is, and what is right is not. RULES T1, T2, L1, D1."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.history import CLOSED, CONFIRMED, DECLARE, OK, REFUSED, RETURNED
from simulation.outsider.judging.view import Finding, View, is_good_expiration

PRECONDITION_FAILED = 406


def judge_refusals(view: View) -> Iterator[Finding]:
    """Declares and expirations."""
    for calls in view.calls.values():
        for call in calls:
            if call.kind != DECLARE:
                continue
            refused = call.outcome == CLOSED and call.code == PRECONDITION_FAILED
            if call.bad and call.outcome == OK:
                yield Finding("T1", f"{call.queue}: a declare with bad arguments was taken at {call.answered_us} us")
            if call.bad and call.outcome == CLOSED and call.code and not refused:
                yield Finding("T1", f"{call.queue}: bad arguments are answered with {call.code}")
            if refused and not call.bad:
                yield Finding("D1", f"{call.queue}: a good declare was refused at {call.answered_us} us")
    for publish in view.publishes.values():
        good = is_good_expiration(publish.expiration)
        if not good and publish.outcome in (CONFIRMED, REFUSED, RETURNED):
            yield Finding("T2", f"message {publish.message}: expiration {publish.expiration!r}, {publish.outcome}")
        if good and publish.outcome == CLOSED and publish.code == PRECONDITION_FAILED:
            yield Finding("T2", f"message {publish.message}: refused, its expiration {publish.expiration!r} is right")
