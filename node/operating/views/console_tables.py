"""Tables for somebody at the console of a running node: what it has at this moment, as it has it. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from mayfly.cluster.group.sessions import CUT, ENDED, FED, OPEN
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating.views.lanes import lane_steps
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.operating.views.status import expiry_lag_ms
from mayfly.node.shard.shard import Shard

MOST_ROWS: Final = 200
"""Of one table; the node does nothing else while it is made."""
_FOR_EVER_MS: Final = 2**62
_SESSION_STATES: Final = {ENDED: "ended", OPEN: "open", CUT: "cut", FED: "fed"}

Rows = Iterator[Sequence[object]]


class ConsoleTable(NamedTuple):
    """A table by its headings, and how its rows are made: of engine and time."""

    help: str
    headings: tuple[str, ...]
    rows: Callable[[Engine, int], Rows]


def _shards(engine: Engine, _now_ms: int) -> Rows:
    for group in engine.host.groups.values():
        yield (
            "catalog" if group.id == CATALOG_GROUP else group.id, "leader" if group.leads else "follower",
            group.leader or "none", group.term, group.committed, group.applied,
        )  # fmt: skip


def _lanes(engine: Engine, now_ms: int) -> Rows:
    for shard in _all_shards(engine):
        for lane in lane_steps(engine, shard, now_ms):
            yield (
                lane["shard"], lane["target_shard"], lane["vhost"], lane["queue"], lane["messages"],
                lane["oldest_age_ms"], lane["waits_for"] or "nothing",
            )  # fmt: skip


def _leases(engine: Engine, now_ms: int) -> Rows:
    """Those that run, the next to end first, of each shard."""
    for shard in _all_shards(engine):
        led_ms = shard_now(engine, shard, now_ms).led_ms
        for queue_id, _ in shard.due_leases(_FOR_EVER_MS, MOST_ROWS):
            queue, record = shard.queue(queue_id), engine.catalog.queue_by_id(queue_id)
            if queue is not None:
                left_ms = queue.lease.started_ms + queue.expires_ms - led_ms
                name = ("", queue_id) if record is None else (record.vhost, record.name)
                yield shard.shard_id, *name, queue.expires_ms, left_ms, queue.lease.last_use


def _lag(engine: Engine, now_ms: int) -> Rows:
    for shard in _all_shards(engine):
        unrouted = next(iter(shard.unrouted(1)), None)
        time_ms = shard_now(engine, shard, now_ms).time_ms
        waits_ms = 0 if unrouted is None else max(0, time_ms - unrouted.time_ms)
        yield shard.shard_id, expiry_lag_ms(engine, shard, now_ms), waits_ms, sum(1 for _ in shard.parked())


def _sessions(engine: Engine, _now_ms: int) -> Rows:
    for group in engine.host.groups.values():
        for node, incarnation, sequence, state in group.sessions.rows():
            yield group.id, node, incarnation, sequence, _SESSION_STATES[state]


def _all_shards(engine: Engine) -> list[Shard]:
    return [*engine.shards.values(), engine.transient.local.shard]


TABLES: Final[dict[str, ConsoleTable]] = {
    "shards": ConsoleTable(
        "Groups with a replica here", ("group", "role", "leader", "term", "commit", "applied"), _shards
    ),
    "lanes": ConsoleTable(
        "Dead letters on their way to other shards",
        ("shard", "target shard", "vhost", "queue", "messages", "oldest ms", "waits for"), _lanes,
    ),
    "leases": ConsoleTable(
        "Leases that run", ("shard", "vhost", "queue", "period ms", "left ms", "last use"), _leases
    ),
    "lag": ConsoleTable("How late shards are", ("shard", "expiry ms", "undecided ms", "parked"), _lag),
    "sessions": ConsoleTable(
        "Sessions of nodes with groups", ("group", "node", "incarnation", "last batch", "state"), _sessions
    ),
}


def table_rows(engine: Engine, name: str, now_ms: int) -> tuple[list[list[Any]], bool]:
    """The rows of a table, and whether there are more."""
    rows: list[list[Any]] = []
    for row in TABLES[name].rows(engine, now_ms):
        if len(rows) == MOST_ROWS:
            return rows, True
        rows.append(["-" if value is None else value for value in row])
    return rows, False
