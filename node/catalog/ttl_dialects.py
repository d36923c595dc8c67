"""In whose way a queue's message TTL is counted (RULES X1): what its arguments and policies say of it.

The argument counts before the policy, the policy before the operator policy. What each of them means: docs/dialects.md.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RABBITMQ: Final = "rabbitmq"
LAVINMQ: Final = "lavinmq"
OTTERMQ: Final = "ottermq"
TTL_DIALECTS: Final = (RABBITMQ, LAVINMQ, OTTERMQ)
POLICY_KEY: Final = "ttl-dialect"


def ttl_dialect(arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    """One of TTL_DIALECTS. `definition` is what the policies say. (A log from before `LEVEL_TTL_DIALECTS` may have
    arguments that were not looked at.)"""
    for said in (arguments.get(f"x-{POLICY_KEY}"), definition.get(POLICY_KEY)):
        if isinstance(said, str) and said in TTL_DIALECTS:
            return said
    return RABBITMQ
