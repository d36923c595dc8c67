"""Method frames to and from pamqp's method objects.

The objects and their argument types are pamqp's; the octets are walked here, because pamqp takes time
quadratic in the size of a table (a second for one frame of 128 KB), lets short strings run past the end of
a frame, reads delivery tags as signed, and refuses to send names that RabbitMQ's clients may use.
"""

import struct
from typing import Any, Final, TypeVar

from pamqp import commands, encode
from pamqp.base import Frame

from mayfly.node.amqp.errors import COMMAND_INVALID, FRAME_ERROR, SYNTAX_ERROR, ProtocolError
from mayfly.node.amqp.field_table import FieldTable, MalformedTableError, check_table, table_to_python

Method = TypeVar("Method", bound=Frame)

_LARGEST_LONGLONG: Final = (1 << 64) - 1
_NUMBER_SIZES: Final[dict[str, int]] = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
_METHODS: Final[dict[int, type[Frame]]] = dict(commands.INDEX_MAPPING)
_LAYOUTS: Final[dict[int, list[tuple[str, str]]]] = {
    index: [(name, method.amqp_type(name)) for name in method.attributes()]
    for index, method in _METHODS.items()
}
_INDEX: Final = struct.Struct(">I")
_METHOD_FRAME: Final = struct.Struct(">BHII")


def method_ids(payload: bytes) -> tuple[int, int]:
    """Class id and method id of a method frame's payload of four octets or more."""
    index: int = _INDEX.unpack_from(payload)[0]
    return index >> 16, index & 0xFFFF


def decode_method(payload: bytes) -> tuple[Frame, bytes]:
    """The method in a method frame's payload, and its field table as on the wire (b"" if it has none).

    Raises ProtocolError: COMMAND_INVALID for a method that AMQP 0-9-1 does not have, SYNTAX_ERROR for
    arguments that do not fill the frame exactly, FRAME_ERROR for names that are not UTF-8.
    """
    return _decode(payload, True)


def decode_method_without_table(payload: bytes) -> tuple[Frame, bytes]:
    """`decode_method`, but the method's field table is checked and left as it is on the wire; in the method it is {}.

    As dicts and numbers a table takes up to twenty times its octets, and a method may have to wait: it is to be decoded
    when its turn comes (`field_table.table_to_python`)."""
    return _decode(payload, False)


def _decode(payload: bytes, with_table: bool) -> tuple[Frame, bytes]:
    if len(payload) < 4:
        raise ProtocolError(FRAME_ERROR, "a method frame without a method")
    index: int = _INDEX.unpack_from(payload)[0]
    class_id, method_id = index >> 16, index & 0xFFFF
    method_class = _METHODS.get(index)
    if method_class is None:
        raise ProtocolError(COMMAND_INVALID, "unimplemented method", class_id, method_id)
    method = method_class.__new__(method_class)
    try:
        table = _decode_arguments(payload, _LAYOUTS[index], method, with_table)
    except UnicodeDecodeError as malformed:
        raise ProtocolError(FRAME_ERROR, "Malformed UTF-8 in shortstr", class_id, method_id) from malformed
    except (IndexError, MalformedTableError) as error:
        raise ProtocolError(
            SYNTAX_ERROR, f"malformed arguments of {method.name}", class_id, method_id
        ) from error
    return method, table


def _decode_arguments(payload: bytes, layout: list[tuple[str, str]], method: Frame, with_table: bool) -> bytes:
    """Set the arguments; the field table's octets.  IndexError if they do not fill the payload exactly."""
    at = 4
    end = len(payload)
    bit = 8
    bits = 0
    table = b""
    for name, kind in layout:
        if kind == "bit":
            if bit == 8:
                bits = payload[at]
                at += 1
                bit = 0
            setattr(method, name, bits >> bit & 1 == 1)
            bit += 1
            continue
        bit = 8
        size = _NUMBER_SIZES.get(kind, 0)
        start = at
        if size:
            at += size
        elif kind == "shortstr":
            start += 1
            at = start + payload[at]
        else:
            start += 4
            at = start + int.from_bytes(payload[at:start], "big")
        if at > end:
            raise IndexError
        value: object
        if size:
            value = int.from_bytes(payload[start:at], "big")
        elif kind == "shortstr":
            value = payload[start:at].decode("utf-8")
        elif kind == "table":
            check_table(payload, start, at)
            table = payload[start - 4 : at]
            value = table_to_python(table) if with_table else {}
        else:
            value = _text_or_octets(payload[start:at])
        setattr(method, name, value)
    if at != end:
        raise IndexError
    return table


def _text_or_octets(octets: bytes) -> str | bytes:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return octets


def long_string(method: Frame, name: str) -> str | bytes:
    """An argument of the type longstr: octets if it is not UTF-8, though pamqp declares them all as text."""
    value: str | bytes = getattr(method, name)
    return value


def unchecked(method_class: type[Method], **arguments: Any) -> Method:
    """A method with these arguments, all of them given, without pamqp's rules on the characters of names.

    RabbitMQ takes any UTF-8 as the name of a queue or exchange; pamqp's constructors do not.
    """
    method = method_class.__new__(method_class)
    for name in method.attributes():
        setattr(method, name, arguments.pop(name))
    if arguments:
        raise TypeError(f"{method.name} has no argument {next(iter(arguments))!r}")
    return method


def method_frame(channel_id: int, method: Frame) -> bytes:
    """A whole method frame. A table may be a dict, or a FieldTable, which says the types of its values. TypeError if an
    argument has not the type it needs."""
    parts: list[bytes] = []
    bit = 8
    bits = 0
    for name, kind in _LAYOUTS[method.index]:
        if kind == "bit":
            if bit == 8:
                bit = bits = 0
                parts.append(b"")
            bits |= bool(getattr(method, name)) << bit
            parts[-1] = bits.to_bytes(1, "big")
            bit += 1
            continue
        bit = 8
        value = getattr(method, name)
        if kind == "longstr" and isinstance(value, bytes):
            parts.append(_INDEX.pack(len(value)) + value)
        elif isinstance(value, FieldTable):
            parts.append(value.encode())
        elif kind == "longlong":
            # Unsigned (AMQP 4.2.5.2), as it was read; pamqp writes signed ones.
            if not isinstance(value, int) or not 0 <= value <= _LARGEST_LONGLONG:
                raise TypeError(f"{method.name} {name}: {value!r}, where 0 to {_LARGEST_LONGLONG} can be written")
            parts.append(value.to_bytes(8, "big"))
        else:
            parts.append(encode.by_type(value, kind))
    arguments = b"".join(parts)
    return _METHOD_FRAME.pack(1, channel_id, 4 + len(arguments), method.index) + arguments + b"\xce"
