"""Who may do what on three real nodes: certificates made by `mayfly tls`, users, vhosts, permissions, limits, logs."""

import base64
import os
import shutil
import signal
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
import pika.exceptions
import pytest

from mayfly.node.command_line.certificate_authority import issue, make_authority
from tests.integration.clients import made_known
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask as ask_as
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

ADMINISTRATOR: Final = ("boss", "boss-secret-1")
SECRETS: Final = (ADMINISTRATOR[1], "worker-secret-2", "wrong-secret-3", "imported-secret-4")
ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
DAYS: Final = 2


@pytest.fixture(scope="module")
def authorities(folder: Path) -> dict[str, Path]:
    """One for nodes, one for clients, one of strangers; each has issued what is needed of it."""
    made = {name: folder / name for name in ("nodes", "clients", "strangers")}
    for name, where in made.items():
        make_authority(where, name, DAYS)
    issue(made["nodes"], ["127.0.0.1"], DAYS, renew=False)
    for name in ("clients", "strangers"):
        issue(made[name], ["alice"], DAYS, renew=False)
    return made


@pytest.fixture(scope="module")
def cluster(folder: Path, authorities: dict[str, Path]) -> Iterator[Nodes]:
    """The first user is not guest. Clients show a certificate; nodes have files of their own, to be replaced."""
    settings: dict[str, object] = {"default_user": ADMINISTRATOR[0], "default_pass": ADMINISTRATOR[1], "shards": 4}
    nodes = Nodes(folder / "cluster", settings=settings)
    for id in nodes.ids:
        own = folder / f"files{id}"
        own.mkdir()
        for file in ("127.0.0.1.pem", "127.0.0.1.key", "ca.pem"):
            shutil.copy(authorities["nodes"] / file, own / file)
        shutil.copy(authorities["clients"] / "ca.pem", own / "clients.pem")
        certificate, key = own / "127.0.0.1.pem", own / "127.0.0.1.key"
        nodes.configure(
            id, peer_tls_cert=certificate, peer_tls_key=key, peer_tls_ca=own / "ca.pem", amqp_tls_cert=certificate,
            amqp_tls_key=key, amqp_tls_ca=own / "clients.pem",
        )  # fmt: skip
    try:
        yield nodes.serve()
    except BaseException:
        nodes.stop()
        raise
    try:
        assert [secret for secret in SECRETS for id in nodes.ids if secret in nodes.log_text(id)] == []
    finally:
        nodes.close()


def ask(
    nodes: Nodes, id: int, method: str, path: str, content: object = None, user: tuple[str, str] = ADMINISTRATOR
) -> tuple[int, Any]:
    """As the administrator. What is changed is known at all nodes."""
    return made_known(nodes, lambda: ask_as(nodes, id, method, path, content, user))


def good(answer: tuple[int, Any]) -> Any:
    assert answer[0] in (200, 201, 204), answer
    return answer[1]


def connect(
    nodes: Nodes, authorities: dict[str, Path], id: int, user: tuple[str, str] | None, vhost: str = "/",
    clients: str = "clients",
) -> pika.BlockingConnection:  # fmt: skip
    """As a user with a password, or (None) as alice, by her certificate."""
    nodes.until_told(id)
    context = ssl.create_default_context(cafile=str(authorities["nodes"] / "ca.pem"))
    context.load_cert_chain(authorities[clients] / "alice.pem", authorities[clients] / "alice.key")
    address = nodes.plan(id).amqp
    credentials: Any = pika.credentials.ExternalCredentials() if user is None else pika.PlainCredentials(*user)
    parameters = pika.ConnectionParameters(
        address.host, address.port, vhost, credentials, heartbeat=0, socket_timeout=BOUND_S, stack_timeout=2 * BOUND_S,
        ssl_options=pika.SSLOptions(context, address.host),
    )  # fmt: skip
    return pika.BlockingConnection(parameters)


def end_of(connection: pika.BlockingConnection) -> str:
    """Why the node closes the connection."""
    try:
        for _ in range(int(2 * BOUND_S)):  # it returns as soon as anything has come
            connection.process_data_events(time_limit=0.5)
    except pika.exceptions.ConnectionClosedByBroker as closed:
        return f"{closed.reply_code} {closed.reply_text}"
    return "it stays"


def test_the_first_user_is_the_one_of_the_settings(cluster: Nodes) -> None:
    """guest is gone, on every node, over HTTP and AMQP."""
    for id in cluster.ids:
        assert ask(cluster, id, "GET", "whoami") == (200, {"name": "boss", "tags": ["administrator"]})
        assert ask(cluster, id, "GET", "whoami", user=("guest", "guest"))[0] == 401
        assert [row["name"] for row in good(ask(cluster, id, "GET", "users"))] == ["boss"]


def test_users_permissions_and_deletion_through_any_node(cluster: Nodes, authorities: dict[str, Path]) -> None:
    """What one node was told, the others do at once; open connections feel it."""
    worker = ("worker", SECRETS[1])
    good(ask(cluster, 1, "PUT", "users/worker", {"password": worker[1], "tags": ""}))
    good(ask(cluster, 2, "PUT", "vhosts/shop"))
    good(ask(cluster, 3, "PUT", "permissions/shop/worker", ALL))
    connections = [connect(cluster, authorities, id, worker, "shop") for id in cluster.ids]
    channels = [connection.channel() for connection in connections]
    channels[0].queue_declare("orders", durable=True)
    channels[0].confirm_delivery()
    channels[1].basic_publish("", "orders", b"one")
    good(ask(cluster, 1, "PUT", "permissions/shop/worker", {**ALL, "read": "^$"}))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channels[2].basic_get("orders")
    text = "ACCESS_REFUSED - access to queue 'orders' in vhost 'shop' refused for user 'worker'"
    assert (refused.value.reply_code, refused.value.reply_text) == (403, text)
    good(ask(cluster, 2, "DELETE", "users/worker"))
    for connection in connections:
        assert end_of(connection) == "320 CONNECTION_FORCED - user 'worker' is deleted"
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(cluster, authorities, 3, worker, "shop")
    boss = connect(cluster, authorities, 3, ADMINISTRATOR, "shop")
    good(ask(cluster, 1, "DELETE", "vhosts/shop"))
    assert end_of(boss) == "320 CONNECTION_FORCED - vhost 'shop' is deleted"
    # Its queue is gone from its shard on every node, with what was in it.
    for id in cluster.ids:
        wait_for(
            lambda: [row for row in cluster.page(id, "/queues")[1]["queues"] if row["vhost"] == "shop"] == [],  # noqa: B023
            "no queues of the vhost",
        )
        wait_for(lambda: cluster.metric(id, "mayfly_queues") == 0, "no queues in shards")  # noqa: B023


def test_limits_count_over_all_nodes(cluster: Nodes, authorities: dict[str, Path]) -> None:
    good(ask(cluster, 1, "PUT", "user-limits/boss/max-connections", {"value": 2}))
    opened: list[pika.BlockingConnection] = []

    def is_let_in(id: int) -> bool:
        try:
            opened.append(connect(cluster, authorities, id, ADMINISTRATOR))
        except pika.exceptions.ProbableAccessDeniedError:
            return False
        return True

    for id in (1, 2):
        wait_for(partial(is_let_in, id), f"node {id} has heard of the end of earlier connections", every_s=0.1)
    first, second = opened

    def is_refused() -> bool:
        try:
            connect(cluster, authorities, 3, ADMINISTRATOR).close()
        except pika.exceptions.ProbableAccessDeniedError as error:
            return "NOT_ALLOWED - connection refused for user 'boss': user connection limit (2) is reac" in str(error)
        return False

    wait_for(is_refused, "a node that has heard of the connections of the others", every_s=0.1)
    first.close()
    wait_for(lambda: not is_refused(), "room for another one", every_s=0.1)
    good(ask(cluster, 3, "DELETE", "user-limits/boss/max-connections"))
    second.close()


def test_hashes_of_rabbitmq_are_renewed_at_the_first_login(cluster: Nodes, authorities: dict[str, Path]) -> None:
    import hashlib

    imported = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + SECRETS[3].encode()).digest()).decode()
    content = {"password_hash": imported, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
    good(ask(cluster, 1, "PUT", "users/moved", content))
    good(ask(cluster, 1, "PUT", "permissions/%2F/moved", ALL))
    connect(cluster, authorities, 2, ("moved", SECRETS[3])).close()
    wait_for(
        lambda: good(ask(cluster, 3, "GET", "users/moved"))["hashing_algorithm"] == "scrypt",
        "a better hash",
        every_s=0.05,
    )
    connect(cluster, authorities, 3, ("moved", SECRETS[3])).close()
    before = cluster.metric(1, "mayfly_logins_total")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(cluster, authorities, 1, ("moved", SECRETS[2]))
    assert cluster.metric(1, "mayfly_logins_total") == before + 1


def test_a_certificate_says_who_a_client_is(cluster: Nodes, authorities: dict[str, Path]) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(cluster, authorities, 1, None)
    good(ask(cluster, 2, "PUT", "users/alice", {"password_hash": "", "tags": ""}))
    good(ask(cluster, 2, "PUT", "permissions/%2F/alice", {"configure": "^alice", "write": "", "read": ""}))
    connection = connect(cluster, authorities, 1, None)
    connection.channel().queue_declare("alice-1", exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'alice'"):
        connection.channel().queue_declare("other", exclusive=True)
    connection.close()
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError, ConnectionError)):
        connect(cluster, authorities, 1, None, clients="strangers")


@pytest.mark.parametrize("how", ["SIGHUP", "files"])
def test_certificates_are_replaced_while_clients_stay(
    cluster: Nodes, authorities: dict[str, Path], folder: Path, how: str
) -> None:
    """Another authority for clients: who was connected stays, who comes is judged by the new one."""
    alice = connect(cluster, authorities, 1, ADMINISTRATOR)
    own = folder / "files1" / "clients.pem"
    mark = len(cluster.log_text(1))

    def replace(authority: str) -> None:
        new = own.with_suffix(".new")
        shutil.copy(authorities[authority] / "ca.pem", new)
        new.replace(own)
        if how == "SIGHUP":
            os.kill(cluster.pid(1), signal.SIGHUP)

    def is_let_in(clients: str) -> bool:
        try:
            connect(cluster, authorities, 1, ADMINISTRATOR, clients=clients).close()
        except (pika.exceptions.AMQPConnectionError, ssl.SSLError, ConnectionError):
            return False
        return True

    replace("strangers")
    wait_for(lambda: is_let_in("strangers"), "the new authority", every_s=0.1)
    assert not is_let_in("clients")
    alice.process_data_events()
    assert alice.is_open
    replace("clients")
    wait_for(lambda: is_let_in("clients"), "the old authority again", every_s=0.1)
    assert not is_let_in("strangers")
    alice.close()
    expected = "asked for" if how == "SIGHUP" else "files changed"
    assert f"certificates for clients were read again ({expected})" in cluster.log_text(1)[mark:]
