"""What a server tells its clients and allows them."""

from dataclasses import dataclass
from typing import Final

from mayfly.node.version import RABBITMQ_VERSION, VERSION

MIN_FRAME_BYTES: Final = 4096
"""AMQP 0-9-1 section 4.2.3 (frame-min-size)."""

SERVER_CAPABILITIES: Final[tuple[str, ...]] = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "consumer_priorities",
    "direct_reply_to",
    "exchange_exchange_bindings",
    "per_consumer_qos",
    "publisher_confirms",
)


CLUSTER_NAME: Final = "mayfly"


@dataclass(slots=True, eq=False)
class ConnectionSettings:
    """Limits and names of the server's side; the defaults are RabbitMQ's. `version` is RabbitMQ's, too: clients go by
    it (RULES Q4); which MayflyMQ it is stands in `platform`, as RabbitMQ has its Erlang there.

    frame_max_bytes bounds a frame; initial_frame_max_bytes bounds it until tune-ok.
    max_message_bytes bounds a body.
    """

    version: str = RABBITMQ_VERSION
    product: str = "MayflyMQ"
    cluster_name: str = CLUSTER_NAME
    platform: str = f"MayflyMQ {VERSION}, Python"
    copyright_notice: str = "MayflyMQ contributors"
    information: str = "Licensed under the Apache License 2.0"
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    capabilities: tuple[str, ...] = SERVER_CAPABILITIES
    channel_max: int = 2047
    frame_max_bytes: int = 131_072
    heartbeat_seconds: int = 60
    max_message_bytes: int = 16_777_216
    initial_frame_max_bytes: int = 8_192
    handshake_timeout_ms: int = 10_000
    closing_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.frame_max_bytes < MIN_FRAME_BYTES:
            raise ValueError(f"frame_max_bytes must be at least {MIN_FRAME_BYTES}")
        if self.channel_max < 1:
            raise ValueError("channel_max must be at least 1")

    def server_properties(self) -> dict[str, object]:
        """The table of connection.start."""
        return {
            "capabilities": dict.fromkeys(self.capabilities, True),
            "cluster_name": self.cluster_name,
            "copyright": self.copyright_notice,
            "information": self.information,
            "platform": self.platform,
            "product": self.product,
            "version": self.version,
        }
