"""Who shows a token to the page."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import PASSWORD, USER
from tests.integration.nodes import Nodes
from tests.node.oauth.provider import CLUSTER, claims, jwks, token

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture(scope="module")
def node(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A node that takes tokens beside passwords."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    (folder / "keys.json").write_bytes(jwks())
    settings: dict[str, object] = {
        "default_user": USER, "default_pass": PASSWORD, "auth_backends": "internal,oauth2",
        "oauth2_resource_server_id": CLUSTER, "oauth2_key_file": str(folder / "keys.json"),
    }  # fmt: skip
    with Nodes(folder, 1, settings) as nodes:
        nodes.serve()
        yield nodes


def test_a_token_opens_the_page_and_one_that_does_not_count_is_told(node: Nodes, browser: Browser) -> None:
    now_s = int(time.time())
    browser.open(f"http://{node.plan(1).http}/")
    browser.wait_for("input[name=token]")
    browser.write("input[name=token]", token(claims("tag:administrator", now_s=now_s, aud="other")))
    browser.click("button", "Log in by token")
    browser.wait("does not count", ".by-token [role=alert]")
    browser.write("input[name=token]", token(claims("tag:administrator", "read:*/*", now_s=now_s)))
    browser.click("button", "Log in by token")
    browser.wait("Overview", "h1")
    assert browser.has("ada")
    browser.click("button", "Log out")
    browser.wait_for("input[name=token]")
    assert browser.run("return sessionStorage.length") == 0
