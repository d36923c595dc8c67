"""Dead letters that wait, wherever their shards are: listed, routed again, dropped (RULES D8).

Another node's transient queues are that node's alone: ask it.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.local_dead_letters import (
    BYTES_READ,
    KEYS_READ,
    LanesPart,
    LocalDeadLetters,
    Parked,
    ParkedPart,
)

MOST_LOOKED_AT: Final = 100_000
"""Parked dead letters that one listing looks at."""
MOST_LANES: Final = 10_000
"""Lanes of one listing."""

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.05
_LOOK_ELSEWHERE_S: Final = 0.25
_PATIENCE_S: Final = 10.0

Sequences = dict[int, int]
"""A sequence, or a place, by shard."""


class _Parked(msgspec.Struct, tag="ParkedLetters"):
    """`LocalDeadLetters.parked`."""

    selection: Selection
    keys: int
    octets: int
    afters: Sequences


class _Lanes(msgspec.Struct, tag="Lanes"):
    """`LocalDeadLetters.lanes`."""

    places: Sequences


class _Settle(msgspec.Struct, tag="SettleParked"):
    """`LocalDeadLetters.left`, after `LocalDeadLetters.give` if anything is to be done."""

    selection: Selection
    act: Literal["", "release", "drop"]
    up_to: Sequences


class DeadLetters:
    """What one node shows of dead letters and has done to them, and what it does for others in the shards it has."""

    def __init__(
        self,
        engine: Engine,
        sources: ShardSources,
        questions: NodeQuestions,
        now_ms: Callable[[], int],
        pump: Callable[[], None],
    ) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._sources = sources
        self._local = LocalDeadLetters(engine)
        self._pump = pump
        local = self._local
        questions.add(
            _Parked, dict[int, ParkedPart],
            lambda it: local.parked(it.selection, it.afters, it.keys, it.octets, now_ms()),
        )  # fmt: skip
        questions.add(_Lanes, dict[int, LanesPart], lambda it: local.lanes(it.places, now_ms()))
        questions.add(_Settle, dict[int, tuple[int, int]], self._settle)

    async def listed(self, selection: Selection) -> dict[str, Any]:
        """`parked`, by shard, queue it died in, reason, dead-letter exchange and key, oldest first; `more`: there are
        more than one listing looks at. `lanes`: those to other queues. `unknown_shards`: no node has told what waits
        there."""
        parked, more, unknown = await self._parked(selection)
        lanes, of_lanes = await self._lanes(selection)
        return {"parked": parked, "more": more, "lanes": lanes, "unknown_shards": sorted({*unknown, *of_lanes})}

    async def settle(self, release: bool, selection: Selection) -> Answer:
        """Have those that are meant routed again, or dropped; answers when it is done with all that were parked."""
        act: Literal["release", "drop"] = "release" if release else "drop"
        told = await self._sources.ask(dict.fromkeys(self._shards(selection), -1), partial(_Settle, selection, ""))
        up_to = {shard: last for shard, (last, _) in told.found.items()}
        left = {shard: count for shard, (_, count) in told.found.items() if count}
        wanted = sum(left.values())
        patience, again = _PATIENCE_S, 0.0
        while left and patience > 0:
            now: Literal["", "release", "drop"] = act if again <= 0 else ""
            again = _AGAIN_S if now else again
            looked = await self._sources.ask({id: up_to[id] for id in left}, partial(_Settle, selection, now))
            left = {shard: looked.found.get(shard, (0, count))[1] for shard, count in left.items()}
            left = {shard: count for shard, count in left.items() if count}
            pause_s = _LOOK_S if all(map(self._sources.has, left)) else _LOOK_ELSEWHERE_S
            if left:
                await asyncio.sleep(pause_s)
            again -= pause_s
            patience -= pause_s
        return _settled(act, wanted, sum(left.values()), told.unknown)

    async def _parked(self, selection: Selection) -> tuple[list[dict[str, Any]], bool, list[int]]:
        found: dict[tuple[object, ...], tuple[int, Parked]] = {}
        afters = dict.fromkeys(self._shards(selection), 0)
        keys, octets, left = KEYS_READ, BYTES_READ, MOST_LOOKED_AT
        unknown: list[int] = []
        while afters and left > 0:
            asked = afters
            told = await self._sources.ask(asked, partial(_Parked, selection, keys, octets))
            unknown += told.unknown
            afters = {}
            for shard, part in told.found.items():
                for row in part.rows:
                    name = (shard, *row.name)
                    found[name] = shard, row if name not in found else found[name][1].with_(row)
                keys, octets, left = keys - part.keys_read, octets - part.bytes_read, left - part.looked_at
                if part.after is not None:
                    afters[shard] = part.after
            if afters == asked:
                break  # an answer that goes nowhere is the last
        rows = [_shown(shard, row) for shard, row in sorted(found.values(), key=lambda each: each[0])]
        return rows, bool(afters), unknown

    async def _lanes(self, selection: Selection) -> tuple[list[dict[str, Any]], list[int]]:
        rows: dict[int, list[dict[str, Any]]] = {}
        places = dict.fromkeys(self._shards(selection), 0)
        unknown: list[int] = []
        while places and sum(map(len, rows.values())) < MOST_LANES:
            asked = places
            told = await self._sources.ask(asked, _Lanes)
            unknown += told.unknown
            for shard, part in told.found.items():
                rows.setdefault(shard, []).extend(part.rows)
            places = {shard: part.place for shard, part in told.found.items() if part.place is not None}
            if places == asked:
                break
        return [row for _, some in sorted(rows.items()) for row in some], unknown

    def _shards(self, selection: Selection) -> list[int]:
        shards = [*self._sources.all(), self._engine.transient.local.shard.shard_id]
        return [shard for shard in shards if selection.shard in (None, shard)]

    def _settle(self, asked: _Settle) -> dict[int, tuple[int, int]]:
        if asked.act:
            self._local.give(asked.act == "release", asked.selection, asked.up_to)
            self._pump()
        return self._local.left(asked.selection, asked.up_to)


def _shown(shard: int, row: Parked) -> dict[str, Any]:
    return {
        "shard": shard,
        "vhost": row.vhost,
        "queue": row.queue,
        "reason": row.reason,
        "exchange": row.exchange,
        "routing_key": row.routing_key,
        "messages": row.messages,
        "oldest_ms": row.oldest_ms,
    }


def _settled(act: Literal["release", "drop"], wanted: int, undone: int, unknown: list[int]) -> Answer:
    done: dict[str, Any] = {"released" if act == "release" else "dropped": wanted - undone}
    reasons = []
    if undone:
        reasons.append(f"{undone} of {wanted} are still parked as far as is known; a shard has no leader?")
    if unknown:
        shards = ", ".join(map(str, unknown))
        reasons.append(f"no node with a replica has answered for shards {shards}: what is parked there stays")
    if reasons:
        return HTTPStatus.GATEWAY_TIMEOUT, done | {"error": "; ".join(reasons)}
    return HTTPStatus.OK, done
