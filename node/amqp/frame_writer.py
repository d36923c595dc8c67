"""Builds the frames that a busy connection sends: deliveries and confirms.  HOT.

Bodies are passed on as the objects they are; only a body larger than a frame is cut.
"""

import struct
from typing import Final

from mayfly.node.amqp.content import Content

FRAME_OVERHEAD_BYTES: Final = 8

_METHOD_FRAME: Final = struct.Struct(">BHII")
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_END_AND_FRAME: Final = struct.Struct(">BBHI")
_CONFIRM_FRAME: Final = struct.Struct(">BHIIQBB")
_MESSAGE_COUNT: Final = struct.Struct(">I")
_CODE: Final = struct.Struct(">H")
_DELIVER_METHOD: Final = 0x003C003C
_GET_OK_METHOD: Final = 0x003C0047
_RETURN_METHOD: Final = 0x003C0032
_ACK_METHOD: Final = 0x003C0050
_NACK_METHOD: Final = 0x003C0078
_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_FRAME_END: Final = 0xCE
_END: Final = b"\xce"


def append_deliveries(
    output: list[bytes],
    channel_id: int,
    consumer_tag: bytes,
    deliveries: list[tuple[int, bool, Content]],
    frame_max_bytes: int,
) -> int:
    """basic.deliver with content for each (delivery tag, redelivered, content); the octets appended."""
    largest_body = frame_max_bytes - FRAME_OVERHEAD_BYTES
    pack_tag = _TAG_AND_FLAG.pack
    pack_frame = _END_AND_FRAME.pack
    tag_string = b"%c%b" % (len(consumer_tag), consumer_tag)
    # The method index, two length octets (counted in the names) and what does not change.
    fixed_bytes = 4 + len(tag_string) + 9
    names_bytes = header_bytes = body_bytes = -1
    method_begin = header_begin = body_begin = b""
    total = 0
    for delivery_tag, redelivered, content in deliveries:
        names = content.exchange_and_key
        header = content.header
        body = content.body
        # Messages of a queue resemble each other: what depends on a length alone is seldom packed anew.
        if len(names) != names_bytes:
            names_bytes = len(names)
            size = fixed_bytes + names_bytes
            method_begin = _METHOD_FRAME.pack(_METHOD, channel_id, size, _DELIVER_METHOD) + tag_string
        if len(header) != header_bytes:
            header_bytes = len(header)
            header_begin = pack_frame(_FRAME_END, _HEADER, channel_id, header_bytes)
        if len(body) != body_bytes:
            body_bytes = len(body)
            body_begin = pack_frame(_FRAME_END, _BODY, channel_id, body_bytes)
        if 0 < body_bytes <= largest_body:
            head = b"%b%b%b%b%b%b" % (
                method_begin,
                pack_tag(delivery_tag, redelivered),
                names,
                header_begin,
                header,
                body_begin,
            )
            output.append(head)
            output.append(body)
            output.append(_END)
            total += len(head) + body_bytes + 1
        else:
            head = b"%b%b%b%b%b\xce" % (
                method_begin,
                pack_tag(delivery_tag, redelivered),
                names,
                header_begin,
                header,
            )
            output.append(head)
            total += len(head) + append_body(output, channel_id, body, frame_max_bytes)
    return total


def append_body(output: list[bytes], channel_id: int, body: bytes, frame_max_bytes: int) -> int:
    """Body frames for a body of any size; none for an empty one.  The octets appended."""
    largest = frame_max_bytes - FRAME_OVERHEAD_BYTES
    size = len(body)
    total = 0
    for start in range(0, size, largest):
        piece = body if size <= largest else body[start : start + largest]
        output.append(_END_AND_FRAME.pack(_FRAME_END, _BODY, channel_id, len(piece))[1:])
        output.append(piece)
        output.append(_END)
        total += len(piece) + FRAME_OVERHEAD_BYTES
    return total


def _append_content(
    output: list[bytes],
    channel_id: int,
    method: int,
    arguments: bytes,
    content: Content,
    frame_max_bytes: int,
) -> int:
    """A method with content, of which the arguments are already encoded."""
    header = content.header
    head = b"%b%b%b%b\xce" % (
        _METHOD_FRAME.pack(_METHOD, channel_id, 4 + len(arguments), method),
        arguments,
        _END_AND_FRAME.pack(_FRAME_END, _HEADER, channel_id, len(header)),
        header,
    )
    output.append(head)
    return len(head) + append_body(output, channel_id, content.body, frame_max_bytes)


def append_get_ok(
    output: list[bytes],
    channel_id: int,
    delivery_tag: int,
    redelivered: bool,
    content: Content,
    message_count: int,
    frame_max_bytes: int,
) -> int:
    """basic.get-ok with its content; the octets appended."""
    arguments = b"%b%b%b" % (
        _TAG_AND_FLAG.pack(delivery_tag, redelivered),
        content.exchange_and_key,
        _MESSAGE_COUNT.pack(message_count),
    )
    return _append_content(output, channel_id, _GET_OK_METHOD, arguments, content, frame_max_bytes)


def append_return(
    output: list[bytes], channel_id: int, code: int, text: bytes, content: Content, frame_max_bytes: int
) -> int:
    """basic.return with its content; the octets appended."""
    arguments = b"%b%c%b%b" % (_CODE.pack(code), len(text), text, content.exchange_and_key)
    return _append_content(output, channel_id, _RETURN_METHOD, arguments, content, frame_max_bytes)


def append_confirms(
    output: list[bytes], channel_id: int, confirms: list[tuple[int, bool]], nack: bool
) -> int:
    """basic.ack or basic.nack for each (delivery tag, multiple), in one piece; the octets appended."""
    method = _NACK_METHOD if nack else _ACK_METHOD
    pack = _CONFIRM_FRAME.pack
    frames = [pack(_METHOD, channel_id, 13, method, tag, multiple, _FRAME_END) for tag, multiple in confirms]
    piece = b"".join(frames)
    output.append(piece)
    return len(piece)
