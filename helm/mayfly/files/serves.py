"""`helm test`: a node is ready, the cluster is whole, the login is an administrator's, and a message that is published
is confirmed and comes back. Arguments: HTTP, AMQP (HOST:PORT each), how many members there are, and with TLS `tls`, or
`tls-with-certificate` where clients have to show one; the login is in the environment.
"""

import base64
import json
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pamqp import commands, exceptions, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader, ProtocolHeader

AUTHORITY = Path(os.environ.get("AUTHORITY", "/etc/mayfly/authority/ca.crt"))
WITHIN_S = 30.0
CHANNEL = 1
BODY = b"helm test"


def page(address: str, path: str, login: str = "") -> Any:
    """A page of a node."""
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    request = urllib.request.Request(f"http://{address}{path}", None, headers)
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{path}: {error}: {error.read().decode(errors='replace')}")


class Client:
    """An AMQP client of one channel."""

    def __init__(self, address: str, encrypted: bool) -> None:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), WITHIN_S)
        self._socket = context().wrap_socket(connection, server_hostname=host) if encrypted else connection
        self._received = b""

    def log_in(self, user: str, password: str) -> None:
        """Until a channel is open."""
        self._socket.sendall(ProtocolHeader(0, 9, 1).marshal())
        self.until("Connection.Start")
        plain = f"\0{user}\0{password}"
        self.send(commands.Connection.StartOk({}, "PLAIN", plain, "en_US"), 0)
        tune = self.until("Connection.Tune")
        self.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0)
        self.send(commands.Connection.Open("/"), 0)
        self.until("Connection.OpenOk")
        self.ask(commands.Channel.Open(), "Channel.OpenOk")

    def send(self, value: Any, channel: int = CHANNEL) -> None:
        """A frame."""
        self._socket.sendall(frame.marshal(value, channel))

    def ask(self, method: Frame, answer: str) -> Any:
        """A method and its answer."""
        self.send(method)
        return self.until(answer)

    def until(self, name: str) -> Any:
        """The next frame, which has to be of that name."""
        while True:
            try:
                octets, _, value = frame.unmarshal(self._received)
            except exceptions.UnmarshalingException:
                octets, value = 0, None
            if octets:
                self._received = self._received[octets:]
                assert getattr(value, "name", "") == name, f"{name} was expected, not {shown(value)}"
                return value
            more = self._socket.recv(65_536)
            assert more, f"{name} was expected, not the end of the connection: a wrong login?"
            self._received += more

    def close(self) -> None:
        """In order."""
        self.send(commands.Connection.Close(200, "", 0, 0), 0)
        self.until("Connection.CloseOk")
        self._socket.close()


def shown(value: Any) -> str:
    """A frame, with the reason if it is a close."""
    return f"{getattr(value, 'name', value)} {getattr(value, 'reply_text', '')}".strip()


def context() -> ssl.SSLContext:
    """Which server is believed: one of the authority, under whatever name clients outside know it."""
    made = ssl.create_default_context()
    made.check_hostname = False
    if AUTHORITY.exists():
        made.load_verify_locations(AUTHORITY)
    else:
        print("the secret has no ca.crt: the certificate is not checked", flush=True)
        made.verify_mode = ssl.CERT_NONE
    return made


def goes_round(address: str, encrypted: bool) -> None:
    """Publish, confirm, get."""
    client = Client(address, encrypted)
    client.log_in(os.environ["MAYFLY_USER"], os.environ["MAYFLY_PASSWORD"])
    client.ask(commands.Confirm.Select(), "Confirm.SelectOk")
    queue = f"helm-test-{os.urandom(8).hex()}"
    arguments = {"x-queue-type": "quorum", "x-expires": 600_000}
    client.ask(commands.Queue.Declare(0, queue, False, True, False, False, False, arguments), "Queue.DeclareOk")
    client.send(commands.Basic.Publish(0, "", queue, True))
    client.send(ContentHeader(0, len(BODY), commands.Basic.Properties(delivery_mode=2)))
    client.send(ContentBody(BODY))
    client.until("Basic.Ack")
    client.ask(commands.Basic.Get(0, queue, True), "Basic.GetOk")
    client.until("ContentHeader")
    assert client.until("ContentBody").value == BODY
    client.ask(commands.Queue.Delete(0, queue), "Queue.DeleteOk")
    client.close()


def main(http: str, amqp: str, members: str, tls: str = "") -> None:
    """Everything; ends with a text if something is not so."""
    ready = page(http, "/health/ready")
    assert ready["status"] == "ready", ready
    rows = [row for row in page(http, "/cluster/members")["members"] if row["state"] == "member"]
    assert [row["up"] for row in rows] == [True] * int(members), f"{members} members that are up were expected: {rows}"
    page(http, "/api/policies", f"{os.environ['MAYFLY_USER']}:{os.environ['MAYFLY_PASSWORD']}")
    if tls == "tls-with-certificate":
        print("clients have to show a certificate, and this one has none: no message was sent", flush=True)
    else:
        goes_round(amqp, bool(tls))
    print("serves:", ", ".join(row["name"] for row in rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
