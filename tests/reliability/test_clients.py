"""The simulator's AMQP client on what a real socket does: reads end anywhere."""

import pytest
from pamqp import body, commands, frame, header

from simulation.node.amqp_client import AmqpClient, ReceivedMessage

DELIVERED = b"x" * 1_000


def octets_of_a_broker() -> bytes:
    """From the start of a connection to two deliveries."""
    properties = header.ContentHeader(0, len(DELIVERED), commands.Basic.Properties(message_id="1"))
    parts = [frame.marshal(commands.Connection.Start(0, 9, {}), 0), frame.marshal(commands.Connection.Tune(), 0)]
    parts.append(frame.marshal(commands.Connection.OpenOk(), 0))
    parts += [frame.marshal(commands.Channel.OpenOk(), 1), frame.marshal(commands.Confirm.SelectOk(), 1)]
    for tag in (1, 2):
        parts.append(frame.marshal(commands.Basic.Deliver("tag", tag, tag == 2, "", "queue"), 1))
        parts += [frame.marshal(properties, 1), frame.marshal(body.ContentBody(DELIVERED), 1)]
    return b"".join(parts)


@pytest.mark.parametrize("step", [1, 3, 7, 8, 100, 1_000, 1 << 20])
def test_it_does_not_matter_where_a_read_ends(step: int) -> None:
    octets = octets_of_a_broker()
    messages: list[ReceivedMessage] = []
    client = AmqpClient(lambda sent: None, lambda answer: None, lambda error: None)
    client.on_message = messages.append
    for start in range(0, len(octets), step):
        client.receive(octets[start : start + step])
    assert client.ready
    assert [(message.delivery_tag, message.redelivered) for message in messages] == [(1, False), (2, True)]
    assert all(message.body == DELIVERED for message in messages)
