"""What a journal adds to messages that expire; a part of `bench/expiry.py`.

Messages with an id and a `traceparent` go into six queues with a TTL and from there into a dead-letter queue, again and
again, in turns without a journal and with one, on the same nodes: a policy names the journal and is deleted again, so
that the queues, their shards and their leaders are the same. What is reported is the CPU of all nodes from the first
publish until every dead letter has arrived, and every record.
"""

import base64
import http.client
import json
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pamqp import commands

from bench.amqp_pipeline import Pipeline, publish_method, with_properties
from bench.clusters import Cluster, wait_until

_TTL_MS: Final = 1000
_SOURCES: Final = [f"noted-{number}" for number in range(6)]
_DEAD: Final = "noted-dead"
_JOURNAL: Final = "noted-journal"
_POLICY: Final = "noted"
_WITHIN_S: Final = 300
_SETTLED_S: Final = 1.0
_SPREAD_S: Final = 2.0
_BODY: Final = bytes(1024)
_TRACE: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_HEADERS: Final = b"\x0btraceparentS" + len(_TRACE).to_bytes(4, "big") + _TRACE


def measure_journals(cluster: Cluster, count: int, rounds: int) -> dict[str, float]:
    """`rounds` times `count` messages without a journal, and as many with one."""
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all([_JOURNAL], {"x-queue-type": "stream"})
        client.declare_all([_DEAD], {"x-queue-type": "quorum"})
        client.declare_all(_SOURCES, {
            "x-queue-type": "quorum", "x-message-ttl": _TTL_MS, "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": _DEAD, "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        })  # fmt: skip
    # The first of all is to warm up.
    _round(cluster, count // 10, 0)
    spent: dict[bool, list[float]] = {False: [], True: []}
    noted = 0
    for number in range(2 * rounds):
        with_journal = number % 2 == 1
        _set_policy(cluster, with_journal)
        noted += count * with_journal
        spent[with_journal].append(_round(cluster, count, noted))
    without, beside = (statistics.median(spent[each]) for each in (False, True))
    # In turns: what changes slowly on the machine counts in both rounds of a pair.
    pairs = [(one, other) for one, other in zip(spent[False], spent[True], strict=True)]
    return {
        "without_us": without / count * 1e6,
        "with_us": beside / count * 1e6,
        "more_us": (beside - without) / count * 1e6,
        "more_percent": statistics.median([(other / one - 1) * 100 for one, other in pairs]),
        "spread_percent": max([abs(b / a - 1) * 100 for a, b in pairwise(spent[False])], default=0.0),
    }


def _round(cluster: Cluster, count: int, noted: int) -> float:
    """CPU of the nodes, in s, until so many messages are dead, and `noted` are in the journal."""
    with Pipeline(cluster.uris[0]) as watcher, Pipeline(cluster.uris[1]) as publisher:
        watcher.open_channels()
        watcher.call(commands.Queue.Purge(queue=_DEAD), commands.Queue.PurgeOk)
        time.sleep(_SETTLED_S)
        cpu_s = cluster.cpu_s()
        publisher.publish_all(_messages(count), 2000)

        def arrived() -> bool:
            return (_ready(watcher, _DEAD), _ready(watcher, _JOURNAL)) == (count, noted)

        wait_until(arrived, f"{count} dead letters, {noted} records", _WITHIN_S)
        time.sleep(_SETTLED_S)
        return cluster.cpu_s() - cpu_s


def _ready(client: Pipeline, queue: str) -> int:
    answer = client.call(commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk)
    return int(answer.message_count)


def _messages(count: int) -> Iterator[bytes]:
    methods = [publish_method(queue) for queue in _SOURCES]
    for number in range(count):
        content = with_properties(_BODY, headers=_HEADERS, message_id=f"id-{number:08}")
        yield methods[number % len(methods)] + content


def _set_policy(cluster: Cluster, with_journal: bool) -> None:
    """The sources have the journal from now on, or none; shards are told some ticks later."""
    credentials = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    body = json.dumps({"pattern": "^noted-[0-9]+$", "definition": {"journal": _JOURNAL}}) if with_journal else None
    connection = http.client.HTTPConnection("127.0.0.1", cluster.http[0], timeout=30)
    connection.request("PUT" if with_journal else "DELETE", f"/api/policies/%2F/{_POLICY}", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status not in (http.client.CREATED, http.client.NO_CONTENT, http.client.NOT_FOUND):
        raise SystemExit(f"the policy was not changed: {answer.status} {text!r}")
    time.sleep(_SPREAD_S)
