"""Mirrors of streams in another cluster, between real nodes (RULES J4): each message once and in order, whichever is
killed; over TLS, with a password from a file."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients import channel, publish_all
from tests.integration.nodes import Nodes, Ports
from tests.integration.operators import ask, mayfly
from tests.integration.test_streams import STREAM, read
from tests.integration.test_tls import Files, new_authority, new_member
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

COUNT = 2_000
PASSWORD = "kept in a file"
MIRROR = {**STREAM, "x-mirror": "orders", "x-upstream": "east"}


@pytest.fixture(scope="module")
def files(folder: Path) -> Files:
    ours, theirs = new_authority(folder, "ours"), new_authority(folder, "theirs")
    return Files(ours, new_member(folder, ours, "member"), theirs, new_member(folder, theirs, "stranger"))


@pytest.fixture(scope="module")
def east(folder: Path, files: Files) -> Iterator[tuple[Nodes, int]]:
    """A cluster of one node with a stream, and its port for TLS."""
    ports = Ports(1)
    settings = {
        "amqp_tls_cert": files.member.certificate, "amqp_tls_key": files.member.key,
        "amqp_tls_address": f"127.0.0.1:{ports.base}",
    }  # fmt: skip
    try:
        with Nodes(folder / "east", 1, settings) as nodes:
            nodes.serve()
            assert ask(nodes, 1, "PUT", "users/mirror", {"password": PASSWORD, "tags": ""})[0] == 201
            rights = {"configure": "", "write": "", "read": "orders"}
            assert ask(nodes, 1, "PUT", "permissions/%2F/mirror", rights)[0] in (201, 204)
            with channel(nodes, 1) as opened:
                opened.queue_declare("orders", durable=True, arguments=STREAM)
            yield nodes, ports.base
    finally:
        ports.release()


@pytest.fixture(scope="module")
def west(folder: Path, files: Files, east: tuple[Nodes, int]) -> Iterator[Nodes]:
    """A cluster of one node with mirrors of that."""
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n")
    upstreams = folder / "upstreams.toml"
    clusters = {"east": files.ours.certificate, "untrusted": files.theirs.certificate}
    upstreams.write_text("".join(
        f'[{name}]\naddresses = ["amqps://127.0.0.1:{east[1]}"]\nuser = "mirror"\npassword_file = "{password}"\n'
        f'ca_file = "{authority}"\nfor_vhosts = ["/"]\n'
        for name, authority in clusters.items()
    ))  # fmt: skip
    with Nodes(folder / "west", 1, {"upstreams_file": upstreams}) as nodes:
        nodes.serve()
        with channel(nodes, 1) as opened:
            opened.queue_declare("copy", durable=True, arguments=MIRROR)
        yield nodes


def shown(west: Nodes, mirror: str = "copy") -> dict[str, Any]:
    found: dict[str, Any] = ask(west, 1, "GET", f"mayfly/queues/%2F/{mirror}/stream")[1]["upstream"]
    return found


def until_copied(west: Nodes, count: int) -> None:
    wait_for(
        lambda: (shown(west)["state"], shown(west)["copied_to"], shown(west)["lag"]) == ("reading", count, 0),
        f"{count} messages in the mirror",
    )


def test_j4_a_mirror_elsewhere_has_each_once_and_in_order_whichever_node_is_killed(
    east: tuple[Nodes, int], west: Nodes
) -> None:
    there, _ = east
    bodies = [b"%d" % number for number in range(COUNT)]
    quarter = COUNT // 4
    publish_all(there, 1, "orders", bodies[:quarter])
    until_copied(west, quarter)
    west.kill(1)
    publish_all(there, 1, "orders", bodies[quarter : 2 * quarter])
    west.heal()
    there.kill(1)
    there.heal()
    publish_all(there, 1, "orders", bodies[2 * quarter : 3 * quarter])
    until_copied(west, 3 * quarter)
    there.kill(1)
    west.kill(1)
    west.heal()
    wait_for(lambda: "other side" in (shown(west)["reason"] or ""), "a mirror that can't connect")
    assert "127.0.0.1" not in shown(west)["reason"]
    there.heal()
    publish_all(there, 1, "orders", bodies[3 * quarter :])
    until_copied(west, COUNT)
    assert read(west, 1, "copy", "first", COUNT - 1) == list(enumerate(bodies))


def test_j4_how_far_a_mirror_of_a_stream_elsewhere_is_told(west: Nodes) -> None:
    """Over HTTP, by the command, in the metrics; the password nowhere."""
    until_copied(west, COUNT)
    assert shown(west) == {
        "cluster": "east", "stream": "orders", "state": "reading", "reason": None, "copied_to": COUNT,
        "upstream_next_offset": COUNT, "lag": 0,
    }  # fmt: skip
    assert "copies orders of cluster east: 0 behind, reading" in mayfly(west, 1, "stream", "show", "copy")
    assert west.metric(1, "mayfly_stream_upstream_reading") == 1
    assert west.metric(1, "mayfly_stream_upstream_lag") == 0
    logs = "".join(each.read_text(errors="replace") for each in west.folder.rglob("*.log"))
    assert "mirror 'copy' in vhost '/' reads stream 'orders' of cluster 'east'" in logs
    assert PASSWORD not in logs
    assert PASSWORD not in str(west.status(1))


def test_j4_a_cluster_with_another_certificate_and_a_stream_that_may_not_be_read(west: Nodes) -> None:
    for name, cluster, stream, reason in (
        ("untrusted", "untrusted", "orders", "CERTIFICATE_VERIFY_FAILED"),
        ("forbidden", "east", "others", "403"),
    ):
        arguments = {**STREAM, "x-mirror": stream, "x-upstream": cluster}
        with channel(west, 1) as opened:
            opened.queue_declare(name, durable=True, arguments=arguments)
        wait_for(lambda name=name, reason=reason: reason in (shown(west, name)["reason"] or ""), reason)  # type: ignore[misc]
