"""A release whose login, definitions and certificates come from secrets that were there before: it serves with them."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any, Final

RELEASE: Final = "safe"
SERVICE: Final = f"{RELEASE}-mayfly"
LOGIN: Final = ("operator", "from a secret")
CLIENT: Final = ("client", "from definitions")
VHOST: Final = "orders"
QUEUE: Final = "new"
_SALT: Final = b"salt"


def values() -> dict[str, Any]:
    """Of the chart. Nothing is kept: the volumes are of the first release."""
    return {
        "auth": {"existingSecret": "login"},
        "loadDefinition": {"enabled": True, "existingSecret": "definitions"},
        "tls": {
            "enabled": True,
            "existingSecret": "client-tls",
            "peers": {"enabled": True, "existingSecret": "peer-tls"},
        },
        "persistence": {"enabled": False},
    }


def make_secrets(core: Any, namespace: str, folder: Path) -> Path:
    """All of them; the authority's certificate, for clients."""
    from node.command_line.certificate_authority import issue, make_authority

    domain = f"{SERVICE}-headless.{namespace}.svc.cluster.local"
    made = {}
    for name, hosts in (("client-tls", [SERVICE]), ("peer-tls", [f"{SERVICE}-{n}.{domain}" for n in range(3)])):
        make_authority(folder / name, name, 10)
        certificate, key = issue(folder / name, hosts, 10, False)
        made[name] = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}
        made[name]["ca.crt"] = (folder / name / "ca.pem").read_bytes()
    made["login"] = {"username": LOGIN[0].encode(), "password": LOGIN[1].encode()}
    made["definitions"] = {"definitions.json": json.dumps(definitions()).encode()}
    for name, data in made.items():
        encoded = {key: base64.b64encode(octets).decode() for key, octets in data.items()}
        core.create_namespaced_secret(namespace, {"metadata": {"name": name}, "data": encoded})
    return folder / "client-tls" / "ca.pem"


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


def check(address: str, authority: Path) -> None:
    """The client of the definitions has its queue, through TLS and in no other way."""
    import pika
    import pika.exceptions

    context = ssl.create_default_context(cafile=str(authority))
    login = pika.PlainCredentials(*CLIENT)
    encrypted = pika.SSLOptions(context, server_hostname=SERVICE)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(address, 5672, VHOST, login, ssl_options=encrypted)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", QUEUE, b"through TLS", mandatory=True)
    assert channel.basic_get(QUEUE, auto_ack=True)[2] == b"through TLS"
    connection.close()
    try:
        pika.BlockingConnection(pika.ConnectionParameters(address, 5672, VHOST, login, socket_timeout=5))
    except pika.exceptions.AMQPConnectionError:
        pass
    else:
        raise AssertionError("the port of clients takes plain text")
