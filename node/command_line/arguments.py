"""Options that several commands have, and arguments of what is declared."""

import json
from collections.abc import Callable
from typing import Any

import click


def arguments_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--arguments`."""
    return click.option(
        "--arguments", default="{}", metavar="JSON", help="An object such as '{\"x-message-ttl\": 60000}'."
    )(command)


def in_a_vhost(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--vhost`."""
    return click.option("--vhost", default="/", show_default=True, help="The vhost it is in.")(command)


def parsed_arguments(text: str, option: str = "--arguments") -> dict[str, Any]:
    """The object in the text. Raises BadParameter."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=option) from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"'{text}' is not a JSON object", param_hint=option)
    return found
