"""Methods to and from octets, with pamqp as the judge in both directions."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.commands import Basic, Connection, Exchange, Queue

from mayfly.node.amqp.errors import COMMAND_INVALID, FRAME_ERROR, SYNTAX_ERROR, ProtocolError
from mayfly.node.amqp.field_table import FieldTable
from mayfly.node.amqp.methods import decode_method, method_frame, unchecked
from tests.node.amqp.scripted_client import values

_NAME = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=60)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": _NAME,
    "longstr": st.text(max_size=100),
    "table": st.dictionaries(_NAME, st.integers(-(2**31), 2**31 - 1) | _NAME | st.booleans(), max_size=5),
}


def _any_method() -> st.SearchStrategy[Frame]:
    def build(method_class: type[Frame]) -> st.SearchStrategy[Frame]:
        kinds = {name: _BY_TYPE[method_class.amqp_type(name)] for name in method_class.attributes()}
        return st.fixed_dictionaries(kinds).map(lambda arguments: unchecked(method_class, **arguments))

    return st.sampled_from(sorted(commands.INDEX_MAPPING)).flatmap(
        lambda index: build(commands.INDEX_MAPPING[index])
    )


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(_any_method(), st.integers(0, 2**16 - 1))
@settings(max_examples=600, deadline=None)
def test_methods_are_read_and_written_as_pamqp_does(method: Frame, channel_id: int) -> None:
    octets = method_frame(channel_id, method)
    used, channel, by_pamqp = frame.unmarshal(octets)
    assert (used, channel, type(by_pamqp)) == (len(octets), channel_id, type(method))
    decoded, table = decode_method(octets[7:-1])
    assert type(decoded) is type(method)
    assert values(decoded) == values(by_pamqp)
    tables = [name for name in method.attributes() if method.amqp_type(name) == "table"]
    if tables:
        assert FieldTable.of_checked(table).python() == getattr(method, tables[0])
    else:
        assert table == b""


@given(_any_method(), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_methods_are_refused_or_read(method: Frame, data: st.DataObject) -> None:
    payload = bytearray(method_frame(1, method)[7:-1])
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode_method(bytes(payload[: data.draw(st.integers(0, len(payload)))]))


def test_what_pamqp_would_not_notice() -> None:
    """A queue name that runs past the end of its frame, and octets after the last argument."""
    payload = method_frame(1, Queue.Delete(queue="name"))[7:-1]
    longer = payload[:6] + b"\xff" + payload[7:]
    for malformed in (longer, payload + b"\x00", payload[:-1]):
        with pytest.raises(ProtocolError) as caught:
            decode_method(malformed)
        assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (SYNTAX_ERROR, 50, 40)


def test_names_must_be_utf_8() -> None:
    payload = method_frame(1, Queue.Delete(queue="name"))[7:-1]
    with pytest.raises(ProtocolError) as caught:
        decode_method(payload.replace(b"name", b"n\xff\xfee"))
    assert (caught.value.code, caught.value.text) == (FRAME_ERROR, "Malformed UTF-8 in shortstr")


def test_unknown_methods() -> None:
    for class_id, method_id in ((999, 1), (60, 999)):
        with pytest.raises(ProtocolError) as caught:
            decode_method(struct.pack(">HH", class_id, method_id))
        assert (caught.value.code, caught.value.class_id) == (COMMAND_INVALID, class_id)


def test_names_that_pamqp_refuses_to_send() -> None:
    """RabbitMQ allows any UTF-8 in names; the constructors of pamqp do not."""
    with pytest.raises(ValueError):
        Queue.DeclareOk("schl\u00fcssel!", 1, 2)
    method = unchecked(Queue.DeclareOk, queue="schl\u00fcssel!", message_count=1, consumer_count=2)
    decoded, _ = decode_method(method_frame(3, method)[7:-1])
    assert values(decoded) == {"queue": "schl\u00fcssel!", "message_count": 1, "consumer_count": 2}


def test_unchecked_wants_exactly_the_arguments() -> None:
    with pytest.raises(KeyError):
        unchecked(Queue.DeclareOk, queue="q")
    with pytest.raises(TypeError):
        unchecked(Basic.CancelOk, consumer_tag="t", more=1)


def test_delivery_tags_are_unsigned() -> None:
    payload = method_frame(1, Basic.Ack(1))[7:-1]
    decoded, _ = decode_method(payload.replace(b"\x00" * 7 + b"\x01", b"\xff" * 8))
    assert isinstance(decoded, Basic.Ack)
    assert decoded.delivery_tag == 2**64 - 1


def test_delivery_tags_are_written_unsigned() -> None:
    largest = (1 << 64) - 1
    for tag in (0, 1 << 63, largest):
        method, _ = decode_method(method_frame(1, Basic.Ack(tag))[7:-1])
        assert isinstance(method, Basic.Ack) and method.delivery_tag == tag
    for tag in (-1, largest + 1):
        with pytest.raises(TypeError, match=f"delivery_tag: {tag}, where 0 to {largest} can be written"):
            method_frame(1, Basic.Ack(tag))


def test_long_strings_may_be_octets() -> None:
    method = unchecked(Connection.SecureOk, response=b"\xff\x00")
    decoded, _ = decode_method(method_frame(0, method)[7:-1])
    assert isinstance(decoded, Connection.SecureOk)
    assert decoded.response == b"\xff\x00"  # type: ignore[comparison-overlap]


def test_deprecated_methods_warn_nobody(recwarn: pytest.WarningsRecorder) -> None:
    """pamqp's constructors warn of some methods; what a client sends is not for our log."""
    for method in (unchecked(Basic.RecoverAsync, requeue=True), Exchange.Unbind(destination="a", source="b")):
        decode_method(method_frame(1, method)[7:-1])
    assert not recwarn.list
