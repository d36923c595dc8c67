"""`mayfly report`: what is known of a cluster in one file, for a bug report."""

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from mayfly.node.command_line.operator_client import as_observer, get_text_as, parsed
from mayfly.node.shell.build import describe_version
from mayfly.node.shell.private_files import keeping_private

_PAGES: Final = (
    "/health/live", "/health/ready", "/status", "/cluster/members", "/shards", "/queues?limit=1000",
    "/deadletters", "/metrics", "/api/overview", "/api/nodes", "/api/feature-flags",
    "/api/policies", "/api/operator-policies", "/api/vhost-limits",
    "/api/connections?page=1&page_size=100", "/api/channels?page=1&page_size=100",
)  # fmt: skip
"""None has a password, a hash or a body of a message."""
_PAGES_OF_OTHERS: Final = ("/health/ready", "/status", "/metrics")
_SECRET: Final = ("password", "passwd", "secret", "token", "credential", "hash")
HIDDEN: Final = "(hidden)"


@click.command("report")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--all-nodes", is_flag=True, help="Ask every node, at the HTTP address that it gives, with this login.")
@as_observer
def command(file: Path | None, all_nodes: bool, address: str, user: str, password: str) -> None:
    """Write what a bug report needs to FILE. [default: mayfly-report-TIME.json]

    Versions, status, members, shards, queues, dead letters that wait, metrics, policies, limits, clients. Names of
    queues, users and clients are in it, so the file is for its owner alone; no passwords, no hashes, no messages. What
    a node does not tell is there with the reason.
    """
    file = file or Path(time.strftime("mayfly-report-%Y%m%dT%H%M%SZ.json", time.gmtime()))
    report: dict[str, Any] = {
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "mayfly": describe_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "asked": str(parsed(address)),
        "pages": _pages(address, user, password, _PAGES),
    }
    if all_nodes:
        report["nodes"] = {
            place: _pages(place, user, password, _PAGES_OF_OTHERS) for place in _places(report["pages"]["/status"])
        }
    try:
        with keeping_private(), file.open("x") as out:
            json.dump(without_secrets(report), out, indent=1)
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error}") from None
    failed = [path for path, page in report["pages"].items() if isinstance(page, dict) and list(page) == ["failed"]]
    click.echo(f"{file}: {len(report['pages']) - len(failed)} pages" + _but(failed))


def _but(failed: list[str]) -> str:
    return f"; not told: {', '.join(failed)}" if failed else ""


def _pages(address: str, user: str, password: str, paths: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        try:
            text = get_text_as(address, path, user, password)
        except click.ClickException as error:
            found[path] = {"failed": error.format_message()}
            continue
        try:
            found[path] = json.loads(text)
        except ValueError:
            found[path] = text.splitlines()
    return found


def _places(status: Mapping[str, Any]) -> list[str]:
    found = (node.get("addresses", {}).get("http") for node in status.get("nodes", ()))
    return sorted({str(place) for place in found if place})


def without_secrets(value: Any) -> Any:
    """The same without what stands under a name that speaks of secrets."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if isinstance(held, str) and held and _is_secret(key) else without_secrets(held)
            for key, held in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return value


def _is_secret(key: object) -> bool:
    return any(word in str(key).lower() for word in _SECRET)
