"""Metrics of single connections and channels of a node, of what came to exchanges through it, and of consumers of
streams, under the names that RabbitMQ's plugin gives them: only for who asks for their families.

Where RabbitMQ names Erlang's processes, here are the names by which operators know connections and channels. Channels'
counts are not parted by exchanges or queues.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mayfly.node.broker.traffic import Traffic
from mayfly.node.catalog import Catalog
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.streams import STREAM
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.client_selection import Kind
from mayfly.node.operating.ports.metrics import Metric, Sample
from mayfly.node.operating.ports.rabbitmq_metrics import DETAILED, MetricsSelection
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.stream_views import lag_in

_PREFIX: Final = "rabbitmq_detailed_"
LEFT_OUT: Final = "Connections and channels that are not on this page"
_AT_ONCE: Final = 500
"""Exchanges, and queues of which it is asked whether they are streams."""

Value = Callable[[Mapping[str, Any]], int]


def client_steps(views: ClientViews, wanted: MetricsSelection) -> Iterator[Metric | None]:
    """Of connections and channels; None for each step on the way."""
    left_out, is_asked = 0, False
    for kind, families in _FAMILIES.items():
        metrics = {name: it for family, some in families.items() if _asks(wanted, family) for name, it in some.items()}
        if not metrics:
            continue
        is_asked = True
        samples: dict[str, list[Sample]] = {name: [] for name in metrics}
        for row in views.all_here(kind, wanted.vhosts, wanted.most):
            if isinstance(row, int):
                left_out += row
            else:
                labels = {"vhost": row["vhost"], kind.removesuffix("s"): row["name"]}
                for name, (_, value) in metrics.items():
                    samples[name].append((labels, float(value(row))))
            yield None
        for name, (help, _) in metrics.items():
            yield f"{_PREFIX}{name}", help, "counter" if name.endswith("_total") else "gauge", samples[name]
    if is_asked:
        yield "mayfly_clients_left_out", LEFT_OUT, "gauge", [({}, float(left_out))]


def exchange_steps(catalog: Catalog, traffic: Traffic, wanted: MetricsSelection) -> Iterator[Metric | None]:
    """What clients of this node have published to exchanges that are there; None for each step on the way."""
    if not _asks(wanted, "exchange_metrics"):
        return
    samples: list[Sample] = []
    for vhost, its in list(traffic.vhosts.items()):
        if (wanted.vhosts and vhost not in wanted.vhosts) or catalog.vhost(vhost) is None:
            continue
        for number, (octets, published) in enumerate(list(its.by_exchange.items()), 1):
            name = octets.decode("utf-8", "surrogateescape")
            if catalog.exchange(vhost, name) is not None:
                samples.append(({"vhost": vhost, "exchange": name}, float(published)))
            if number % _AT_ONCE == 0:
                yield None
    yield f"{_PREFIX}exchange_messages_published_total", "Messages published into an exchange", "counter", samples


def stream_steps(engine: Engine, wanted: MetricsSelection) -> Iterator[Metric | None]:
    """How far consumers are behind, of the streams whose shards this node leads; None for each step on the way."""
    if not _asks(wanted, "stream_consumer_metrics"):
        return
    samples: list[Sample] = []
    for vhost in list(engine.catalog.vhosts()):
        if wanted.vhosts and vhost.name not in wanted.vhosts:
            continue
        for number, record in enumerate(list(engine.catalog.queues(vhost.name)), 1):
            if queue_type(record.arguments) == STREAM and engine.leader_of(record.shard) == engine.node_id:
                lag = lag_in(engine, record.shard, record.id)
                if lag is not None:
                    samples.append(({"vhost": vhost.name, "queue": record.name}, float(lag)))
            if number % _AT_ONCE == 0:
                yield None
    help = "Messages that the consumer furthest behind was not given yet"
    yield f"{_PREFIX}stream_consumer_max_offset_lag", help, "gauge", samples


def _asks(wanted: MetricsSelection, family: str) -> bool:
    return wanted.endpoint == DETAILED and family in (wanted.families or ())


def _did(name: str) -> Value:
    return lambda channel: channel["message_stats"][name]


_FAMILIES: Final[dict[Kind, dict[str, dict[str, tuple[str, Value]]]]] = {
    "connections": {
        "connection_coarse_metrics": {
            "connection_incoming_bytes_total": ("Bytes received on a connection", lambda it: it["recv_oct"]),
            "connection_outgoing_bytes_total": ("Bytes sent on a connection", lambda it: it["send_oct"]),
        },
        "connection_metrics": {"connection_channels": ("Channels on a connection", lambda it: it["channels"])},
    },
    "channels": {
        "channel_metrics": {
            "channel_consumers": ("Consumers on a channel", lambda it: it["consumer_count"]),
            "channel_messages_unacked": ("Messages held by a channel", lambda it: it["messages_unacknowledged"]),
            "channel_messages_unconfirmed": ("Messages to be confirmed", lambda it: it["messages_unconfirmed"]),
            "channel_messages_uncommitted": ("Messages to be committed", lambda it: it["messages_uncommitted"]),
            "channel_acks_uncommitted": ("Acknowledgements to be committed", lambda it: it["acks_uncommitted"]),
            "consumer_prefetch": ("Limit of what each further consumer holds", lambda it: it["prefetch_count"]),
        },
        "channel_exchange_metrics": {
            "channel_messages_published_total": ("Messages published on a channel", _did("publish")),
            "channel_messages_confirmed_total": ("Of these, confirmed", _did("confirm")),
            "channel_messages_unroutable_returned_total": ("Of these, returned", _did("return_unroutable")),
            "channel_messages_unroutable_dropped_total": ("Of these, dropped", _did("drop_unroutable")),
        },
        "channel_queue_metrics": {
            "channel_get_ack_total": ("Messages got, to be acknowledged", _did("get")),
            "channel_get_total": ("Messages got, without acknowledgement", _did("get_no_ack")),
            "channel_messages_delivered_ack_total": ("Messages delivered, to be acknowledged", _did("deliver")),
            "channel_messages_delivered_total": ("Messages delivered, without acknowledgement", _did("deliver_no_ack")),
            "channel_messages_redelivered_total": ("Messages delivered or got again", _did("redeliver")),
            "channel_messages_acked_total": ("Messages acknowledged", _did("ack")),
            "channel_get_empty_total": ("Messages that were not there when one was asked for", _did("get_empty")),
        },
    },
}
