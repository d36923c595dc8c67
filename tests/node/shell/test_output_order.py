"""In a turn that brings both, a consumer is given its message before the publisher its confirm.

So acknowledgements are on their way before what is published next: consumers that have room keep up with publishers.
"""

import pytest
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mayfly.node.shell.listener import ClientProtocol
from tests.node.broker.direct_node import DirectNode
from tests.node.broker.raw_client import Client, protocol_of


@pytest.mark.parametrize("consumer_first", [False, True])
def test_deliveries_are_written_before_confirms(monkeypatch: pytest.MonkeyPatch, consumer_first: bool) -> None:
    written: list[ClientProtocol] = []
    flush = ClientProtocol.flush

    def noting(self: ClientProtocol) -> None:
        before = self._given_bytes
        flush(self)
        if self._given_bytes > before:
            written.append(self)

    with DirectNode() as node:
        clients = [Client(node), Client(node)]
        consumer, publisher = clients if consumer_first else reversed(clients)
        publisher.send(1, commands.Queue.Declare(queue="q"), commands.Confirm.Select())
        while not isinstance(publisher.read(), commands.Confirm.SelectOk):
            pass
        consumer.send(1, commands.Basic.Consume(queue="q", no_ack=True))
        while not isinstance(consumer.read(), commands.Basic.ConsumeOk):
            pass
        monkeypatch.setattr(ClientProtocol, "flush", noting)
        method = frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
        publish = method + frame.marshal(ContentHeader(body_size=1), 1) + frame.marshal(ContentBody(b"x"), 1)
        for _ in range(20):
            publisher.socket.sendall(publish)
            while not isinstance(publisher.read(), commands.Basic.Ack):
                pass
            while not isinstance(consumer.read(), ContentBody):
                pass
        own = {protocol_of(consumer): "message", protocol_of(publisher): "confirm"}
        for client in clients:
            client.socket.close()
    assert [own[protocol] for protocol in written] == ["message", "confirm"] * 20
