"""Dead-letter cycles (RULES D5; goldens dlx.self_cycle, dlx.retry_loop, dlx.reject_to_self)."""
from __future__ import annotations

import pytest

from mayfly.node.dead_letter import DeathHistory, is_cycle


@pytest.mark.parametrize(
    "history, queue, cycle",
    [
        ((("q", "expired"),), "q", True),
        ((("q", "expired"),), "dlq", False),
        ((("q", "rejected"),), "q", False),
        ((("q", "maxlen"),), "q", True),
        ((("q", "delivery_limit"),), "q", True),
        ((("retry", "expired"), ("work", "rejected")), "work", False),
        ((("retry", "expired"), ("work", "expired")), "work", True),
        ((("b", "expired"), ("a", "rejected"), ("c", "expired")), "c", False),
        ((("b", "expired"), ("a", "expired"), ("c", "rejected")), "a", True),
        ((("q", "expired"), ("q", "rejected")), "q", True),
        ((("b", "expired"), (None, None), ("a", "expired")), "a", True),
        ((("b", "expired"), (None, "rejected"), ("a", "expired")), "a", False),
        ((), "q", False),
    ],
)
def test_d5_cycles(history: DeathHistory, queue: str, cycle: bool) -> None:
    assert is_cycle(history, queue) is cycle
