"""Which node is to lead a new queue's shard: what its arguments and its policy say of it.

A quorum queue goes by `queue-leader-locator`, the policy's before the argument's; a classic one by the argument
`x-queue-master-locator`, then that of the policy (rabbit_queue_location, rabbit_queue_master_location_misc 3.10).
Since durable classic queues are quorum queues here, they go by `queue-leader-locator` after that. A word that is
none is passed over.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CLIENT_LOCAL: Final = "client-local"
"""The node of the client that declares the queue, if it leads anything."""

BALANCED: Final = "balanced"
"""Whichever leads the shard with the fewest queues."""

LEADER_LOCATOR: Final = "queue-leader-locator"
MASTER_LOCATOR: Final = "queue-master-locator"
POLICY_KEYS: Final = frozenset({LEADER_LOCATOR, MASTER_LOCATOR})

LEADER_LOCATORS: Final = ("client-local", "random", "least-leaders", "balanced")
MASTER_LOCATORS: Final = ("client-local", "min-masters", "random")
_WORDS: Final = {LEADER_LOCATOR: LEADER_LOCATORS, MASTER_LOCATOR: MASTER_LOCATORS}


def leader_locator(quorum: bool, arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    """CLIENT_LOCAL, BALANCED or, when nothing is said, "". `definition` is what the policies say."""
    said: tuple[tuple[Mapping[str, Any], str, str], ...]
    if quorum:
        said = ((definition, LEADER_LOCATOR, ""), (arguments, LEADER_LOCATOR, "x-"))
    else:
        said = (
            (arguments, MASTER_LOCATOR, "x-"), (arguments, LEADER_LOCATOR, "x-"),
            (definition, MASTER_LOCATOR, ""), (definition, LEADER_LOCATOR, ""),
        )
    for where, key, prefix in said:
        word = where.get(prefix + key)
        if isinstance(word, str) and word in _WORDS[key]:
            return CLIENT_LOCAL if word == CLIENT_LOCAL else BALANCED
    return ""
