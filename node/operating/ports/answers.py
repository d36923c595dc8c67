"""What comes of something that an operator asks for."""

from typing import Any, Final, TypeAlias

Answer: TypeAlias = tuple[int, dict[str, Any]]
"""Status code of HTTP, and JSON; nothing in it for an empty one."""

NOT_FOUND: Final[dict[str, Any]] = {"error": "Object Not Found", "reason": "Not Found"}
"""As RabbitMQ says it."""


def bad_request(reason: str) -> Answer:
    """It can't be done as it was asked for."""
    return 400, {"error": "bad_request", "reason": reason}


def no_such(reason: str) -> Answer:
    """Something that is named does not exist."""
    return 404, {"error": "Object Not Found", "reason": reason}


def refused(reason: str) -> Answer:
    """The user has not the right to it."""
    return 401, {"error": "not_authorised", "reason": reason}


def in_doubt(reason: str = "the catalog did not answer in time; whether it is done shows later") -> Answer:
    """It took too long."""
    return 504, {"error": "timeout", "reason": reason}
