"""A node, a browser and a client with some queues, for whole test modules."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browser import CHROMIUM, DRIVER, MISSING, Browser
from tests.browser.some_traffic import Traffic
from tests.integration.nodes import Nodes

USER, PASSWORD = "admin", "a password: with colon"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the module; the test is skipped where there is none."""
    if CHROMIUM is None or DRIVER is None:
        if os.environ.get("BROWSER_DEMAND"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def node(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster of one node; after the browser, so that none is started for nothing."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with Nodes(folder, 1, {"default_user": USER, "default_pass": PASSWORD}) as nodes:
        nodes.login = (USER, PASSWORD)
        nodes.serve()
        yield nodes


@pytest.fixture(scope="module")
def traffic(node: Nodes) -> Iterator[None]:
    """Some queues with messages, and a consumer."""
    with Traffic(node.plan(1).amqp, USER, PASSWORD).here():
        yield


@pytest.fixture
def page(node: Nodes, traffic: None, browser: Browser) -> Iterator[Browser]:
    """The page, logged in; at the end it has complained about nothing."""
    log_in(browser, node, USER, PASSWORD)
    browser.faults()
    yield browser
    assert browser.faults() == []


def log_in(browser: Browser, node: Nodes, user: str, password: str) -> None:
    """Open the page anew, and log in."""
    browser.open(f"http://{node.plan(1).http}/")
    browser.run("sessionStorage.clear()")
    browser.open(f"http://{node.plan(1).http}/")
    browser.write("input[name=name]", user)
    browser.write("input[name=password]", password)
    browser.click("button", "Log in")
    browser.wait_for(".frame, .notice.late")


def go(browser: Browser, path: str, title: str) -> None:
    """Open a view by its address, until it has been filled once."""
    browser.run("location.hash = arguments[0]", f"#/{path}")
    browser.wait(title, "h1")
    browser.wait_for("main > [data-shown]")
