"""The page over HTTPS, with the certificate that AMQPS has."""

import os
import shutil
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.browser.browser import Browser
from tests.browser.conftest import PASSWORD, USER, go
from tests.integration.nodes import Nodes, Ports
from tests.integration.test_tls import Certificate, new_authority, new_member, shown, shows
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Certificate:
    return new_authority(folder, "ours")


@pytest.fixture(scope="module")
def member(folder: Path, authority: Certificate) -> Certificate:
    return new_member(folder, authority, "member")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    ports = Ports(1)
    yield ports.base
    ports.release()


@pytest.fixture(scope="module")
def node(browser: Browser, folder: Path, member: Certificate, port: int) -> Iterator[Nodes]:
    """One whose HTTP has an address for TLS, and no files of its own for it. After a browser, as in `conftest`."""
    settings: dict[str, object] = {
        "default_user": USER, "default_pass": PASSWORD, "http_tls_address": f"127.0.0.1:{port}",
        "amqp_tls_cert": member.certificate, "amqp_tls_key": member.key,
    }  # fmt: skip
    with Nodes(folder / "nodes", 1, settings) as nodes:
        nodes.serve()
        yield nodes


def test_the_page_works_over_https_for_who_trusts_the_certificate_of_amqps(
    node: Nodes, member: Certificate, browser: Browser, port: int
) -> None:
    address = f"https://127.0.0.1:{port}/"
    browser.open(address)
    browser.wait("ERR_CERT_AUTHORITY_INVALID")
    with Browser(trusted=member.certificate) as trusting:
        trusting.open(address)
        trusting.write("input[name=name]", USER)
        trusting.write("input[name=password]", PASSWORD)
        trusting.click("button", "Log in")
        trusting.wait("Overview", "h1")
        assert trusting.run("return [location.protocol, isSecureContext]") == ["https:", True]
        row = next(text for text in trusting.texts("tbody tr") if str(port) in text)
        assert "https" in row
        go(trusting, "queues", "Queues")
        asked = "return performance.getEntriesByType('resource').map((it) => it.name)"
        assert {name.rpartition("//")[0] for name in trusting.run(asked)} == {"https:"}
        assert trusting.faults() == []


def test_a_certificate_that_is_replaced_is_shown_at_the_port_of_the_page(
    node: Nodes, folder: Path, authority: Certificate, member: Certificate, port: int
) -> None:
    trusted = ssl.create_default_context(cafile=str(authority.certificate))
    made = new_member(folder, authority, "later")
    der = ssl.PEM_cert_to_DER_cert(made.certificate.read_text())
    assert shown(port, trusted) == shown(node.plan(1).amqp.port, trusted) != der
    os.replace(made.key, member.key)
    os.replace(made.certificate, member.certificate)
    for each in (port, node.plan(1).amqp.port):
        wait_for(partial(shows, each, trusted, der), f"the new certificate at {each}")
