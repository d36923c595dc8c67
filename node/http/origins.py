"""Whether a request is from this machine: only such a one may be guest, show the node's own token, or see names and
counts without a login."""

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_HERE: Final = frozenset({"localhost", socket.gethostname().lower()})


def is_loopback(host: str | None) -> bool:
    """Whether a peer's address is this machine's own."""
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address.is_loopback if mapped is None else mapped.is_loopback


def is_from_here(request: web.Request) -> bool:
    """Whether somebody on this machine asks, and not a page of the web through a browser on it.

    Such a page can have a name of its own resolve to 127.0.0.1 (DNS rebinding); the browser sends that name as Host.
    Or it asks for 127.0.0.1 by that address; then its own name is in Origin. See `names_this_machine`.
    """
    if not is_loopback(request.remote):
        return False
    host, origin = request.headers.get("Host"), request.headers.get("Origin")
    if host is not None and not names_this_machine(_name_in(f"//{host}")):
        return False
    return origin is None or names_this_machine(_name_in(origin))


def names_this_machine(name: str) -> bool:
    """Whether a host's name is none that somebody on the web can have chosen: an address, localhost and what ends in
    it, this machine's host name, or a name without a dot, such as one of /etc/hosts or of a container."""
    name = name.lower().removesuffix(".")
    if not name:
        return False
    if name in _HERE or name.endswith(".localhost") or not set(".:") & set(name):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _name_in(address: str) -> str:
    """The host in an address, "" if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
