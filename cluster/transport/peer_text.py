"""Texts that somebody else has made up, on their way into our log: one line, and not a long one."""

import re
from typing import Final

from mayfly.cluster import limits

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
"""Names of nodes, clusters and data."""

ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+(%\w+)?\]|[A-Za-z0-9_.-]+):\d{1,5}\Z")
"""Where a node is reached: host:port, an IPv6 address in brackets."""


def printable(text: object) -> str:
    """The text in one line: what can't be printed is written as Python writes it, and what is too long is cut off."""
    whole = str(text)
    short = whole[: limits.MAX_PEER_TEXT_LENGTH]
    plain = "".join(character if character.isprintable() else repr(character)[1:-1] for character in short)
    return f"{plain}..." if len(whole) > len(short) else plain


def name_fault(what: str, name: str) -> str:
    """Why this can't be the name of something; "" if it can. It may be empty."""
    if len(name) > limits.MAX_NAME_LENGTH:
        return f"{what} that is too long: {len(name)} characters, at most {limits.MAX_NAME_LENGTH} are taken"
    if name and not NAME.match(name):
        return f"{what} {printable(name)!r}: letters, digits, '.', '_' and '-' are taken"
    return ""


def address_fault(address: str) -> str:
    """Why this can't be an address of a node; "" if it can. It may be empty."""
    if len(address) > limits.MAX_NAME_LENGTH:
        return f"address that is too long: {len(address)} characters, at most {limits.MAX_NAME_LENGTH} are taken"
    if address and not ADDRESS.match(address):
        return f"address {printable(address)!r}: host:port is taken"
    return ""
