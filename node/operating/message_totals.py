"""What clients of all nodes have done, as each node counts it: `message_stats` of the cluster, of vhosts and of
exchanges."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mayfly.node.broker.traffic import Traffic
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.views.rates import CLIENT_STATS, Counts, Rates, client_counts, message_stats

_MOST_ASKED: Final = 1_000
"""Vhosts or exchanges of one question."""
_PUBLISHED: Final = ("publish_in",)

Exchange = tuple[str, str]
"""Vhost and name."""


class _Cluster(msgspec.Struct, tag="ClientTraffic"):
    """Of the node."""


class _Vhosts(msgspec.Struct, tag="VhostTraffic"):
    """Of vhosts by name."""

    names: list[str]


class _Exchanges(msgspec.Struct, tag="ExchangeTraffic"):
    """What came to exchanges."""

    names: list[Exchange]


class MessageTotals:
    """For one node. Counts are since each node began, of those nodes that answer. Rates are those of `Rates`."""

    def __init__(
        self, questions: NodeQuestions, traffic: Traffic, rates: Rates, now_ms: Callable[[], int]
    ) -> None:
        self._questions = questions
        self._traffic = traffic
        self._rates = rates
        self._now_ms = now_ms
        questions.add(_Cluster, Counts, lambda _: client_counts(traffic))
        questions.add(_Vhosts, list[Counts], lambda asked: [self._of_vhost(name) for name in asked.names])
        questions.add(_Exchanges, list[int], lambda asked: [self._of_exchange(*name) for name in asked.names])

    def _of_vhost(self, name: str) -> Counts:
        found = self._traffic.vhosts.get(name)
        return (0,) * len(CLIENT_STATS) if found is None else client_counts(found)

    def _of_exchange(self, vhost: str, name: str) -> int:
        found = self._traffic.vhosts.get(vhost)
        return 0 if found is None else found.by_exchange.get(name.encode("utf-8", "surrogateescape"), 0)

    async def of_cluster(self) -> dict[str, Any]:
        """Of all vhosts together."""
        told = await self._questions.ask_all(_Cluster())
        return self._stats(CLIENT_STATS, {("cluster", node): tuple(counts) for node, counts in told.items()})

    async def of_vhosts(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """By name."""
        found: dict[str, dict[str, Any]] = {}
        for some in _parts(names):
            told = await self._questions.ask_all(_Vhosts(list(some)))
            for place, name in enumerate(some):
                found[name] = self._stats(CLIENT_STATS, _at_place(told, place, "vhost", name))
        return found

    async def of_exchanges(self, names: Sequence[Exchange]) -> dict[Exchange, dict[str, Any]]:
        """By vhost and name: what clients published there."""
        found: dict[Exchange, dict[str, Any]] = {}
        for some in _parts(names):
            told = await self._questions.ask_all(_Exchanges(list(some)))
            for place, name in enumerate(some):
                found[name] = self._stats(_PUBLISHED, _at_place(told, place, "exchange", name))
        return found

    def _stats(self, names: Sequence[str], by_node: Mapping[Hashable, Counts]) -> dict[str, Any]:
        """Rates are known where those of each node are: a node that is asked for the first time has done all that it
        tells at some time or other."""
        now_ms = self._now_ms()
        looked = [self._rates.look(now_ms, key, counts) for key, counts in by_node.items()]
        rates = None if None in looked else tuple(map(sum, zip(*[it for it in looked if it is not None], strict=True)))
        totals = tuple(map(sum, zip(*by_node.values(), strict=True)))
        return message_stats(names, totals, rates) if by_node else {}


def _at_place(told: Mapping[int, Sequence[Any]], place: int, *key: Hashable) -> dict[Hashable, Counts]:
    """What each node has told there."""
    found: dict[Hashable, Counts] = {}
    for node, rows in told.items():
        if place < len(rows):
            row = rows[place]
            found[key, node] = (row,) if isinstance(row, int) else tuple(row)
    return found


def _parts(names: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (names[first : first + _MOST_ASKED] for first in range(0, len(names), _MOST_ASKED))
