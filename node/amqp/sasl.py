"""The SASL responses of connection.start-ok: who the client says it is (RFC 4616 PLAIN, and AMQPLAIN)."""

from typing import Final

from mayfly.node.amqp.field_table import LONG_STRING, FieldTable, MalformedTableError

EXTERNAL: Final = "EXTERNAL"
"""The mechanism with which a client is who its certificate says (RFC 4422, appendix A)."""


def read_response(mechanism: str, response: str | bytes) -> tuple[str, str] | None:
    """User name and password; None if the response is not of the mechanism's form.

    Octets that are not UTF-8 come as surrogate escapes.
    """
    octets = response if isinstance(response, bytes) else response.encode("utf-8")
    if mechanism == "PLAIN":
        return _read_plain(octets)
    if mechanism == "AMQPLAIN":
        return _read_amqplain(octets)
    return None


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _read_plain(octets: bytes) -> tuple[str, str] | None:
    """An empty authorisation identity, the user and the password, each after a zero octet."""
    parts = octets.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        return None
    return _text(parts[1]), _text(parts[2])


def _read_amqplain(octets: bytes) -> tuple[str, str] | None:
    """A field table without its length octets, with LOGIN and PASSWORD in it."""
    try:
        table = FieldTable.decode(len(octets).to_bytes(4, "big") + octets)
    except MalformedTableError:
        return None
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if login is None or password is None or login.tag != LONG_STRING or password.tag != LONG_STRING:
        return None
    return _text(login.octets()), _text(password.octets())
