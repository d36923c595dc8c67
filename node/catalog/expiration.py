"""The `expiration` message property (T2)."""
from __future__ import annotations

from typing import Final

from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog.arguments import MAX_TTL_MS, duration_fault
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.values import erlang_string

_LONGEST_BYTES: Final = 255  # of a short string


def expiration_ttl_ms(expiration: bytes) -> int | Refusal:
    """The TTL in milliseconds that the property asks for, or a Refusal (406) with RabbitMQ's text.

    T2, golden args.expiration_property: decimal digits and nothing else, at most ten years.
    """
    if expiration.isdigit() and len(expiration) <= _LONGEST_BYTES:
        ttl_ms = int(expiration)
        if ttl_ms <= MAX_TTL_MS:
            return ttl_ms
    shown, fault = expiration.decode("utf-8", "replace"), _fault(expiration.decode("latin-1"))
    return Refusal(PRECONDITION_FAILED, f"invalid expiration '{shown}': {fault}")


def _fault(text: str) -> str:
    """As RabbitMQ names it: it reads an integer off the front, then looks at the rest, then at the number."""
    sign = 1 if text[:1] in ("+", "-") else 0
    end = sign
    while end < len(text) and "0" <= text[end] <= "9":
        end += 1
    if end == sign or text[:1] == "+":
        return "no_integer"
    if end < len(text):
        return f"{{leftover_string,{erlang_string(text[end:])}}}"
    return duration_fault(int(text)) or "no_integer"
