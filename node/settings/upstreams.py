"""The file of the setting `upstreams_file`: other clusters, of whose streams there may be mirrors here (RULES J4).

    [east]
    addresses = ["amqps://broker1.east:5671", "amqps://broker2.east:5671"]
    user = "mirror"
    password_file = "/run/secrets/east"
    vhost = "/"                          # there; "/" unless it is said
    ca_file = "/etc/mayfly/east.pem"     # else the system's authorities
    for_vhosts = ["/"]                   # here: in which of them such mirrors may be declared

The password is read when it is needed, so it can be changed while the node runs.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

_ADDRESS: Final = re.compile(r"(amqps?)://(\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+)(?::(\d{1,5}))?/?")
_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_PORT_MOST: Final = 65_535
_KEYS: Final = ("addresses", "user", "password_file", "vhost", "ca_file", "for_vhosts")
PASSWORD_BYTES: Final = 4096
_NAME_BYTES: Final = 255
"""What a vhost's name may have on the wire."""
_USER_BYTES: Final = 1024
"""With a password it goes in one frame, of at most 8192 octets at the beginning of a connection."""


class UpstreamAddress(NamedTuple):
    """Where a node of another cluster is reached."""

    host: str
    port: int
    tls: bool


class Upstream(NamedTuple):
    """Another cluster. ``for_vhosts``: those here in which mirrors of its streams may be."""

    addresses: tuple[UpstreamAddress, ...]
    user: str
    password_file: Path
    vhost: str
    ca_file: Path | None
    for_vhosts: frozenset[str]

    def password(self) -> str:
        """What is in the file, without the end of its line. Raises OSError, ValueError; neither has what is in it."""
        with self.password_file.open("rb") as file:
            content = file.read(PASSWORD_BYTES + 1)
        try:
            text = content.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            text = ""
        if not text or "\0" in text or len(content) > PASSWORD_BYTES:
            raise ValueError(f"{self.password_file} has no password: some text of at most {PASSWORD_BYTES} octets")
        return text


def read_upstreams(path: Path) -> dict[str, Upstream]:
    """The clusters by name. Raises ValueError with file and key, OSError."""
    with path.open("rb") as file:
        try:
            content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not a TOML file: {error}") from None
    found: dict[str, Upstream] = {}
    for name, said in content.items():
        try:
            found[name] = _upstream(said)
        except ValueError as error:
            raise ValueError(f"{path}: [{name}]: {error}") from None
    return found


def _upstream(said: Any) -> Upstream:
    if not isinstance(said, dict):
        raise ValueError("a table expected")
    for key in said:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}, one of {', '.join(_KEYS)} expected")
    addresses = [_address(each) for each in _texts(said, "addresses")]
    ca_file = _text(said, "ca_file", "")
    user = _at_most(_USER_BYTES, "user", _text(said, "user"))
    if "\0" in user:
        raise ValueError("user: a NUL, which ends a name on the wire")
    vhost = _at_most(_NAME_BYTES, "vhost", _text(said, "vhost", "/"))
    return Upstream(
        tuple(addresses), user, Path(_text(said, "password_file")), vhost,
        Path(ca_file) if ca_file else None, frozenset(_texts(said, "for_vhosts")),
    )  # fmt: skip


def _address(text: str) -> UpstreamAddress:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        # It may have a password in it.
        raise ValueError("addresses: each like amqps://HOST:PORT, without user and password, expected")
    port = int(match[3]) if match[3] else _PORTS[match[1]]
    if not 0 < port <= _PORT_MOST:
        raise ValueError(f"addresses: a port of 1 to {_PORT_MOST} expected")
    return UpstreamAddress(match[2].strip("[]"), port, match[1] == "amqps")


def _text(said: dict[str, Any], key: str, default: str | None = None) -> str:
    value = said.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise ValueError(f"{key}: some text expected")
    return value


def _at_most(most_bytes: int, key: str, text: str) -> str:
    size = len(text.encode())
    if size > most_bytes:
        raise ValueError(f"{key}: {size} octets, at most {most_bytes} expected")
    return text


def _texts(said: dict[str, Any], key: str) -> list[str]:
    value = said.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key}: a list with some text expected")
    return value
