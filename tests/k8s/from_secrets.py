"""A release whose login, definitions and certificates come from secrets that were there before: it serves with them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Final

from tests.k8s.cluster import NAMESPACE, WITHIN_S, Cluster, is_ready
from tests.k8s.encryption import connect, make_certificates
from tests.k8s.release import CHART, Release

RELEASE: Final = "safe"
SERVICE: Final = f"{RELEASE}-mayfly"
LOGIN: Final = ("operator", "from a secret")
CLIENT: Final = ("client", "from definitions")
VHOST: Final = "orders"
QUEUE: Final = "new"
_SALT: Final = b"salt"


def install(release: Release) -> str:
    """Instead of the first release; `helm test`, a client."""
    cluster = release.cluster
    release.uninstall()
    make_certificates(cluster, SERVICE)
    _make_secrets(cluster)
    with cluster.helm() as helm:
        # The definitions are loaded by a hook: this returns when its job has succeeded.
        helm.install(CHART, RELEASE, {**release.values, **values()}, timeout=round(WITHIN_S))
        release.until(lambda: sum(map(is_ready, cluster.pods())) == 3, "3 ready pods")
        helm.test(RELEASE, timeout=round(WITHIN_S))
    _check(cluster)
    return "definitions loaded, `helm test` succeeded, the user of the definitions published and got through TLS"


def values() -> dict[str, Any]:
    """Of the chart. Nothing is kept: the volumes are of the first release."""
    return {
        "auth": {"existingSecret": "login"},
        "loadDefinition": {"enabled": True, "existingSecret": "definitions"},
        "tls": {
            "enabled": True,
            "existingSecret": f"{SERVICE}-clients",
            "peers": {"enabled": True, "existingSecret": f"{SERVICE}-peers"},
        },
        "persistence": {"enabled": False},
    }


def _make_secrets(cluster: Cluster) -> None:
    made = {
        "login": {"username": LOGIN[0].encode(), "password": LOGIN[1].encode()},
        "definitions": {"definitions.json": json.dumps(definitions()).encode()},
    }
    for name, data in made.items():
        encoded = {key: base64.b64encode(octets).decode() for key, octets in data.items()}
        cluster.core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": name}, "data": encoded})


def definitions() -> dict[str, Any]:
    """A vhost with a queue in it, and who may use it: as RabbitMQ exports them."""
    digest = hashlib.sha256(_SALT + CLIENT[1].encode()).digest()
    return {
        "vhosts": [{"name": VHOST}],
        "users": [
            {
                "name": CLIENT[0],
                "password_hash": base64.b64encode(_SALT + digest).decode(),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": [],
            }
        ],
        "permissions": [{"user": CLIENT[0], "vhost": VHOST, "configure": "", "write": ".*", "read": ".*"}],
        "queues": [{"name": QUEUE, "vhost": VHOST, "durable": True, "auto_delete": False, "arguments": {}}],
    }


def _check(cluster: Cluster) -> None:
    """The client of the definitions has its queue, through TLS and in no other way."""
    import pika
    import pika.exceptions

    connection = connect(cluster, CLIENT, SERVICE, 5672, VHOST)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", QUEUE, b"through TLS", mandatory=True)
    assert channel.basic_get(QUEUE, auto_ack=True)[2] == b"through TLS"
    connection.close()
    plain = pika.ConnectionParameters(
        cluster.address(SERVICE), 5672, VHOST, pika.PlainCredentials(*CLIENT), socket_timeout=5
    )
    try:
        pika.BlockingConnection(plain)
    except pika.exceptions.AMQPConnectionError:
        pass
    else:
        raise AssertionError("the port of clients takes plain text")
