"""What tests tell shards of queues is held against what the catalog makes of declarations (`declared`)."""

from typing import Any

import pytest

from mayfly.node.shard.settings import ShardQueueSettings
from tests.node.shard.declared import check_declared
from tests.node.shard.test_against_model import SETTINGS


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_queues_of_the_model_can_be_declared(number: int) -> None:
    check_declared(ShardQueueSettings(name="q", **SETTINGS[number]))


@pytest.mark.parametrize(
    "values",
    [
        {"delays": True, "allow_schedule": True, "dead_letter_exchange": "q"},
        {"is_stream": True, "ttl_retroactive": True, "message_ttl_ms": 5, "marker_ttl_ms": 5, "is_mirror": False},
        {"is_stream": True, "ttl_retroactive": True, "is_mirror": True, "honours_ttls": True},
        {"auto_delete": True, "delivery_limit": None, "vhost": "v"},
        {"max_priority": 31, "default_priority": 4, "delivery_limit": 20},
    ],
)
def test_what_can_be_declared(values: dict[str, Any]) -> None:
    check_declared(ShardQueueSettings(**{"name": "q", **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"ttl_dialect": "lavinmq"},
        {"is_stream": True},
        {"is_stream": True, "ttl_retroactive": True, "allow_schedule": True},
        {"is_stream": True, "ttl_retroactive": True, "marker_ttl_ms": 5000, "is_mirror": True},
        {"delays": True, "allow_schedule": True, "dead_letter_exchange": "another"},
        {"delays": True, "dead_letter_exchange": "q"},
        {"default_priority": 4},
        {"max_priority": 3, "default_priority": 2},
        {"max_priority": 256},
        {"retry_min_ms": 5},
        {"retry_ways": 6, "retry_min_ms": 9, "retry_max_ms": 5},
        {"retry_ways": 6, "retry_min_ms": 5, "retry_max_ms": 9, "retry_multiplier": 2},
        {"expires_ms": 0},
        {"message_ttl_ms": 315_360_000_001},
        {"key_index": True},
    ],
)
def test_what_no_declaration_makes_is_told(values: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"no queue has the settings|is refused"):
        check_declared(ShardQueueSettings(**{"name": "q", **values}))
