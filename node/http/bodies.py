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
