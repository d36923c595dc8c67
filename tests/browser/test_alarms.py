"""Alarms on the page: above every view, and by node, for as long as they last."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.browser.browser import Browser
from tests.browser.conftest import PASSWORD, USER, go, log_in
from tests.integration.clients import channel, connect
from tests.integration.nodes import Nodes
from tests.integration.small_disks import small_disk

pytestmark = [pytest.mark.slow, pytest.mark.processes]

MIB = 1024 * 1024
DISK_BYTES = 256 * MIB
LIMIT_BYTES = 64 * MIB
MEMORY_BYTES = 160 * MIB
MOST = 400
"""Messages of 1 MiB."""


def planned(folder: Path, **settings: object) -> Nodes:
    nodes = Nodes(folder, 1, {"default_user": USER, "default_pass": PASSWORD, **settings})
    nodes.login = (USER, PASSWORD)
    return nodes


def fill(publishing: BlockingChannel, queue: str) -> None:
    """Until the connection is blocked."""
    for _ in range(MOST):
        publishing.basic_publish("", queue, bytes(MIB))


@contextmanager
def short_of_memory(node: Nodes) -> Iterator[None]:
    """Messages of a queue that is in memory; at the end they are gone."""
    publishing = connect(node, 1, blocked_after_s=0.5).channel()
    publishing.queue_declare("in-memory")
    publishing.confirm_delivery()
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        fill(publishing, "in-memory")
    yield
    with channel(node, 1) as purging:
        purging.queue_delete("in-memory")


@contextmanager
def short_of_disk(disk: Path) -> Iterator[None]:
    """Something else is on the disk; at the end it is gone."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES - LIMIT_BYTES))
    yield
    ballast.unlink()


@contextmanager
def no_alarm_before_and_after(browser: Browser, node: Nodes) -> Iterator[None]:
    """The page says of none at the begin, and at the end of none any more."""
    log_in(browser, node, USER, PASSWORD)
    browser.faults()
    go(browser, "nodes", "Nodes and clocks")
    browser.wait("served", "main dd")
    assert browser.texts(".alarms") == [] and browser.texts("tbody .tag.late") == []
    yield
    browser.wait_without("Publishers are blocked", ".alarms")
    assert browser.texts(".alarms") == []
    go(browser, "nodes", "Nodes and clocks")
    browser.wait("served", "main dd")
    assert browser.texts("tbody .tag.late") == []
    assert browser.faults() == []


def judge(browser: Browser, kind: str, why: str) -> None:
    """There is one, and the page says which and why, on other views as well."""
    browser.wait("Publishers are blocked: ", ".alarms")
    browser.wait(why, ".alarms")
    browser.wait(kind, "tbody .tag.late")
    browser.wait("blocked", "main dd.late")
    go(browser, "queues", "Queues")
    assert browser.has(why, ".alarms")


def test_an_alarm_for_memory_is_shown_and_gone_when_it_is_over(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with planned(tmp_path_factory.mktemp("cluster"), memory_limit_bytes=MEMORY_BYTES) as node:
        node.serve()
        with no_alarm_before_and_after(browser, node), short_of_memory(node):
            judge(browser, "memory", "memory_limit_bytes")


def test_an_alarm_for_the_disk_is_shown_and_gone_when_it_is_over(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("cluster")
    disk = folder / "disk"
    with (
        small_disk(disk, DISK_BYTES),
        planned(folder / "nodes", disk_free_limit_bytes=LIMIT_BYTES) as node,
    ):
        node.move_data(1, disk / "data")
        node.serve()
        with no_alarm_before_and_after(browser, node), short_of_disk(disk):
            judge(browser, "disk", "disk_free_limit_bytes")
