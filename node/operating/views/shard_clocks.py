"""What time it is now in the shards that a node knows."""

from typing import NamedTuple

from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import is_transient
from mayfly.node.shard.shard import Shard


class ShardNow(NamedTuple):
    """Shard time, and lease time as far as this node knows it (RULES C1, L7)."""

    time_ms: int
    led_ms: int


def shard_now(engine: Engine, shard: Shard, now_ms: int) -> ShardNow:
    """The clocks of a shard here at `now_ms` of the process clock."""
    if is_transient(shard.shard_id):
        # It lives in this process: both clocks are the process's.
        time_ms = max(now_ms, shard.time_ms)
        return ShardNow(time_ms, time_ms)
    group = engine.host.groups.get(shard.shard_id)
    if group is None:
        # The replica was given up while a page was made of it: the clock stands where the log has left it.
        return ShardNow(shard.time_ms, shard.led_ms)
    clock = group.clock
    return ShardNow(clock.current_ms(now_ms), clock.known_led_ms)
