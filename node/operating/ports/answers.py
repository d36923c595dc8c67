"""What comes of something that an operator asks for."""

from typing import Any, Final, TypeAlias

Answer: TypeAlias = tuple[int, dict[str, Any]]
"""Status code of HTTP, and JSON; nothing in it for an empty one."""

NOT_FOUND: Final[dict[str, Any]] = {"error": "Object Not Found", "reason": "Not Found"}
"""As RabbitMQ says it."""
