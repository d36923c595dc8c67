"""What lies ahead of the queues that this node has replicas of, in steps: `node.shard.outlook` and `node.shard.trial`,
as other nodes are told of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.metrics import LEFT_OUT, Metric, Sample
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard.outlook import Outlook, outlook_steps
from mayfly.node.shard.settings import decode_terms
from mayfly.node.shard.trial import Trial, trial_steps

Rows = list[dict[str, object]]


class QueueOutlook(NamedTuple):
    """Of one queue, in the order of the windows: `node.shard.outlook.Outlook`."""

    expire: list[int]
    due: list[int]
    retried: list[int]
    lease_ends: list[bool]
    lease_ends_in_ms: int
    time_ms: int


class Tried(NamedTuple):
    """Of one queue: `node.shard.trial.Trial`."""

    expire: int
    behind: int
    drop: int
    lease_before_ms: int
    lease_after_ms: int
    is_new_lease: bool


class AheadPart(NamedTuple):
    """Queues of a shard by their ids, without those to which nothing happens; `after`: look on behind this id, None for
    the end."""

    queues: dict[int, QueueOutlook]
    after: int | None


def ahead_steps(
    engine: Engine, shard_id: int, windows_ms: Sequence[int], vhosts: frozenset[str] | None, after: int,
    most_steps: int, now_ms: int,
) -> Iterator[AheadPart | None]:
    """Queues with ids above `after`; nothing where the shard is not here. It ends behind the queue with which it comes
    to `most_steps`."""
    shard = shard_here(engine, shard_id)
    if shard is None or not windows_ms:
        return
    now = shard_now(engine, shard, now_ms)
    found: dict[int, QueueOutlook] = {}
    steps = 0
    ids = [id for id in shard.queues_ahead(now.time_ms + max(windows_ms), now.led_ms + max(windows_ms)) if id > after]
    for id in ids:
        queue = shard.queue(id)
        if queue is None or (vhosts is not None and queue.vhost not in vhosts):
            continue
        if steps >= most_steps:
            yield AheadPart(found, after)
            return
        for outlook in outlook_steps(queue, now.time_ms, now.led_ms, list(windows_ms)):
            if outlook is None:
                yield None
            elif _is_anything(outlook):
                found[id] = _ahead(outlook)
            steps += 1
        yield None
        after = id
    yield AheadPart(found, None)


def _is_anything(outlook: Outlook) -> bool:
    return any(outlook.expire) or any(outlook.due) or any(outlook.retried) or any(outlook.lease_ends)


def _ahead(outlook: Outlook) -> QueueOutlook:
    return QueueOutlook(
        outlook.expire, outlook.due, outlook.retried, outlook.lease_ends, outlook.lease_ends_in_ms, outlook.time_ms
    )


def tried_steps(
    engine: Engine, shard_id: int, terms: Mapping[int, bytes], now_ms: int
) -> Iterator[tuple[int, Tried] | None]:
    """By queue id, what these terms would do; those that the shard does not have, or that have such terms, are left
    out."""
    for id, terms_bytes in terms.items():
        shard = shard_here(engine, shard_id)
        queue = None if shard is None else shard.queue(id)
        if shard is None or queue is None or queue.terms_bytes == terms_bytes:
            continue
        now = shard_now(engine, shard, now_ms)
        for trial in trial_steps(queue, decode_terms(terms_bytes), now.time_ms, now.led_ms):
            yield None if trial is None else (id, _tried(trial))


def _tried(trial: Trial) -> Tried:
    return Tried(
        trial.expire, trial.behind, trial.drop, trial.lease_before_ms, trial.lease_after_ms, trial.is_new_lease
    )


def forecast_metrics(
    windows_ms: Sequence[int], totals: Iterable[Mapping[str, int]], rows: Iterable[Mapping[str, object]], left_out: int
) -> list[Metric]:
    """Metrics of a forecast, in whose rows `windows` are in the order of `windows_ms`."""
    messages: list[Sample] = []
    leases: list[Sample] = []
    for row in rows:
        named = {"vhost": str(row["vhost"]), "queue": str(row["name"])}
        _add_samples(named, windows_ms, row["windows"], messages, leases, "lease_ends")
    all_messages: list[Sample] = []
    all_leases: list[Sample] = []
    _add_samples({}, windows_ms, list(totals), all_messages, all_leases, "leases")
    return [
        ("mayfly_queues_left_out", LEFT_OUT, "gauge", [({}, float(left_out))]),
        ("mayfly_forecast_messages", "Messages to which it will happen by itself", "gauge", messages),
        ("mayfly_forecast_lease_ends", "1 where the queue will go", "gauge", leases),
        ("mayfly_forecast_all_messages", "The same of all queues together", "gauge", all_messages),
        ("mayfly_forecast_all_leases", "Queues that will go", "gauge", all_leases),
    ]


def _add_samples(
    named: Mapping[str, str], windows_ms: Sequence[int], windows: object, messages: list[Sample], leases: list[Sample],
    lease_key: str,
) -> None:
    assert isinstance(windows, list)
    for window_ms, window in zip(windows_ms, windows, strict=True):
        labels = {**named, "within": f"{window_ms / 1000:g}s"}
        messages += [({**labels, "event": event}, float(window[event])) for event in ("expire", "due", "retried")]
        leases.append((labels, float(window[lease_key])))
