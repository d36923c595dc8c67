"""Where a node's pages are: what `--node` takes, and connections to it."""

import http.client
import re
from dataclasses import dataclass
from typing import Final

from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z")
_PORTS: Final = {"http": 80, "https": 443}
_AMQP: Final = "AMQP"


@dataclass(frozen=True, slots=True)
class NodeUrl:
    """A node's HTTP address, behind TLS or not."""

    address: Address
    tls: bool = False

    def __str__(self) -> str:
        return f"https://{self.address}" if self.tls else str(self.address)

    @classmethod
    def parse(cls, text: str) -> "NodeUrl":
        """Read `host:port`, `http://host:port` or `https://host:port`; raises ValueError saying what would be right."""
        url = _SCHEME.match(text.strip())
        if url is None:
            return cls(_address(text))
        scheme, rest = url[1].lower(), url[2]
        if scheme not in _PORTS:
            amqp = ": HTTP has a port of its own" if scheme.startswith("amqp") else ""
            raise ValueError(f"{_what_is_right()}, not a URL of {scheme}{amqp}")
        place, _, path = rest.partition("/")
        if "@" in place:
            raise ValueError("a URL without a user in it: that is for --user and --password")
        if path or "?" in place or "#" in place:
            raise ValueError(f"a URL without a path, such as {scheme}://{place.partition('?')[0].partition('#')[0]}")
        port_given = re.search(r":\d*\Z", place) is not None and not place.endswith("]")
        return cls(_address(place if port_given else f"{place}:{_PORTS[scheme]}"), scheme == "https")

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that is opened by its first request."""
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        return kind(self.address.host, self.address.port, timeout=timeout_s)


def no_page(where: NodeUrl | Address, error: Exception) -> str:
    """Why what came from there is no page of a node, and what would be right."""
    said = str(error.args[0]) if isinstance(error, http.client.BadStatusLine) and error.args else ""
    if said.lstrip("'\"").startswith(_AMQP):
        return f"{where} speaks AMQP: --node is the HTTP address, by default port {NodeSettings().http_address.port}"
    return f"{where} does not answer as a MayflyMQ node: {error!r}"


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise ValueError(str(error) if "bracket" in str(error) else _what_is_right()) from None


def _what_is_right() -> str:
    own = NodeSettings().http_address
    return f"the HTTP address of a node, such as {own} or http://{own}"
