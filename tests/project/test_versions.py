"""Replicas of different releases apply one log: what it may hold goes by feature levels (`cluster.versions`).

Whoever changes what is pinned here raises `LEVEL_HIGHEST`, and has the new form written from that level on alone.
"""

import msgspec

from mayfly.cluster.group import sessions, state_layout
from mayfly.cluster.versions import (
    LEVEL_HIGHEST,
    SHARD_SNAPSHOT_VERSION,
    SHARD_SNAPSHOT_WITH_BRAKES,
    SHARD_SNAPSHOT_WITH_MOVE_NUMBERS,
    SHARD_SNAPSHOT_WITH_MOVES,
    SHARD_SNAPSHOT_WITH_SPECIAL_ROWS,
)
from mayfly.node.catalog import commands as catalog_commands
from mayfly.node.catalog import policies
from mayfly.node.catalog import snapshot as catalog_snapshot
from mayfly.node.shard import commands as shard_commands

SHARD_KINDS = {
    1: "PUBLISH", 2: "SETTLE", 3: "GET", 4: "ATTACH", 5: "DETACH", 6: "CREATE_QUEUE", 7: "TOUCH_QUEUE", 8: "PURGE",
    9: "DELETE_QUEUE", 10: "FLOW", 11: "NOOP", 12: "PUBLISH_GUARDED", 13: "TRANSACTION", 14: "PREFETCH",
    15: "TAKEN", 16: "CROSS", 17: "PUBLISH_LATER", 18: "CHANGE_SCHEDULED", 19: "PUBLISH_KEPT",
    20: "DELETE_OFFSET", 21: "PURGE_KEY", 22: "START_REDRIVE", 23: "CHANGE_REDRIVE",
    24: "RELEASE_BRAKE",
    32: "EXPIRE_DUE", 33: "EXPIRE_QUEUE", 34: "ROUTE", 35: "TRANSFER", 36: "SETTLED", 37: "LANE_CLOSED",
    38: "FORGET_DELETED", 39: "DROP_QUEUE", 40: "UPDATE_QUEUES", 41: "RETRY_PARKED", 42: "DROP_PARKED",
    44: "RAISE_LEVEL", 45: "TRANSFER_MARKED", 46: "MOVE_OUT", 47: "MOVE_IN", 48: "TRANSFER_MOVED",
    49: "NEXT_TIMES", 50: "REDRIVE", 51: "TRANSFER_COPIES", 52: "ROUTE_NOTED",
    53: "MOVE_OUT_NUMBERED",
}
"""43 was a command that no release has given: it stays unused."""
CATALOG_COMMANDS = {
    "add_member", "add_shards", "add_vhost", "bind", "clear_global_parameter", "clear_permissions", "clear_policy",
    "clear_topic_permissions", "declare_exchange", "declare_queue", "definitions_loaded", "delete_exchange",
    "delete_user", "delete_vhost", "describe_vhost", "found_cluster", "member_away", "member_back", "member_gone",
    "move_queue", "node_lost", "node_started", "place_group", "plan_groups", "prefer_leader", "put_user", "queue_moved",
    "raise_level", "remove_member", "remove_queues", "set_global_parameter", "set_limit", "set_permissions",
    "set_policy", "set_switch", "set_topic_permissions", "unbind", "upgrade_password",
}
FORMS = {
    "shard snapshot": 9, "shard snapshot with moves": 10, "shard snapshot with special rows": 11,
    "shard snapshot with brakes": 12, "shard snapshot with move numbers": 13, "catalog snapshot": 7,
    "group state": 1, "group state with pieces": 2, "entry": 1,
}  # fmt: skip
"""At level 8, with which a shard's snapshot may be one with schedules. Levels 7 and 8 changed none of the others:
batches of KIND_FED are of the sessions, and every release has had them."""
BATCH_KINDS = {1, 2, 3, 4, 0x11, 0x14, 0x21, 0x24}
POLICY_KEYS = {
    "allow-schedule", "alternate-exchange", "consumer-disconnected-timeout", "consumer-timeout",
    "dead-letter-brake-rate",
    "dead-letter-brake-window", "dead-letter-exchange",
    "dead-letter-routing-key", "dead-letter-strategy", "delayed-retry-jitter", "delayed-retry-max", "delayed-retry-min",
    "delayed-retry-multiplier", "delayed-retry-type", "delivery-limit", "expire-scope", "expires", "journal",
    "max-age",
    "max-length", "max-length-bytes", "message-ttl", "overflow", "queue-leader-locator", "queue-master-locator",
    "ttl-applies", "ttl-dialect",
}
"""A policy with another one is refused, on every replica."""


def test_what_the_log_may_hold_is_that_of_the_highest_level() -> None:
    assert LEVEL_HIGHEST == 10
    for kind, name in SHARD_KINDS.items():
        assert getattr(shard_commands, name) == kind
    assert not [
        name
        for name, value in vars(shard_commands).items()
        if name.isupper() and isinstance(value, int) and value > max(SHARD_KINDS)
    ]
    commands = {
        value.__struct_config__.tag
        for value in vars(catalog_commands).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__struct_config__.tag
    }
    assert commands == CATALOG_COMMANDS
    assert set(policies._KEYS) == POLICY_KEYS
    assert FORMS == {
        "shard snapshot": SHARD_SNAPSHOT_VERSION,
        "shard snapshot with moves": SHARD_SNAPSHOT_WITH_MOVES,
        "shard snapshot with special rows": SHARD_SNAPSHOT_WITH_SPECIAL_ROWS,
        "shard snapshot with brakes": SHARD_SNAPSHOT_WITH_BRAKES,
        "shard snapshot with move numbers": SHARD_SNAPSHOT_WITH_MOVE_NUMBERS,
        "catalog snapshot": catalog_snapshot.FORMAT_VERSION,
        "group state": state_layout._VERSION,
        "group state with pieces": state_layout._VERSION_WITH_PIECES,
        "entry": sessions.ENTRY_VERSION,
    }
    assert sessions.BATCH_KINDS == BATCH_KINDS
