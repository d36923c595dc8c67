"""Mutual TLS between real nodes, strangers kept out, and clients over AMQPS."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aio_pika
import pika
import pika.exceptions
import pytest

from tests.integration.nodes import Nodes, Ports, wait_for
from tests.integration.operators import ask, run_mayfly
from tests.waiting import BOUND_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]


class Certificate(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


def new_key(folder: Path, name: str, *more: str) -> Certificate:
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made.key),
        "-out", str(made.certificate), "-subj", f"/CN={name}", *more,
    )  # fmt: skip
    return made


def new_authority(folder: Path, name: str) -> Certificate:
    return new_key(folder, name, "-x509", "-days", "2")


def new_member(folder: Path, authority: Certificate, name: str) -> Certificate:
    request = new_key(folder, f"{name}-request")
    extensions = folder / f"{name}.extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    certificate = folder / f"{name}.pem"
    openssl(
        "x509", "-req", "-in", str(request.certificate), "-CA", str(authority.certificate), "-CAkey",
        str(authority.key), "-CAcreateserial", "-out", str(certificate), "-days", "2", "-extfile", str(extensions),
    )  # fmt: skip
    return Certificate(certificate, request.key)


class Files(NamedTuple):
    """Our authority, one of strangers, and certificates of both."""

    ours: Certificate
    member: Certificate
    theirs: Certificate
    stranger: Certificate


@pytest.fixture(scope="module")
def files(folder: Path) -> Files:
    ours, theirs = new_authority(folder, "ours"), new_authority(folder, "theirs")
    member = put_in_use(folder, new_member(new_folder(folder, "member"), ours, "member"))
    return Files(ours, member, theirs, new_member(folder, theirs, "stranger"))


def new_folder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def put_in_use(folder: Path, made: Certificate) -> Certificate:
    """Where nodes find it. Both files are replaced in one step: a node that looked in between would find a key that is
    not the certificate's."""
    link, new = folder / "in-use", folder / "in-use.new"
    new.symlink_to(made.certificate.parent)
    new.replace(link)
    return Certificate(link / made.certificate.name, link / made.key.name)


@pytest.fixture(scope="module")
def cluster(folder: Path, files: Files) -> Iterator[Nodes]:
    nodes = Nodes(
        folder / "nodes",
        settings={
            "peer_tls_cert": files.member.certificate, "peer_tls_key": files.member.key,
            "peer_tls_ca": files.ours.certificate,
            "amqp_tls_cert": files.member.certificate, "amqp_tls_key": files.member.key,
        },
    )  # fmt: skip
    try:
        yield nodes.serve()
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def client_context(files: Files) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.ours.certificate))


def node_context(files: Files) -> ssl.SSLContext:
    context = client_context(files)
    context.load_cert_chain(files.member.certificate, files.member.key)
    context.set_alpn_protocols(["h2"])
    return context


def connect(nodes: Nodes, id: int, context: ssl.SSLContext) -> pika.BlockingConnection:
    nodes.until_told(id)
    address = nodes.plan(id).amqp
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            address.host, address.port, ssl_options=pika.SSLOptions(context, address.host), socket_timeout=BOUND_S,
            stack_timeout=2 * BOUND_S,
        )
    )  # fmt: skip


def test_clients_over_amqps(cluster: Nodes, files: Files) -> None:
    """pika publishes on one node, aio-pika consumes on another, everything between them encrypted."""
    publishing = connect(cluster, 1, client_context(files))
    channel = publishing.channel()
    channel.queue_declare("encrypted", durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", "encrypted", b"%d" % number, mandatory=True)
    publishing.close()

    async def consume() -> list[bytes]:
        await asyncio.to_thread(cluster.until_told, 3)
        connection = await aio_pika.connect(
            f"amqps://guest:guest@{cluster.plan(3).amqp}/", ssl_context=client_context(files)
        )
        async with connection:
            queue = await (await connection.channel()).get_queue("encrypted")
            got = []
            async with queue.iterator(timeout=BOUND_S) as messages:
                async for message in messages:
                    await message.ack()
                    got.append(message.body)
                    if len(got) == 50:
                        break
            return got

    assert asyncio.run(consume()) == [b"%d" % number for number in range(50)]


def test_a_client_in_plain_and_one_that_trusts_others_get_nowhere(cluster: Nodes, files: Files) -> None:
    address = cluster.plan(1).amqp
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port, socket_timeout=3))
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError)):
        connect(cluster, 1, ssl.create_default_context(cafile=str(files.theirs.certificate)))


@pytest.fixture
def port() -> Iterator[int]:
    """One more, which nobody takes while the node that has it is down."""
    ports = Ports(1)
    yield ports.base
    ports.release()


def test_tls_at_an_address_of_its_own_leaves_the_other_one_plain(cluster: Nodes, files: Files, port: int) -> None:
    """So that clients can change over one after the other. Both are closed by a drain, and opened again."""
    there = dict(cluster.settings[2])
    cluster.kill(2)
    cluster.configure(2, amqp_tls_address=f"127.0.0.1:{port}")
    cluster.start(2)
    cluster.until_serving()
    plain = cluster.plan(2).amqp
    context = client_context(files)
    encrypted = pika.SSLOptions(context, "127.0.0.1")
    patience = {"socket_timeout": BOUND_S, "stack_timeout": BOUND_S}

    def both_serve() -> bool:
        for parameters in (
            pika.ConnectionParameters(plain.host, plain.port, **patience),
            pika.ConnectionParameters("127.0.0.1", port, ssl_options=encrypted, **patience),
        ):
            try:
                connection = pika.BlockingConnection(parameters)
            except pika.exceptions.AMQPConnectionError:
                return False
            connection.channel().queue_declare("changing-over", durable=True)
            connection.close()
        return True

    wait_for(both_serve, "a node that takes clients at both")
    listeners = ask(cluster, 2, "GET", "overview")[1]["listeners"]
    own = {(each["protocol"], each["port"]) for each in listeners if each["node"] == "node2"}
    assert {("amqp", plain.port), ("amqp/ssl", port)} < own
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=3))
    assert run_mayfly(cluster, 2, "drain").returncode == 0
    for closed in (plain.port, port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", closed), 5).close()
    assert run_mayfly(cluster, 2, "revive").returncode == 0
    wait_for(both_serve, "a node that takes clients again")
    cluster.kill(2)
    cluster.settings[2] = there
    cluster.heal()


# -- certificates that are replaced under load ----------------------------------------------------------------


class Working:
    """A thread that does something again and again until it is stopped; what it raises is kept. `once` is told how
    often it was done before."""

    def __init__(self, once: Callable[[int], None], at_the_end: Callable[[], None] = lambda: None) -> None:
        self.done = 0
        self.failure: BaseException | None = None
        self._once = once
        self._at_the_end = at_the_end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._once(self.done)
                self.done += 1
            self._at_the_end()
        except BaseException as error:
            self.failure = error

    def goes_on(self, times: int = 20) -> None:
        """Wait until it has done it so often again."""
        aim = self.done + times
        wait_for(lambda: self.failure is not None or self.done >= aim, "work under way")
        assert self.failure is None, repr(self.failure)

    def stop(self) -> int:
        """How often it was done."""
        self._stopping.set()
        self._thread.join(2 * BOUND_S)
        assert not self._thread.is_alive() and self.failure is None, repr(self.failure)
        return self.done


def shown(port: int, context: ssl.SSLContext) -> bytes:
    """The certificate that is shown at a port."""
    with (
        socket.create_connection(("127.0.0.1", port), BOUND_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def publisher(cluster: Nodes, id: int, context: ssl.SSLContext) -> Working:
    """Publishes to "replaced", each confirmed."""
    connection = connect(cluster, id, context)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("replaced", durable=True)
    return Working(
        lambda number: channel.basic_publish("", "replaced", b"%d:%d" % (id, number), mandatory=True),
        connection.close,
    )


def consumer(cluster: Nodes, id: int, context: ssl.SSLContext, got: list[bytes]) -> Working:
    """Takes what is in it."""
    connection = connect(cluster, id, context)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=50)
    channel.basic_consume("replaced", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    return Working(lambda _: connection.process_data_events(0.01), connection.close)


def visitor(cluster: Nodes, id: int, context: ssl.SSLContext) -> Working:
    """Comes and goes."""

    def once(_: int) -> None:
        connection = connect(cluster, id, context)
        connection.channel().queue_declare("replaced", passive=True)
        connection.close()

    return Working(once)


def all_are_up(cluster: Nodes, id: int) -> bool:
    """Whether a node hears of all."""
    return [node["up"] for node in cluster.status(id)["nodes"]] == [True, True, True]


def shows(port: int, how: ssl.SSLContext, der: bytes) -> bool:
    """Whether who connects there sees this certificate."""
    return shown(port, how) == der


def test_certificates_are_replaced_under_load_and_no_connection_is_lost(
    cluster: Nodes, files: Files, folder: Path
) -> None:
    """Publishers and consumers stay on their connections, others come and go all the time, nodes stay linked; from
    the moment on that a node has read the files, who connects sees what is in them, at every port."""
    context = client_context(files)
    as_node = node_context(files)
    marks = {id: len(cluster.log_text(id)) for id in cluster.ids}
    got: list[bytes] = []

    publishers = [publisher(cluster, id, context) for id in cluster.ids]
    visitors = [visitor(cluster, id, context) for id in cluster.ids]
    works = [*publishers, consumer(cluster, 1, context, got), *visitors]
    ports = {
        (id, kind): (port, how)
        for id in cluster.ids
        for kind, port, how in (
            ("clients", cluster.plan(id).amqp.port, context),
            ("nodes", cluster.plan(id).peer.port, as_node),
            ("frames", cluster.plan(id).frames.port, as_node),
        )
    }
    before = {shown(port, how) for port, how in ports.values()}
    assert len(before) == 1
    for turn in range(2):
        for working in works:
            working.goes_on(5)
        made = new_member(new_folder(folder, f"member-{turn}"), files.ours, "member")
        der = ssl.PEM_cert_to_DER_cert(made.certificate.read_text())
        put_in_use(folder, made)
        for (id, kind), (port, how) in ports.items():
            wait_for(partial(shows, port, how, der), f"the new certificate for {kind} at node {id}")
        for working in works:
            working.goes_on(5)
    sent = {b"%d:%d" % (id, n) for id, each in zip(cluster.ids, publishers, strict=True) for n in range(each.stop())}
    wait_for(lambda: works[3].failure is not None or sent <= set(got), "all that was confirmed")
    assert len(got) == len(sent), "none twice"
    for working in works[3:]:
        working.stop()
    for id in cluster.ids:
        log = cluster.log_text(id)[marks[id] :]
        assert log.count("were read again") == 4, log
        assert "reach node" not in log and "lost" not in log, log
        wait_for(partial(all_are_up, cluster, id), f"all nodes as node {id} has them")


@pytest.mark.parametrize("kind", ["another authority", "stolen authority file", "no TLS"])
def test_a_node_without_the_right_certificate_is_kept_out(cluster: Nodes, files: Files, kind: str) -> None:
    """Node 3 comes back with another certificate: it does not serve, the others neither hear nor tell it anything."""
    right = dict(cluster.settings[3])
    cluster.kill(3)
    if kind == "no TLS":
        for key in ("peer_tls_cert", "peer_tls_key", "peer_tls_ca"):
            del cluster.settings[3][key]
    else:
        authority = files.theirs if kind == "another authority" else files.ours
        cluster.configure(
            3, peer_tls_cert=files.stranger.certificate, peer_tls_key=files.stranger.key,
            peer_tls_ca=authority.certificate,
        )  # fmt: skip
    mark = len(cluster.log_text(3))
    cluster.start(3)
    wait_for(lambda: "can't reach node 1" in cluster.log_text(3)[mark:], "a refused connection in the log")
    wait_for(lambda: "can't reach node 2" in cluster.log_text(3)[mark:], "a refused connection in the log")
    wait_for(lambda: cluster.page(3, "/health/live")[0] == 200, "a node that lives")
    assert cluster.page(3, "/health/ready")[0] == 503
    for id, up in ((1, [True, True, False]), (2, [True, True, False]), (3, [False, False, True])):
        wait_for(lambda: [node["up"] for node in cluster.status(id)["nodes"]] == up, f"who is up for {id}")  # noqa: B023
    cluster.kill(3)
    cluster.settings[3] = right
    cluster.heal()


def test_tls_between_nodes_is_turned_on_with_a_stop_of_all_but_one(cluster: Nodes, files: Files) -> None:
    """The one that was changed first waits, and the others serve; then those change together. What was confirmed is
    there, whoever was up at the time."""
    context = client_context(files)
    keys = ("peer_tls_cert", "peer_tls_key", "peer_tls_ca")
    with_tls = {id: {key: cluster.settings[id][key] for key in keys} for id in cluster.ids}
    cluster.kill(*cluster.ids)
    for id in cluster.ids:
        for key in keys:
            del cluster.settings[id][key]
    cluster.start(*cluster.ids)
    cluster.until_serving()

    def publish(bodies: tuple[bytes, ...]) -> None:
        connection = connect(cluster, 1, context)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("turned-on", durable=True)
        for body in bodies:
            channel.basic_publish("", "turned-on", body, mandatory=True)
        connection.close()

    def change(*ids: int) -> None:
        cluster.kill(*ids)
        for id in ids:
            cluster.configure(id, **with_tls[id])
        cluster.start(*ids)

    publish((b"plain",))
    mark = len(cluster.log_text(3))
    change(3)
    wait_for(lambda: "can't reach node 1" in cluster.log_text(3)[mark:], "a node that finds nobody")
    publish((b"without node 3",))
    wait_for(lambda: cluster.page(3, "/health/live")[0] == 200, "a node that lives")
    assert cluster.page(3, "/health/ready")[0] == 503
    change(1, 2)
    cluster.until_serving()
    cluster.heal()
    publish((b"encrypted",))
    connection = connect(cluster, 3, context)
    channel = connection.channel()
    bodies = [channel.basic_get("turned-on", auto_ack=True)[2] for _ in range(3)]
    connection.close()
    assert bodies == [b"plain", b"without node 3", b"encrypted"]
    assert shown(cluster.plan(1).frames.port, node_context(files))
