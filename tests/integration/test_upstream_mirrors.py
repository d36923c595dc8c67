"""Mirrors of streams in another cluster, between real nodes (RULES J4): each message once and in order, whichever is
killed; over TLS, with a password from a file."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients import channel, declare_led_by, publish_all
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
VICTIM = 3
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


def until_copied(west: Nodes, count: int, mirror: str = "copy") -> None:
    def is_copied() -> bool:
        link = shown(west, mirror)
        return (link["state"], link["copied_to"], link["lag"]) == ("reading", count, 0)

    wait_for(is_copied, f"{count} messages in the mirror")


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
    reasons: list[str] = []

    def cannot_connect() -> bool:
        reasons.append(shown(west)["reason"] or "")
        return "other side" in reasons[-1]

    wait_for(cannot_connect, "a mirror that can't connect")
    assert "127.0.0.1" not in reasons[-1]
    there.heal()
    publish_all(there, 1, "orders", bodies[3 * quarter :])
    until_copied(west, COUNT)
    assert read(west, 1, "copy", "first", COUNT - 1) == list(enumerate(bodies))


@pytest.mark.slow
def test_j4_a_mirror_between_clusters_of_three_has_each_once_and_in_order_whichever_leader_is_killed(
    folder: Path,
) -> None:
    """There the leader of the stream dies, then the node that is read from: the mirror goes to the other address; here
    the leader of the mirror."""
    password = folder / "password of three"
    password.write_text(PASSWORD)
    with Nodes(folder / "east of three") as there:
        there.serve()
        assert ask(there, 1, "PUT", "users/mirror", {"password": PASSWORD, "tags": ""})[0] == 201
        rights = {"configure": "", "write": "", "read": ".*"}
        assert ask(there, 1, "PUT", "permissions/%2F/mirror", rights)[0] in (201, 204)
        with channel(there, 1) as declaring:
            stream = declare_led_by(there, declaring, "orders", lambda leader: leader == VICTIM, STREAM)
        upstreams = folder / "three.toml"
        addresses = [f"amqp://{there.plan(id).amqp}" for id in (1, 2)]
        upstreams.write_text(
            f'[east]\naddresses = {addresses}\nuser = "mirror"\npassword_file = "{password}"\nfor_vhosts = ["/"]\n'
        )
        with Nodes(folder / "west of three", settings={"upstreams_file": upstreams}) as here:
            here.serve()
            mirroring = {**STREAM, "x-mirror": stream, "x-upstream": "east"}
            with channel(here, 1) as declaring:
                mirror = declare_led_by(here, declaring, "copy", lambda leader: leader == VICTIM, mirroring)
            bodies = [b"%d" % number for number in range(COUNT)]
            quarter = COUNT // 4
            publish_all(there, 1, stream, bodies[:quarter])
            until_copied(here, quarter, mirror)

            there.kill(VICTIM)
            wait_for(lambda: there.leader_of(stream) not in (0, VICTIM), "another leader of the stream")
            publish_all(there, 1, stream, bodies[quarter : 2 * quarter])
            there.heal()
            until_copied(here, 2 * quarter, mirror)

            killed = read_from(there)
            there.kill(killed)
            wait_for(lambda: there.leader_of(stream, VICTIM) not in (0, killed), "a leader of the stream")
            publish_all(there, VICTIM, stream, bodies[2 * quarter : 3 * quarter])
            until_copied(here, 3 * quarter, mirror)
            there.heal()

            here.kill(VICTIM)
            wait_for(lambda: here.leader_of(mirror) not in (0, VICTIM), "another leader of the mirror")
            publish_all(there, 1, stream, bodies[3 * quarter :])
            until_copied(here, COUNT, mirror)
            here.heal()
            for id in here.ids:
                assert read(here, id, mirror, "first", COUNT - 1) == list(enumerate(bodies))


def read_from(there: Nodes) -> int:
    """The node at which the mirror's connection is."""
    names: set[str] = set()

    def is_told() -> bool:
        # One that it has left may still be in the list, and the next one not yet.
        rows = ask(there, VICTIM, "GET", "connections")[1]
        names.clear()
        names.update(row["node"] for row in rows if row["user"] == "mirror")
        return len(names) == 1

    wait_for(is_told, "one connection of the mirror", every_s=0.1)
    return next(id for id in there.ids if there.status(id)["name"] in names)


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
    told = {"vhost": "/", "mirror": "copy", "cluster": "east", "reading": True, "lag": 0}
    assert told in [row for group in west.status(1)["groups"] for row in group.get("upstreams", ())]
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
