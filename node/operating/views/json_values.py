"""Values of field tables as JSON can have them."""

from datetime import datetime
from math import isfinite
from typing import Any, Final

_DEEPEST: Final = 8
"""Tables in tables that are shown."""


def json_value(value: object, depth: int = 0) -> Any:
    """The value, or a text for what JSON does not have."""
    if isinstance(value, bool | int) or value is None or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, dict | list) and depth < _DEEPEST:
        if isinstance(value, dict):
            return {_text(str(name)): json_value(each, depth + 1) for name, each in value.items()}
        return [json_value(each, depth + 1) for each in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return _text(str(value))


def _text(text: str) -> str:
    """The text without what no UTF-8 can say."""
    return text.encode("utf-8", "replace").decode("utf-8")
