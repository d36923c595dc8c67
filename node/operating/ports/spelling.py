"""Names of fields in JSON that clients send, which are easy to write wrong."""

from typing import Any


def check_spelling(content: dict[str, Any], *known: str) -> None:
    """Tools send fields that say again what the path says (`vhost`, `name`), or that mean something elsewhere: they are
    left alone. One that is a known field but for capitals, `-` and `_` (`apply_to`) is a slip, and what it was to say
    would be lost. Raises ValueError."""
    plain = {_plain(field): field for field in known}
    for field in content:
        meant = plain.get(_plain(field))
        if meant is not None and field not in known:
            raise ValueError(f"the body has the field '{field}', which means nothing here; did you mean '{meant}'?")


def _plain(field: str) -> str:
    return field.replace("-", "").replace("_", "").lower()
