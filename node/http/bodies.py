"""JSON that clients of RabbitMQ's management API send with a PUT or POST, as RabbitMQ takes it."""

from typing import Any

import msgspec


def object_in(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; an empty one for no body or null. Raises ValueError with a text for the client."""
    try:
        content: object = msgspec.json.decode(body) if body else {}
    except (ValueError, RecursionError) as error:
        # Not the error's text: it could quote what is in the body, a password.
        raise ValueError(f"the body is not JSON ({type(error).__name__})") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError("the body is a JSON object")
    return content


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
