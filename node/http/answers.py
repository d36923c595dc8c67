"""Answers of all pages: JSON, and what RabbitMQ says where it refuses something."""

from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

JSON: Final = "application/json"
REALM: Final = "RabbitMQ Management"


def answer(content: dict[str, Any] | list[dict[str, Any]], status: int = HTTPStatus.OK) -> web.Response:
    """JSON that nobody keeps: a page of one moment is never the right answer later."""
    return answer_in_json(json_of(content), status)


def json_of(content: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """A page in JSON."""
    return msgspec.json.encode(content) + b"\n"


def answer_in_json(content: bytes | bytearray, status: int = HTTPStatus.OK) -> web.Response:
    """`answer` with what is JSON already."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=content, status=status, content_type=JSON, headers=headers)


def not_authorised(reason: str) -> web.Response:
    """401: no login, or not as somebody who may."""
    return unauthorized({"error": "not_authorised", "reason": reason})


def unauthorized(content: dict[str, Any]) -> web.Response:
    """401 in the realm that RabbitMQ's has: there are checks that look for it."""
    response = answer(content, HTTPStatus.UNAUTHORIZED)
    response.headers["WWW-Authenticate"] = f'Basic realm="{REALM}"'
    return response


def answered(status: int, content: dict[str, Any] | list[dict[str, Any]]) -> web.Response:
    """What became of something that was asked for; nothing in it where there is nothing to say."""
    if status == HTTPStatus.UNAUTHORIZED and isinstance(content, dict):
        return unauthorized(content)
    return web.Response(status=status) if content == {} else answer(content, status)
