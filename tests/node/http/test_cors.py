"""What settings say of HTTP: pages of other sites in a browser, HTTPS, how large a body may be."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mayfly.node.http.cors import Cors
from mayfly.node.settings.kinds import Address
from mayfly.node.settings.node_settings import TlsFiles
from mayfly.node.shell.certificates_watch import client_tls
from tests.node.http.real_node import Node
from tests.node.http.served import http_server
from tests.node.http.some_node import SomeNode

EVIL = "https://evil.example"


def asked(origins: str, method: str, headers: dict[str, str]) -> web.StreamResponse:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="done")

    async def ask() -> web.StreamResponse:
        request = make_mocked_request(method, "/api/x", headers={"Host": "node:15672", **headers})
        return await Cors(origins).middleware(request, handler)

    return asyncio.run(ask())


def test_without_the_setting_no_page_of_another_site_is_told_anything() -> None:
    for method in ("GET", "POST", "OPTIONS"):
        assert "Access-Control-Allow-Origin" not in asked("", method, {"Origin": EVIL}).headers


@pytest.mark.parametrize("origins", ["*", f"https://other.example,{EVIL}"])
def test_pages_of_the_sites_in_the_setting_may(origins: str) -> None:
    done = asked(origins, "PUT", {"Origin": EVIL})
    assert (done.status, done.headers["Access-Control-Allow-Origin"], done.headers["Vary"]) == (200, EVIL, "Origin")
    before = asked(origins, "OPTIONS", {"Origin": EVIL, "Access-Control-Request-Method": "PUT"})
    assert before.status == 204
    assert "PUT" in before.headers["Access-Control-Allow-Methods"]
    assert "Authorization" in before.headers["Access-Control-Allow-Headers"]
    other = asked("https://other.example", "PUT", {"Origin": EVIL})
    assert "Access-Control-Allow-Origin" not in other.headers


def test_the_same_is_there_over_tls_and_nothing_without(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    certificate, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    tls = client_tls(TlsFiles(certificate, key_file, None), "http")
    assert tls is not None

    async def ask() -> list[Any]:
        server = http_server(SomeNode(), tls_address=Address("localhost", 0), tls=tls.front)
        await server.start()
        plain, secured = (listening.sockets[0].getsockname()[1] for listening in server._listening)
        trusted = ssl.create_default_context(cafile=str(certificate))
        try:
            async with aiohttp.ClientSession() as session:
                answers = []
                for url in (f"http://127.0.0.1:{plain}/health/live", f"https://localhost:{secured}/health/live"):
                    async with session.get(url, ssl=trusted) as found:
                        answers.append(await found.json())
                for url in (f"http://localhost:{secured}/health/live", f"https://127.0.0.1:{secured}/health/live"):
                    try:  # in plain, and by a name that is not in the certificate
                        async with session.get(url, ssl=trusted) as found:
                            answers.append(found.status)
                    except aiohttp.ClientError:
                        answers.append("nothing")
                return answers
        finally:
            await server.stop()

    assert asyncio.run(ask()) == [{"status": "live"}, {"status": "live"}, "nothing", "nothing"]


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """413, as in RabbitMQ; what fits is taken, and the node goes on."""
    node = Node(tmp_path, http_body_bytes=2_000)

    def publish(length: int) -> int:
        content = {"properties": {}, "routing_key": "q", "payload": "x" * length, "payload_encoding": "string"}
        return int(node.ask("POST", "/api/exchanges/%2F/amq.default/publish", content=content)[0])

    try:
        assert [publish(length) for length in (1_000, 2_000, 1_000)] == [200, 413, 200]
    finally:
        node.stop()
