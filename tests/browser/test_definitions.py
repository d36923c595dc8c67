"""Definitions on the page: saved as a file, and taken from one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import go
from tests.integration.nodes import Nodes
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def queue_row(name: str, arguments: dict[str, object]) -> dict[str, object]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}


def fact(page: Browser, label: str) -> str:
    """A large figure by its name."""
    return next((text.rpartition("\n")[2] for text in page.texts("dl.facts div") if text.startswith(label)), "")


def choose(page: Browser, folder: Path, content: str) -> None:
    """Take a file with that in it, and have it imported; the question is open then."""
    file = folder / "chosen.json"
    file.write_text(content)
    page.write("input[type=file]", str(file))
    page.click("button", "Import")
    page.wait("chosen.json: what is in it is declared", "dialog")


def test_what_is_declared_is_saved_as_a_file(page: Browser, tmp_path: Path) -> None:
    page.chrome("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    go(page, "definitions", "Definitions")
    page.click("button", "Save as a file")
    file = tmp_path / "definitions.json"
    wait_for(file.exists, "the file")
    saved: dict[str, Any] = json.loads(file.read_text())
    queues = {row["name"]: row["arguments"] for row in saved["queues"]}
    assert queues["reservations"]["x-message-ttl"] == 900_000
    assert fact(page, "Queues") == str(len(queues))
    assert any(row["source"] == "shop" and row["destination"] == "orders" for row in saved["bindings"])


def test_a_file_is_imported_after_a_question_and_what_was_left_out_is_told(
    page: Browser, node: Nodes, tmp_path: Path
) -> None:
    go(page, "definitions", "Definitions")
    page.click("button", "Import")
    page.wait("Choose a file first.", "#told")
    before = int(fact(page, "Queues"))
    choose(page, tmp_path, "no JSON")
    page.click("dialog button[type=submit]")
    page.wait("JSON", "dialog [role=alert]")
    page.click("dialog button", "Cancel")
    content = {
        "queues": [
            queue_row("imported <1>", {"x-message-ttl": 60_000}),
            queue_row("odd", {"x-queue-master-locator": "min-masters"}),
        ],
        "parameters": [{"vhost": "/", "component": "shovel", "name": "left out <1>", "value": {}}],
    }
    choose(page, tmp_path, json.dumps(content))
    page.click("dialog button", "Cancel")
    page.wait_without("is declared", "dialog")
    assert node.queue(1, "imported <1>") is None
    choose(page, tmp_path, json.dumps(content))
    page.click("dialog button[type=submit]")
    page.wait("The file is imported.", "#told")
    page.wait("left out <1>", "main [role=status] pre")
    told = json.loads(page.text("main [role=status] pre"))
    assert (told["imported"], len(told["notes"])) == (2, 1), told
    assert (node.queue(1, "imported <1>") or {})["settings"]["message_ttl_ms"] == 60_000
    wait_for(lambda: fact(page, "Queues") == str(before + 2), "they are counted")
