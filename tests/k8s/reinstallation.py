"""The release is uninstalled and installed again: volumes and login stay, and with them the messages."""

from __future__ import annotations

from typing import Any, Final

from tests.k8s.cluster import NAMESPACE, SET
from tests.k8s.encryption import AMQPS, connect
from tests.k8s.release import Release

QUEUE: Final = "kept"
MESSAGES: Final = 500
PLAIN: Final = 5672


def reinstall(release: Release) -> str:
    """Without a password among the values: the Secret has it."""
    cluster = release.cluster
    connection = _connect(release)
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", QUEUE, b"%d" % number, mandatory=True)
    connection.close()
    before = _what_lasts(release)
    release.uninstall()
    left = [each.metadata.name for each in cluster.core.list_namespaced_service(NAMESPACE).items]
    assert not left, f"services {left} are left"
    release.values = {**release.values, "auth": {"username": release.login.user}}
    release.install()
    after = _what_lasts(release)
    assert before == after, f"{before} became {after}"
    connection = _connect(release)
    channel = connection.channel()
    found = [channel.basic_get(QUEUE, auto_ack=True)[2] for _ in range(MESSAGES)]
    assert found == [b"%d" % number for number in range(MESSAGES)], f"{len(found)} messages, others than before"
    connection.close()
    return f"the same cluster, members, volumes and Secret; {MESSAGES} messages were there, in order; {release.test()}"


def _what_lasts(release: Release) -> dict[str, Any]:
    cluster = release.cluster
    members = cluster.page("/cluster/members")
    secret = cluster.core.read_namespaced_secret(SET, NAMESPACE)
    return {
        "cluster": members["cluster"],
        "members": sorted((row["id"], row["name"]) for row in members["members"] if row["state"] == "member"),
        "claims": cluster.claims(),
        "secret": (secret.metadata.uid, secret.data),
    }


def _connect(release: Release) -> Any:
    """As clients have to."""
    import pika

    cluster, login = release.cluster, release.login
    if release.values.get("tls", {}).get("enabled"):
        return connect(cluster, login, SET, AMQPS)
    who = pika.PlainCredentials(*login)
    return pika.BlockingConnection(pika.ConnectionParameters(cluster.address(), PLAIN, credentials=who))
