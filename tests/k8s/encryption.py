"""TLS in a cluster that runs without: towards clients with no stop, between nodes with a short one."""

from __future__ import annotations

import base64
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

from tests.k8s.cluster import MOST, NAMESPACE, SET, Cluster, is_ready
from tests.k8s.release import Release, delete_pod

AMQPS: Final = 5671
PEERS: Final = 25672
GRACE_S: Final = 5
"""What pods get that are deleted because their nodes have to stop together: they wait for nobody."""


def make_certificates(cluster: Cluster, service: str) -> None:
    """Secrets SERVICE-clients and SERVICE-peers, each with an authority of its own."""
    from mayfly.node.command_line.certificate_authority import issue, make_authority

    domain = f"{service}-headless.{NAMESPACE}.svc.cluster.local"
    hosts = {"clients": [service], "peers": [f"{service}-{number}.{domain}" for number in range(MOST)]}
    for whose, names in hosts.items():
        folder = authority_of(cluster, service, whose).parent
        make_authority(folder, whose, 10)
        certificate, key = issue(folder, names, 10, False)
        files = {"tls.crt": certificate, "tls.key": key, "ca.crt": authority_of(cluster, service, whose)}
        data = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        cluster.core.create_namespaced_secret(
            NAMESPACE, {"metadata": {"name": f"{service}-{whose}"}, "data": data}
        )


def authority_of(cluster: Cluster, service: str, whose: str) -> Path:
    """The file with which certificates of such a secret are checked."""
    return cluster.folder / f"{service}-{whose}" / "ca.pem"


def clients_beside(release: Release) -> str:
    """A port for TLS beside the plain one: clients may change over when they like."""
    cluster = release.cluster
    make_certificates(cluster, SET)
    tls = {"enabled": True, "existingSecret": f"{SET}-clients", "listen": "beside"}
    seen = release.roll(lambda: release.upgrade({"tls": tls, "rbac": {"create": True}}))
    goes_round(cluster, release.login, SET, AMQPS)
    return f"{seen}; a client came and went through TLS, all others plain as before"


def clients_only(release: Release) -> str:
    """The plain port is closed when nobody needs it any more."""
    cluster = release.cluster
    before = cluster.ids()
    release.upgrade({"tls": {**release.values["tls"], "listen": "only"}})
    release.until_replaced(before)
    goes_round(cluster, release.login, SET, AMQPS)
    return "a client came and went through TLS; the plain port is in no service"


def between_nodes(release: Release) -> str:
    """The upgrade stands still at its first pod, which finds nobody; the others are told to stop together, and all come
    back with TLS."""
    cluster = release.cluster
    first = _until_first_waits(release)
    before = cluster.ids()
    began_s = time.monotonic()
    for name in before:
        if name != first:
            delete_pod(release, name, GRACE_S)
    release.until(lambda: release.kept(before) == 1, "other pods")
    release.until_ready(len(before))
    stop_s = time.monotonic() - began_s
    for pod in cluster.pods():
        _speaks_tls(pod.status.pod_ip, authority_of(cluster, SET, "peers"))
    return f"it stopped at {first}, two went on serving; those were deleted, and all were ready {stop_s:.0f} s later"


def not_between_nodes(release: Release) -> str:
    """The same upgrade, taken back while its first pod waits."""
    there = release.values
    before = release.cluster.ids()
    first = _until_first_waits(release)
    began_s = time.monotonic()
    release.roll_back()
    release.values = there
    release.until_ready(len(before))
    assert release.kept(before) == len(before) - 1, f"{release.kept(before)} pods were left alone"
    back_s = time.monotonic() - began_s
    return f"it stopped at {first}, two went on serving; the rollback had that one ready {back_s:.0f} s later"


def _until_first_waits(release: Release) -> str:
    """Upgrade to TLS between nodes, and see that nothing follows the first pod; its name."""
    cluster = release.cluster
    before = cluster.ids()
    first = f"{SET}-{len(before) - 1}"
    release.upgrade({"tls": {**release.values["tls"], "peers": {"enabled": True, "existingSecret": f"{SET}-peers"}}})
    release.until(lambda: cluster.ids().get(first, before[first]) != before[first], f"another {first}")
    release.until(lambda: all(map(_is_running, cluster.pods())), f"{first} that runs")
    time.sleep(20)  # to see that nothing follows
    assert release.kept(before) == len(before) - 1, f"{release.kept(before)} pods were left alone"
    serving = {pod.metadata.name for pod in cluster.pods() if is_ready(pod)}
    assert serving == set(before) - {first}, f"{serving} serve"
    return first


def _is_running(pod: Any) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"


def _speaks_tls(host: str, authority: Path) -> None:
    """Raises if the port of peers there shows no certificate of this authority."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, PEERS), 10) as plain, context.wrap_socket(plain) as secured:
        assert secured.getpeercert()


def goes_round(cluster: Cluster, login: tuple[str, str], service: str, port: int, vhost: str = "/") -> None:
    """A client publishes, with a confirm, and gets it back through TLS."""
    connection = connect(cluster, login, service, port, vhost)
    channel = connection.channel()
    channel.queue_declare("encrypted", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "encrypted", b"through TLS", mandatory=True)
    assert channel.basic_get("encrypted", auto_ack=True)[2] == b"through TLS"
    connection.close()


def connect(cluster: Cluster, login: tuple[str, str], service: str, port: int, vhost: str = "/") -> Any:
    """A connection through TLS, with the certificate checked."""
    import pika

    context = ssl.create_default_context(cafile=str(authority_of(cluster, service, "clients")))
    encrypted = pika.SSLOptions(context, server_hostname=service)
    address, who = cluster.address(service), pika.PlainCredentials(*login)
    return pika.BlockingConnection(pika.ConnectionParameters(address, port, vhost, who, ssl_options=encrypted))
