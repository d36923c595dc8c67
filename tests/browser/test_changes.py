"""What changes while the page is open: the page follows, without a reload."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import go
from tests.integration.clients import PERSISTENT, Publisher, channel
from tests.integration.nodes import Nodes
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.processes]

LEASE_MS = 15_000
PER_SECOND = 40


def column(page: Browser, name: str, label: str) -> str:
    """What the list of queues says of one."""
    heads = page.texts("thead th")
    script = """
        const rows = [...document.querySelectorAll('tbody tr')];
        const row = rows.find((it) => it.cells[0].innerText.startsWith(arguments[0]));
        return row?.cells[arguments[1]].innerText ?? '';
    """
    return str(page.run(script, name, heads.index(label)))


def key(page: Browser, label: str) -> str:
    """The figure of a line of the plot."""
    return next((text.removeprefix(label).strip() for text in page.texts(".plot .key") if text.startswith(label)), "")


def runs(rate: str) -> bool:
    """Whether that is a rate of more than nothing."""
    return bool(re.fullmatch(r"[\d,.]+/s", rate)) and float(rate.removesuffix("/s").replace(",", "")) > 0


def rests(rate: str) -> bool:
    """Whether that is a rate of nothing."""
    return rate == "0/s"


def column_is(expected: Callable[[str], bool], page: Browser, name: str, label: str) -> bool:
    """Whether the list of queues says that of one by now."""
    return expected(column(page, name, label))


def key_is(expected: Callable[[str], bool], page: Browser, label: str) -> bool:
    """Whether the plot says that by now."""
    return expected(key(page, label))


def test_l2_l3_a_lease_is_suspended_runs_and_has_ended(page: Browser, node: Nodes) -> None:
    """By its consumer, without one, and with the queue gone, which is said as well."""
    with channel(node, 1) as consuming:
        consuming.queue_declare("brief", durable=True, arguments={"x-expires": LEASE_MS})
        consuming.basic_consume("brief", lambda *_: None)
        go(page, "queues/%2F/brief", "brief")
        page.wait("suspended", "main .lease.suspended")
    page.wait_for("main .lease.running")
    page.wait("s", "main .lease.running")
    assert page.texts("#fault .notice") == []
    page.wait("ended", "main .lease.ended")
    page.wait("Not Found", "#fault")
    assert page.texts("main .lease") == ["ended"]
    go(page, "queues", "Queues")
    page.wait("orders", "table")
    assert not page.has("brief", "table")


def test_rates_of_queues_are_shown_and_change(page: Browser, node: Nodes) -> None:
    """In the list and on the queue's page: what comes, and what goes because its time is up."""
    with channel(node, 1) as declaring:
        declaring.queue_declare("passing", durable=True, arguments={"x-message-ttl": 1})
    go(page, "queues", "Queues")
    page.wait("passing", "table")
    wait_for(lambda: column(page, "passing", "In") == "0/s", "nothing comes")
    publisher = Publisher(node, 1, "passing", rate=PER_SECOND, size=10, window=20)
    publisher.start()
    try:
        for label in ("In", "Expired"):
            wait_for(partial(column_is, runs, page, "passing", label), f"a rate by {label}")
        assert column(page, "passing", "Out") == "0/s"
        go(page, "queues/%2F/passing", "passing")
        for label in ("in", "expired"):
            wait_for(partial(key_is, runs, page, label), f"a rate in the plot: {label}")
        assert key(page, "out") == "0/s"
    finally:
        publisher.stop()
        publisher.finish()
    for label in ("in", "expired"):
        wait_for(partial(key_is, rests, page, label), f"no rate in the plot: {label}")
    go(page, "queues", "Queues")
    for label in ("In", "Expired"):
        wait_for(partial(column_is, rests, page, "passing", label), f"no rate by {label}")


def test_a_queue_moves_to_another_shard(page: Browser, node: Nodes) -> None:
    """A shard that is not there is refused. What a client holds stays behind; that is told until it is settled."""
    with channel(node, 1, confirms=True) as consuming:
        consuming.queue_declare("wandering", durable=True)
        for _ in range(5):
            consuming.basic_publish("", "wandering", b"", PERSISTENT)
        held = [consuming.basic_get("wandering")[0].delivery_tag for _ in range(2)]
        shard = int((node.queue(1, "wandering") or {})["shard"])
        other = shard % (len(node.groups(1)) - 1) + 1
        go(page, "queues/%2F/wandering", "wandering")
        page.wait(f"Shard\n{shard}", "dl.facts")
        page.click("button", "Move to another shard")
        page.write("dialog input[name=shard]", "9999")
        page.click("dialog button[type=submit]")
        page.wait("9999", "dialog [role=alert]")
        page.write("dialog input[name=shard]", str(other))
        page.click("dialog button[type=submit]")
        page.wait(f"wandering moves to shard {other}.", "#told")
        page.wait("This queue has moved; 0 messages have not followed yet, consumers hold 2 more", "main .notice")
        for tag in held:
            consuming.basic_ack(tag)
        page.wait_without("have not followed yet", "main .notice")
    page.wait(f"Shard\n{other}", "dl.facts")
    page.wait("Ready and live\n3", "dl.facts")
    assert (node.queue(1, "wandering") or {})["shard"] == other
