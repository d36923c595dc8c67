"""What a client may not say, and the code with which that ends its connection or channel: one table.

From AMQP 0-9-1 (section 1.2.1 of the codes, 4.2 of frames) and RabbitMQ's recorded answers, not from the code.
"""

import struct
from typing import Final

from pamqp import commands, frame
from pamqp.commands import Basic, Queue
from pamqp.header import ContentHeader

FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, CHANNEL_ERROR, UNEXPECTED_FRAME = 501, 502, 503, 504, 505
NOT_ALLOWED, NOT_IMPLEMENTED = 530, 540


def raw_frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    """A frame of any kind, well formed or not."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def method(index: int, arguments: bytes = b"") -> bytes:
    """The payload of a method frame."""
    return struct.pack(">I", index) + arguments


def declare(table: bytes) -> bytes:
    """queue.declare of q1, durable, with these octets as its arguments."""
    return method(0x0032000A, b"\0\0\x02q1\x02" + table)


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def nested(depth: int) -> bytes:
    """So many tables, each in the one before."""
    octets = b""
    for _ in range(depth - 1):
        octets = b"\x01kF" + long(octets)
    return long(octets)


def header(size: int, flags: int = 0, properties: bytes = b"", class_id: int = 60, weight: int = 0) -> bytes:
    return struct.pack(">HHQH", class_id, weight, size, flags) + properties


_PUBLISH: Final = b"\x00\x3c\x00\x28\0\0\x00\x02q1\x00"
_LONGEST_FRAME: Final = 131_072

Wrong = tuple[str, int, int, bytes]
"""What it is, type of frame, code, payload."""

ANYWHERE: Final[list[Wrong]] = [
    ("a frame of type 0", 0, FRAME_ERROR, b"x"),
    ("a frame of type 4", 4, FRAME_ERROR, b""),
    ("a frame of type 9", 9, FRAME_ERROR, b"abc"),
    ("a method frame without a method", 1, FRAME_ERROR, b"\0\x3c"),
    ("a heartbeat on a channel", 8, UNEXPECTED_FRAME, b""),
    ("a heartbeat with a payload", 8, FRAME_ERROR, b"x"),
]
"""Wrong in whatever state a channel that is open is in."""

ON_AN_OPEN_CHANNEL: Final[list[Wrong]] = [
    ("a header without a publish", 2, UNEXPECTED_FRAME, header(5)),
    ("a body without a publish", 3, UNEXPECTED_FRAME, b"hello"),
    ("an empty body without a publish", 3, UNEXPECTED_FRAME, b""),
    ("a second open", 1, CHANNEL_ERROR, method(0x0014000A, b"\0")),
    ("a close-ok to nothing", 1, COMMAND_INVALID, method(0x00140029)),
    ("flow-ok to nothing", 1, COMMAND_INVALID, method(0x00140015, b"\x01")),
    ("a stop of the flow", 1, NOT_IMPLEMENTED, method(0x00140014, b"\0")),
    ("a method of the server's", 1, COMMAND_INVALID, method(0x0032000B, b"\x01q" + bytes(8))),
    ("a method of channel 0", 1, COMMAND_INVALID, method(0x000A0028, b"\x01/\0\0")),
    ("an unknown method", 1, COMMAND_INVALID, method(0x003C00FF)),
    ("an unknown class", 1, COMMAND_INVALID, method(0x00630001)),
    ("arguments cut short", 1, SYNTAX_ERROR, method(0x003C0046, b"\0\0\x05q1")),
    ("octets behind the arguments", 1, SYNTAX_ERROR, method(0x003C0046, b"\0\0\x02q1\0\0")),
    ("a publish cut short", 1, SYNTAX_ERROR, _PUBLISH[:-1]),
    ("octets behind a publish", 1, SYNTAX_ERROR, _PUBLISH + b"\0"),
    ("an acknowledgement cut short", 1, SYNTAX_ERROR, method(0x003C0050, bytes(8))),
    ("a name that is no UTF-8", 1, FRAME_ERROR, method(0x003C0046, b"\0\0\x02q\xff\0")),
    ("an exchange that is no UTF-8", 1, FRAME_ERROR, method(0x003C0028, b"\0\0\x01\xff\x02q1\0")),
    ("a table longer than its frame", 1, SYNTAX_ERROR, declare(b"\0\0\0\x05abcd")),
    ("a table of 4 GiB", 1, SYNTAX_ERROR, declare(b"\xff\xff\xff\xff")),
    ("a table that ends in a name", 1, SYNTAX_ERROR, declare(long(b"\x09abc"))),
    ("a table that ends after a name", 1, SYNTAX_ERROR, declare(long(b"\x03abc"))),
    ("a table that ends in a number", 1, SYNTAX_ERROR, declare(long(b"\x01kI\0\0\0"))),
    ("a table that ends in a text", 1, SYNTAX_ERROR, declare(long(b"\x01kS\0\0\0\x04abc"))),
    ("a text of negative length", 1, SYNTAX_ERROR, declare(long(b"\x01kS\xff\xff\xff\xff"))),
    ("a table that ends in a length", 1, SYNTAX_ERROR, declare(long(b"\x01kS\0\0"))),
    ("a value of an unknown type", 1, SYNTAX_ERROR, declare(long(b"\x01kQ\0\0\0\0"))),
    ("a table in a table, longer than that", 1, SYNTAX_ERROR, declare(long(b"\x01kF\0\0\0\x09\x01kV"))),
    ("an array with half a number", 1, SYNTAX_ERROR, declare(long(b"\x01kA\0\0\0\x03I\0\0"))),
    ("an array longer than its table", 1, SYNTAX_ERROR, declare(long(b"\x01kA\0\0\0\x04VVV"))),
    ("very many tables in each other", 1, SYNTAX_ERROR, declare(nested(500))),
]

ASKED_FOR_IN_VAIN: Final[list[Wrong]] = [
    ("a prefetch size", 1, NOT_IMPLEMENTED, method(0x003C000A, b"\0\0\0\x01\0\0\0")),
    ("recover without requeue", 1, NOT_IMPLEMENTED, method(0x003C006E, b"\0")),
]
"""Right frames that ask for what is not there."""

IN_CONTENT: Final[list[Wrong]] = [
    ("a method", 1, UNEXPECTED_FRAME, method(0x003C0046, b"\0\0\x02q1\0")),
    ("another publish", 1, UNEXPECTED_FRAME, _PUBLISH),
    ("an acknowledgement", 1, UNEXPECTED_FRAME, method(0x003C0050, bytes(7) + b"\x01\0")),
    ("an open", 1, UNEXPECTED_FRAME, method(0x0014000A, b"\0")),
    ("a close", 1, UNEXPECTED_FRAME, method(0x00140028, b"\0\xc8\0" + bytes(4))),
    ("a close-ok", 1, UNEXPECTED_FRAME, method(0x00140029)),
    ("flow", 1, UNEXPECTED_FRAME, method(0x00140014, b"\x01")),
]
"""Methods where a header or a body is due, of which the client announced something."""

WHERE_A_HEADER_IS_DUE: Final[list[Wrong]] = [
    *IN_CONTENT,
    ("a body", 3, UNEXPECTED_FRAME, b"hello"),
    ("a header of another class", 2, UNEXPECTED_FRAME, header(5, class_id=50)),
    ("a header with a weight", 2, UNEXPECTED_FRAME, header(5, weight=1)),
    ("a header cut short", 2, FRAME_ERROR, header(5)[:11]),
    ("a header without flags", 2, SYNTAX_ERROR, header(5)[:12]),
    ("a header with half its flags", 2, SYNTAX_ERROR, header(5)[:13]),
    ("a property that is not there", 2, SYNTAX_ERROR, header(5, 0x8000)),
    ("a property cut short", 2, SYNTAX_ERROR, header(5, 0x8000, b"\x05text")),
    ("a time cut short", 2, SYNTAX_ERROR, header(5, 0x0040, bytes(7))),
    ("octets behind the properties", 2, SYNTAX_ERROR, header(5, 0x8000, b"\x04text\0")),
    ("properties without flags", 2, SYNTAX_ERROR, header(5, 0, b"\x04text")),
    ("headers longer than the frame", 2, SYNTAX_ERROR, header(5, 0x2000, b"\0\0\0\x05abcd")),
    ("headers that end in a value", 2, SYNTAX_ERROR, header(5, 0x2000, long(b"\x01kI\0\0"))),
    ("headers of an unknown type", 2, SYNTAX_ERROR, header(5, 0x2000, long(b"\x01kQ"))),
    ("headers with very many tables", 2, SYNTAX_ERROR, header(5, 0x2000, nested(500))),
    ("more flags", 2, SYNTAX_ERROR, header(5, 0x0001, b"\0\0")),
]

WHERE_A_BODY_IS_DUE: Final[list[Wrong]] = [
    *IN_CONTENT,
    ("a header", 2, UNEXPECTED_FRAME, header(5)),
    ("a body of one octet too many", 3, UNEXPECTED_FRAME, b"abcdef"),
    ("a much longer body", 3, UNEXPECTED_FRAME, b"x" * 4_000),
]
"""After the header of a message of five octets."""

ON_A_CLOSED_CHANNEL: Final[list[Wrong]] = [
    ("a method", 1, CHANNEL_ERROR, method(0x003C0046, b"\0\0\x02q1\0")),
    ("a publish", 1, CHANNEL_ERROR, _PUBLISH),
    ("an acknowledgement", 1, CHANNEL_ERROR, method(0x003C0050, bytes(7) + b"\x01\0")),
    ("a close", 1, CHANNEL_ERROR, method(0x00140028, b"\0\xc8\0" + bytes(4))),
    ("a close-ok", 1, CHANNEL_ERROR, method(0x00140029)),
    ("flow", 1, CHANNEL_ERROR, method(0x00140014, b"\x01")),
    ("a header", 2, UNEXPECTED_FRAME, header(5)),
    ("a body", 3, UNEXPECTED_FRAME, b"hello"),
]

ON_CHANNEL_0: Final[list[Wrong]] = [
    ("a header", 2, UNEXPECTED_FRAME, header(5)),
    ("a body", 3, UNEXPECTED_FRAME, b"hello"),
    ("start-ok again", 1, CHANNEL_ERROR, frame.marshal(commands.Connection.StartOk({}, "PLAIN", "x"), 0)[7:-1]),
    ("tune-ok again", 1, CHANNEL_ERROR, method(0x000A001F, b"\x07\xff\0\x02\0\0\0\0")),
    ("open again", 1, CHANNEL_ERROR, method(0x000A0028, b"\x01/\0\0")),
    ("close-ok to nothing", 1, CHANNEL_ERROR, method(0x000A0033)),
    ("a method of channels", 1, CHANNEL_ERROR, method(0x003C0046, b"\0\0\x02q1\0")),
    ("an open of channel 0", 1, CHANNEL_ERROR, method(0x0014000A, b"\0")),
    ("a close cut short", 1, SYNTAX_ERROR, method(0x000A0032, b"\0\xc8\x05bye")),
    ("a heartbeat with a payload", 8, FRAME_ERROR, b"x"),
    ("a frame of type 7", 7, FRAME_ERROR, b"x"),
]


def beyond_its_bounds(channel: int) -> list[tuple[str, bytes]]:
    """Frames whose end can't be trusted: 501, and nothing behind them is read."""
    return [
        ("an end that is none", raw_frame(1, channel, method(0x003C0046, b"\0\0\x02q1\0"), 0xCD)),
        ("a publish with another end", raw_frame(1, channel, _PUBLISH, 0x00)),
        ("an acknowledgement with another end", raw_frame(1, channel, method(0x003C0050, bytes(9)), 0xFF)),
        ("a heartbeat with another end", raw_frame(8, 0, b"", 0xCF)),
        ("a frame that is too long", struct.pack(">BHI", 1, channel, _LONGEST_FRAME + 1) + b"abc"),
        ("a body of 4 GiB", struct.pack(">BHI", 3, channel, 0xFFFFFFFF) + b"abc"),
    ]


def a_message(channel: int, body: bytes = b"never") -> bytes:
    """A whole publish to q1."""
    return b"".join(
        [
            frame.marshal(Basic.Publish(routing_key="q1"), channel),
            frame.marshal(ContentHeader(body_size=len(body)), channel),
            raw_frame(3, channel, body),
        ]
    )


def wrong_contents(channel: int) -> list[tuple[str, int, bytes]]:
    """(what, code, octets): a publish to q1 with all that belongs to it, of which one thing is wrong."""
    publish, body = frame.marshal(Basic.Publish(routing_key="q1"), channel), raw_frame(3, channel, b"never")
    right, other_class = raw_frame(2, channel, header(5)), raw_frame(2, channel, header(5, class_id=50))
    return [
        ("a content of another class", UNEXPECTED_FRAME, publish + other_class + body),
        ("a content with a weight", UNEXPECTED_FRAME, publish + raw_frame(2, channel, header(5, weight=1)) + body),
        ("a content with two headers", UNEXPECTED_FRAME, publish + right + right + body),
        ("a content without its header", UNEXPECTED_FRAME, publish + body),
        ("a content of one octet too many", UNEXPECTED_FRAME, publish + right + raw_frame(3, channel, b"never!")),
    ]


def behind(channel: int) -> list[bytes]:
    """What a client may say before it has seen that the server closes the channel: ignored."""
    return [
        a_message(channel),
        frame.marshal(Queue.Declare(queue="never", durable=True), channel),
        frame.marshal(Queue.Purge(queue="q1"), channel),
        frame.marshal(Basic.Get(queue="q1", no_ack=True), channel),
        frame.marshal(Basic.Ack(0, True), channel),
        frame.marshal(Basic.Consume(queue="q1", no_ack=True), channel),
        frame.marshal(commands.Confirm.Select(), channel),
        frame.marshal(commands.Tx.Commit(), channel),
    ]


def passed_over(channel: int) -> list[bytes]:
    """What is ignored on a channel that the server has closed, until its close-ok."""
    return [
        *behind(channel),
        frame.marshal(Basic.Publish(routing_key="q1"), channel),
        raw_frame(2, channel, header(5)),
        raw_frame(3, channel, b"never"),
        frame.marshal(commands.Channel.Open(), channel),
        frame.marshal(Basic.Publish(routing_key="q1"), channel) + frame.marshal(Basic.Get(queue="q1"), channel),
    ]
