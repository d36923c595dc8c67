"""The list of queues in a real browser, where there are very many."""

import json
from base64 import b64encode
from urllib.request import Request, urlopen

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import PASSWORD, USER, go, log_in
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.processes]

QUEUES = 100_000
AT_ONCE = 20_000
COLUMNS = (
    "ready", "scheduled", "unacknowledged", "oldest_ready_age_ms", "next_deadline_in_ms", "lease.remaining_ms",
    "consumers", "vhost", "name",
)  # fmt: skip
ASKED = """
    return performance.getEntriesByType('resource').filter((it) => it.name.includes('/api/mayfly/queues?')).map((it) =>
        [new URL(it.name).searchParams.get('sort'), it.duration, it.transferSize])
"""
"""What the page has asked for, each with its time in ms and its octets."""


def declare_many(node: Nodes) -> None:
    """Half of them have a lease."""
    login = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    for first in range(0, QUEUES, AT_ONCE):
        queues = [
            {"name": f"queue.{number:06}", "vhost": "/", "durable": True, "auto_delete": False,
             "arguments": {"x-expires": 3_600_000 + number} if number % 2 else {}}
            for number in range(first, first + AT_ONCE)
        ]  # fmt: skip
        content = json.dumps({"queues": queues}).encode()
        with urlopen(Request(f"http://{node.plan(1).http}/api/definitions", content, headers), timeout=BOUND_S):
            pass


def first_page_by(browser: Browser, column: str) -> tuple[float, int]:
    """Have the list sorted by a column: how long the answer took, in ms, and its octets."""

    def answers() -> list[tuple[float, int]]:
        return [(took_ms, octets) for by, took_ms, octets in browser.run(ASKED) if by == column]

    browser.run("performance.clearResourceTimings()")
    browser.click(f"th[data-sort='{column}'] button")
    wait_for(answers, f"a page by {column}")
    return answers()[0]


def test_pages_of_very_many_queues_are_as_small_as_those_of_few(node: Nodes, browser: Browser) -> None:
    """Whatever they are sorted by: the browser is given a page of rows, and asks for no more."""
    declare_many(node)
    log_in(browser, node, USER, PASSWORD)
    browser.faults()
    go(browser, "queues", "Queues")
    browser.wait("page 1 of 1000", ".pages [role=status]")
    for column in COLUMNS:
        took_ms, octets = first_page_by(browser, column)
        print(f"{column}: {took_ms:.0f} ms, {octets / 1e3:.0f} kB")
        assert octets < 200_000
        assert len(browser.texts("tbody tr")) == 100
    wait_for(lambda: browser.texts("tbody th")[0].startswith("queue.000000"), "the first by name")
    browser.click("button", "Next")
    browser.wait("page 2 of 1000", ".pages [role=status]")
    assert browser.texts("tbody th")[0].startswith("queue.000100")
    browser.write("input[type=search]", "queue.09999")
    browser.wait("10 of 100", ".pages [role=status]")
    assert browser.faults() == []
