"""What the queries of RabbitMQ's own Grafana dashboards need, by dashboard: the names of metrics, without `rabbitmq_`.

One entry for each query, in the order of the panels; most multiply with `rabbitmq_identity_info`. The dashboards are
those of rabbitmq-server's main branch in August 2026 and, where that had other queries, of 3.10.
"""

from itertools import pairwise
from typing import Final

Query = tuple[str, ...]

_SIZES: Final = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf")


def _global(*names: str) -> Query:
    return tuple(f"global_messages_{name}_total" for name in names)


def _bucket(end: str) -> str:
    return f'message_size_bytes_bucket{{le="{end}"}}'


_TOP: Final[list[Query]] = [
    ("queue_messages_ready",), _global("delivered"), ("global_publishers",), ("connections",), ("queues",),
    ("queue_messages_unacked",), _global("received"), ("global_consumers",), ("channels",), ("identity_info",),
    ("erlang_uptime_seconds", "build_info"), ("resident_memory_limit_bytes", "process_resident_memory_bytes"),
    ("disk_space_available_bytes", "disk_space_available_limit_bytes"), ("process_max_fds", "process_open_fds"),
]  # fmt: skip
_QUEUED: Final[list[Query]] = [("queue_messages_ready",), ("queue_messages_unacked",), _global("received")]
_MESSAGE_SIZES: Final[list[Query]] = [
    ("message_size_bytes_sum", "message_size_bytes_count"), (_bucket("100.0"), _bucket("+Inf")),
    *[(_bucket(below), _bucket(end), _bucket("+Inf")) for below, end in pairwise(_SIZES)],
]  # fmt: skip
_TRAFFIC: Final[list[Query]] = [
    _global("routed"), _global("confirmed"), _global("unroutable_dropped"), _global("unroutable_returned"),
    _global("received_confirm", "confirmed"), _global("delivered_consume_auto_ack", "delivered_consume_manual_ack"),
    _global("redelivered"), _global("delivered_consume_manual_ack"), _global("delivered_consume_auto_ack"),
    _global("acknowledged"), _global("delivered_get_auto_ack"), _global("get_empty"),
    _global("delivered_get_manual_ack"), ("queues",), ("queues_declared_total",), ("queues_created_total",),
    ("queues_deleted_total",), ("channels",), ("channels_opened_total",), ("channels_closed_total",), ("connections",),
    ("connections_opened_total",), ("connections_closed_total",),
]  # fmt: skip

DASHBOARDS: Final[dict[str, list[Query]]] = {
    "Overview": [*_TOP, *_QUEUED, *_MESSAGE_SIZES, *_TRAFFIC],
    "Overview of 3.10": [*_TOP, ("process_max_tcp_sockets", "process_open_tcp_sockets"), *_QUEUED, *_TRAFFIC],
    "Quorum-Queues-Raft": [
        ("raft_log_commit_index",), ("raft_commit_index",), ("raft_commit_latency_seconds",),
        ("raft_log_last_written_index", "raft_log_commit_index"), ("raft_last_written_index", "raft_commit_index"),
        ("raft_term",), ("raft_log_last_written_index", "raft_log_snapshot_index"),
        ("raft_last_written_index", "raft_snapshot_index"),
    ],
    "Quorum-Queues-Raft of 3.10": [
        ("raft_log_commit_index",), ("raft_entry_commit_latency_seconds",),
        ("raft_log_last_written_index", "raft_log_commit_index"), ("raft_term_total",),
        ("raft_log_last_written_index", "raft_log_snapshot_index"),
    ],
}  # fmt: skip

UNANSWERED: Final = {
    "process_max_tcp_sockets", "process_open_tcp_sockets", "raft_commit_index", "raft_last_written_index",
    "raft_snapshot_index",
}  # fmt: skip
"""Metrics that there are not here; docs/operations/rabbitmq-metrics.md says why."""


def answered(dashboard: str) -> tuple[int, int]:
    """How many queries of a dashboard have an answer, and how many there are."""
    queries = DASHBOARDS[dashboard]
    return sum(UNANSWERED.isdisjoint(query) for query in queries), len(queries)
