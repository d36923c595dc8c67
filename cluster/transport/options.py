"""How gRPC is set up between nodes, and why."""

from typing import Final

import grpc

from mayfly.cluster import limits
from mayfly.cluster.rpc import peer_pb2

_SERVICE: Final = peer_pb2.DESCRIPTOR.services_by_name["Peer"].full_name
EXCHANGE: Final = f"/{_SERVICE}/Exchange"
SEND_SNAPSHOT: Final = f"/{_SERVICE}/SendSnapshot"
JOIN: Final = f"/{_SERVICE}/Join"
PROVE: Final = f"/{_SERVICE}/Prove"

CONSENT: Final = ("mayfly-consent", "1")
"""Initial metadata with which a receiver says that it takes the stream; a refused one brings none."""

PROTOCOL: Final = "mayfly-protocol"
"""Initial metadata of an Exchange and of a snapshot: the version in which the receiver takes what comes."""

FRAMES_PORT: Final = "mayfly-frames-port"
TICKET: Final = "mayfly-ticket"
"""Initial metadata of an Exchange: where the receiver takes the frames of this stream, and what to show there (hex)."""

SNAPSHOT_OFFSET: Final = "mayfly-snapshot-offset"
"""Initial metadata: from where on the receiver wants a snapshot."""

Options = list[tuple[str, int]]

_WINDOW_BYTES: Final = 8 * limits.MIB
_HTTP2_FRAME_BYTES: Final = limits.MIB

# Measured over loopback with 100 KB messages: a fixed window without bandwidth probes, and HTTP/2 frames that
# hold a whole message, move 1000 MB/s where the defaults move 800; small messages cost the same. Larger TCP
# read chunks, a larger write buffer, the throughput optimisation target and zero-copy sends won nothing.
# Calls without a response stream (stream-unary) are 10 us a message cheaper than bidirectional ones, and
# reading with `read()` 15 us cheaper than iterating.
_COMMON: Final[Options] = [
    ("grpc.max_receive_message_length", limits.MAX_PEER_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_PEER_MESSAGE_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
    ("grpc.http2.max_frame_size", _HTTP2_FRAME_BYTES),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def server_options() -> Options:
    """For the side that listens."""
    return [
        *_COMMON,
        # Pings of peers are no offence.
        ("grpc.http2.min_ping_interval_without_data_ms", limits.KEEPALIVE_INTERVAL_MS // 5),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(server_name: str) -> list[tuple[str, int | str]]:
    """For the side that connects. Peers' certificates are checked against `server_name`, if there is one."""
    options: list[tuple[str, int | str]] = [
        *_COMMON,
        # Every attempt is a connection of its own, and doesn't wait out the pause after an earlier one.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", limits.CONNECT_TIMEOUT_MS),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return options


def compression() -> grpc.Compression:
    """None: payloads are as the publishers made them, and the wire is not what is short."""
    return grpc.Compression.NoCompression
