"""What client and server agree on before a connection is open: the version, who the client is, and limits.

Nothing here has a state; `connection_state` says in which order it happens (AMQP 0-9-1 section 2.2.4).
"""

from collections.abc import Mapping
from typing import Final

from pamqp.base import Frame
from pamqp.commands import Connection as ConnectionClass

from mayfly.node.amqp.errors import NOT_ALLOWED, ProtocolError
from mayfly.node.amqp.events import AuthenticationRequested
from mayfly.node.amqp.methods import long_string, unchecked
from mayfly.node.amqp.sasl import EXTERNAL, read_response
from mayfly.node.amqp.settings import MIN_FRAME_BYTES, ConnectionSettings

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
ACCEPTED_HEADERS: Final = frozenset(
    (
        PROTOCOL_HEADER,
        # 0-9 and two ways to write 0-8: connection.start tells their clients which version they get.
        b"AMQP\x01\x01\x00\x09",
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x01\x01\x09\x01",
    )
)


def start(settings: ConnectionSettings, mechanisms: tuple[str, ...]) -> Frame:
    """connection.start: who the server is and how a client may log in."""
    return unchecked(
        ConnectionClass.Start,
        version_major=0,
        version_minor=9,
        server_properties=settings.server_properties(),
        mechanisms=" ".join(mechanisms),
        locales="en_US",
    )


def capabilities_of(client_properties: Mapping[str, object]) -> frozenset[str]:
    """What a client can do, by the properties of its start-ok."""
    capabilities = client_properties.get("capabilities")
    if not isinstance(capabilities, dict):
        return frozenset()
    return frozenset([name for name, on in capabilities.items() if on is True])


def read_login(
    method: ConnectionClass.StartOk, mechanisms: tuple[str, ...], certificate_user: str | None
) -> AuthenticationRequested:
    """Who the client says it is in start-ok, or why that cannot be told."""
    mechanism = method.mechanism
    if mechanism not in mechanisms:
        return AuthenticationRequested(mechanism, "", "", f"unknown authentication mechanism {mechanism!r}")
    credentials: tuple[str, str] | None
    if mechanism == EXTERNAL and certificate_user is not None:
        credentials = certificate_user, ""  # The response would say as whom to act: clients send anything there.
    else:
        credentials = read_response(mechanism, long_string(method, "response"))
    if credentials is None:
        return AuthenticationRequested(mechanism, "", "", f"the {mechanism} response of the client is malformed")
    return AuthenticationRequested(mechanism, *credentials)


def tune(settings: ConnectionSettings) -> Frame:
    """connection.tune: the limits that the server offers."""
    return ConnectionClass.Tune(settings.channel_max, settings.frame_max_bytes, settings.heartbeat_seconds)


def check_limits(method: ConnectionClass.TuneOk, settings: ConnectionSettings) -> None:
    """Whether the client may have the limits of its tune-ok, which may be lower than ours.

    Raises ProtocolError (NOT_ALLOWED) in RabbitMQ's words.
    """
    _check_limit("frame_max", MIN_FRAME_BYTES, settings.frame_max_bytes, method.frame_max)
    _check_limit("channel_max", 1, settings.channel_max, method.channel_max)


def _check_limit(name: str, lowest: int, highest: int, value: int) -> None:
    """0 means none, and is higher than any."""
    if 0 < value < lowest:
        relation = f"is lower than the minimum allowed value ({lowest})"
    elif value == 0 or value > highest:
        relation = f"is higher than the maximum allowed value ({highest})"
    else:
        return
    detail = " (no limit)" if name == "channel_max" and value == 0 else ""
    raise ProtocolError(NOT_ALLOWED, f"negotiated {name} = {value}{detail} {relation}", 10, 30)
