"""What lies ahead of queues, wherever their shards are: forecasts, and policies on trial (RULES R2, R3).

Another node's transient queues are that node's alone: ask it.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mayfly.node.catalog import PolicyRecord, QueueRecord, Refusal, check_policy
from mayfly.node.catalog.journals import check_journal_of_policy
from mayfly.node.catalog.policy_trial import PolicyTrial
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.definitions.names import checked_size
from mayfly.node.operating.management import policy_command, refused_policy
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import Answer, bad_request
from mayfly.node.operating.ports.management import PolicyWish
from mayfly.node.operating.ports.outlook import USUAL_ROWS, ForecastWish
from mayfly.node.operating.shard_sources import ShardSources, unknown_text
from mayfly.node.operating.turns import in_turns
from mayfly.node.operating.views.outlooks import AheadPart, QueueOutlook, Tried, ahead_steps, tried_steps

STEPS_AT_ONCE: Final = 1
"""Steps before other work gets its turn: up to 4 096 messages each, so a few milliseconds."""
STEPS_OF_QUESTION: Final = 1000
"""As many are taken for an answer, besides the rest of one queue."""
QUEUES_TRIED_AT_ONCE: Final = 50
_RECORDS_AT_ONCE: Final = 50
_EVENTS: Final = ("expire", "due", "retried")

Row = dict[str, Any]


class _Forecast(msgspec.Struct, tag="Forecast"):
    """`ahead_steps`; `afters` by shard."""

    windows_ms: list[int]
    vhosts: list[str] | None
    afters: dict[int, int]


class _Try(msgspec.Struct, tag="TryTerms"):
    """`tried_steps`; terms by shard and queue."""

    terms: dict[int, dict[int, bytes]]


class Outlooks:
    """Implements `OutlookPort`, and tells other nodes about the shards that this one has."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, now_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._sources = sources
        self._now_ms = now_ms
        questions.add(_Forecast, dict[int, AheadPart], self._tell_ahead)
        questions.add(_Try, dict[int, dict[int, Tried]], self._tell_tried)

    # -- forecasts

    async def forecast(self, wish: ForecastWish) -> dict[str, Any]:
        """See `OutlookPort.forecast`."""
        windows_ms = list(wish.windows_ms)
        vhosts = None if wish.vhosts is None else sorted(wish.vhosts)
        totals = [{"within_ms": each_ms, **dict.fromkeys(_EVENTS, 0), "leases": 0} for each_ms in windows_ms]
        rows: list[Row] = []
        afters = dict.fromkeys(self._shards(wish.led_here), 0)
        unknown: list[int] = []
        while afters:
            asked = afters
            told = await self._sources.ask(asked, partial(_Forecast, windows_ms, vhosts))
            unknown += told.unknown
            for part in told.found.values():
                for id, ahead in part.queues.items():
                    record = self._engine.catalog.queue_by_id(id)
                    if record is not None:
                        rows.append(_forecast_row(record, windows_ms, ahead))
                        _add(totals, rows[-1])
                await asyncio.sleep(0)
            afters = {shard: part.after for shard, part in told.found.items() if part.after is not None}
            if afters == asked:
                break  # an answer that goes nowhere is the last
        rows.sort(key=_most_first)
        return {
            "windows_ms": windows_ms, "totals": totals, "queues": rows[: wish.limit],
            "left_out": max(0, len(rows) - wish.limit), "unknown_shards": sorted(set(unknown)),
        }  # fmt: skip

    def _shards(self, led_here: bool) -> list[int]:
        engine = self._engine
        shards = [id for id in self._sources.all() if not led_here or engine.leader_of(id) == engine.node_id]
        return [*shards, engine.transient.local.shard.shard_id]

    async def _tell_ahead(self, asked: _Forecast) -> dict[int, AheadPart]:
        told: dict[int, AheadPart] = {}
        vhosts = None if asked.vhosts is None else frozenset(asked.vhosts)
        for shard, after in asked.afters.items():
            steps = ahead_steps(
                self._engine, shard, asked.windows_ms, vhosts, after, STEPS_OF_QUESTION // len(asked.afters),
                self._now_ms(),
            )  # fmt: skip
            for part in await in_turns(steps, STEPS_AT_ONCE):
                told[shard] = part
        return told

    # -- policies on trial

    async def try_policy(self, wish: PolicyWish, limit: int = USUAL_ROWS) -> Answer:
        """See `OutlookPort.try_policy`."""
        catalog = self._engine.catalog
        try:
            command = policy_command(wish)
            check_policy(command, catalog.policies(command.vhost, command.operator))
            check_journal_of_policy(catalog, command.vhost, command.name, command.definition)
            checked_size(command.definition, "definition")
            policy = catalog.checked_policy(command)
        except Refusal as refusal:
            return refused_policy(refusal)
        except ValueError as error:
            return bad_request(f"Validation failed\n\n{error}\n")
        trial = PolicyTrial(catalog, policy, command.operator)
        rows: dict[int, Row] = {}
        terms: dict[int, dict[int, bytes]] = {}
        for number, record in enumerate(list(catalog.queues(wish.vhost)), 1):
            if not record.delays and trial.concerns(record) and (changes := trial.changes(record)):
                rows[record.id] = _changed_row(record, trial, changes, self._engine)
                if record.replicated or record.owner_node == self._engine.node_id:
                    terms.setdefault(record.shard, {})[record.id] = trial.terms(record)
            if number % _RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
        unknown = await self._try_terms(terms, rows)
        shown = sorted(rows.values(), key=_most_changed_first)
        return HTTPStatus.OK, {
            "totals": _tried_totals(shown), "queues": shown[:limit], "left_out": max(0, len(shown) - limit),
            "unknown_shards": sorted(unknown),
        }  # fmt: skip

    async def _try_terms(self, terms: dict[int, dict[int, bytes]], rows: dict[int, Row]) -> set[int]:
        """Add to the rows what would happen; the shards of which nobody has told anything."""
        unknown: set[int] = set()
        for wanted in _in_parts(terms):
            told = await self._sources.ask(wanted, _Try)
            unknown.update(told.unknown)
            for shard in told.unknown:
                for id in wanted[shard]:
                    rows[id]["unknown"] = unknown_text(shard)
            for tried in told.found.values():
                for id, each in tried.items():
                    rows[id] |= _tried_row(each)
        return unknown

    async def _tell_tried(self, asked: _Try) -> dict[int, dict[int, Tried]]:
        told: dict[int, dict[int, Tried]] = {}
        for shard, terms in asked.terms.items():
            if self._sources.has(shard):
                steps = tried_steps(self._engine, shard, terms, self._now_ms())
                told[shard] = dict(await in_turns(steps, STEPS_AT_ONCE))
        return told


def _in_parts(terms: dict[int, dict[int, bytes]]) -> Iterator[dict[int, dict[int, bytes]]]:
    """As much as goes into a question."""
    part: dict[int, dict[int, bytes]] = {}
    count = 0
    for shard, of_shard in terms.items():
        for id, each in of_shard.items():
            part.setdefault(shard, {})[id] = each
            count += 1
            if count >= QUEUES_TRIED_AT_ONCE:
                yield part
                part, count = {}, 0
    if part:
        yield part


def _forecast_row(record: QueueRecord, windows_ms: list[int], ahead: QueueOutlook) -> Row:
    windows = [
        {
            "within_ms": each_ms, "expire": ahead.expire[number], "due": ahead.due[number],
            "retried": ahead.retried[number], "lease_ends": ahead.lease_ends[number],
        }
        for number, each_ms in enumerate(windows_ms)
    ]  # fmt: skip
    return {
        "vhost": record.vhost, "name": record.name, "kind": "delayed exchange" if record.delays else "queue",
        "windows": windows, "time_ms": ahead.time_ms,
        "lease_ends_in_ms": None if ahead.lease_ends_in_ms < 0 else ahead.lease_ends_in_ms,
    }  # fmt: skip


def _add(totals: list[dict[str, int]], row: Row) -> None:
    for total, window in zip(totals, row["windows"], strict=True):
        for event in _EVENTS:
            total[event] += window[event]
        total["leases"] += window["lease_ends"]


def _most_first(row: Row) -> tuple[int, str, str]:
    last = row["windows"][-1]
    return -sum([last[event] for event in _EVENTS]), row["vhost"], row["name"]


def _changed_row(record: QueueRecord, trial: PolicyTrial, changes: dict[str, list[Any]], engine: Engine) -> Row:
    before, after = engine.catalog.policies_of_queue(record), trial.policies(record)
    return {
        "vhost": record.vhost, "name": record.name, "changes": changes,
        "policy": [_name(before[0]), _name(after[0])], "operator_policy": [_name(before[1]), _name(after[1])],
        "expire": 0, "behind": 0, "drop": 0, "lease": None,
    }  # fmt: skip


def _name(policy: PolicyRecord | None) -> str | None:
    return None if policy is None else policy.name


def _tried_row(tried: Tried) -> Row:
    lease = {
        "ends_in_ms": None if tried.lease_before_ms < 0 else tried.lease_before_ms,
        "would_end_in_ms": None if tried.lease_after_ms < 0 else tried.lease_after_ms,
        "begins_anew": tried.is_new_lease,
    }
    known = lease["ends_in_ms"] is not None or lease["would_end_in_ms"] is not None or tried.is_new_lease
    return {
        "expire": tried.expire, "behind": tried.behind, "drop": tried.drop, "lease": lease if known else None
    }  # fmt: skip


def _most_changed_first(row: Row) -> tuple[int, str, str]:
    return -(row["expire"] + row["behind"] + row["drop"]), row["vhost"], row["name"]


def _tried_totals(rows: list[Row]) -> dict[str, Any]:
    leases = [row["lease"] for row in rows if row["lease"] is not None and row["lease"]["begins_anew"]]
    ends_ms = [lease["would_end_in_ms"] for lease in leases if lease["would_end_in_ms"] is not None]
    return {
        "queues": len(rows), **{key: sum([row[key] for row in rows]) for key in ("expire", "behind", "drop")},
        "leases_begin_anew": len(leases), "first_lease_ends_in_ms": min(ends_ms, default=None),
    }  # fmt: skip
