"""Exchanges, queues, bindings and messages over HTTP: the `TopologyPort`.

Reading is done in the catalog here, brought up to date at the login; what changes something is done as an AMQP client
does it (`node.operating.acting`).
"""

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec
from pamqp import commands
from pamqp.base import Frame

from mayfly.node.amqp import errors
from mayfly.node.amqp.field_table import FieldTable
from mayfly.node.amqp.methods import unchecked
from mayfly.node.broker.inner_client import Received
from mayfly.node.catalog import BindingRecord, Catalog, ExchangeRecord
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.acting import Acting, ActingClient, AmqpRefusal
from mayfly.node.operating.definitions.names import checked_name
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such
from mayfly.node.operating.ports.topology import Body, Path
from mayfly.node.operating.views.json_tables import content_header, field_table, shown_properties

DEFAULT_EXCHANGE: Final = "amq.default"
_ALIVENESS_QUEUE: Final = "aliveness-test"
_MOST_MESSAGES: Final = 10_000
"""That one request gets."""
_MOST_GOT_BYTES: Final = 64 * 1024 * 1024
"""Behind the message with which there are as many no further one is got."""
_HASH_BYTES: Final = 16
_ACK_MODES: Final = {
    "ack_requeue_true": (False, None),
    "ack_requeue_false": (True, None),
    "reject_requeue_true": (False, True),
    "reject_requeue_false": (False, False),
}
"""By name: whether a message is gone once it was got; and else whether it is rejected with or without going back, None:
it is held until all were got, and goes back then."""

Row = dict[str, Any]


class Topology:
    """Implements `TopologyPort`."""

    def __init__(self, catalog: Catalog, acting: Acting) -> None:
        self._catalog = catalog
        self._acting = acting

    # -- exchanges --------------------------------------------------------------------

    def exchanges(self, vhosts: Iterable[str]) -> list[Row]:
        """See `TopologyPort.exchanges`."""
        return [_shown_exchange(it) for vhost in vhosts for it in self._catalog.exchanges(vhost)]

    def exchange(self, vhost: str, name: str) -> Row | None:
        """See `TopologyPort.exchange`."""
        record = self._catalog.exchange(vhost, _real_name(name))
        return None if record is None else _shown_exchange(record)

    async def put_exchange(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """See `TopologyPort.put_exchange`."""
        vhost, name = at["vhost"], _checked_name(_real_name(at["name"]))
        kind = content.get("type", "direct")
        if not isinstance(kind, str):
            raise ValueError("type takes a string")
        existed = self._catalog.exchange(vhost, name) is not None
        declare = unchecked(
            commands.Exchange.Declare, ticket=0, exchange=name, exchange_type=kind, passive=False,
            durable=_boolean(content, "durable"), auto_delete=_boolean(content, "auto_delete"),
            internal=_boolean(content, "internal"), nowait=False, arguments=_arguments(content),
        )  # fmt: skip
        return await self._done(existed, self._acting.ask(user, vhost, declare, commands.Exchange.DeclareOk))

    async def delete_exchange(self, user: AnyUser, at: Path, if_unused: bool) -> Answer:
        """See `TopologyPort.delete_exchange`."""
        vhost, name = at["vhost"], _real_name(at["name"])
        if self._catalog.exchange(vhost, name) is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        delete = unchecked(commands.Exchange.Delete, ticket=0, exchange=name, if_unused=if_unused, nowait=False)
        return await self._done(True, self._acting.ask(user, vhost, delete, commands.Exchange.DeleteOk))

    # -- bindings ---------------------------------------------------------------------

    def bindings(self, vhosts: Iterable[str]) -> list[Row]:
        """See `TopologyPort.bindings`."""
        return [_shown_binding(it) for vhost in vhosts for it in self._bindings(vhost)]

    def bindings_of_queue(self, vhost: str, queue: str) -> list[Row] | None:
        """See `TopologyPort.bindings_of_queue`."""
        if self._catalog.queue(vhost, queue) is None:
            return None
        return [_shown_binding(it) for it in self._bindings_to(vhost, "queue", queue)]

    def bindings_of_exchange(self, vhost: str, exchange: str, as_source: bool) -> list[Row] | None:
        """See `TopologyPort.bindings_of_exchange`."""
        name = _real_name(exchange)
        if self._catalog.exchange(vhost, name) is None:
            return None
        if as_source:
            return [_shown_binding(it) for it in self._bindings(vhost) if it.source == name]
        return [_shown_binding(it) for it in self._bindings_to(vhost, "exchange", name)]

    def bindings_between(self, at: Path) -> list[Row] | None:
        """See `TopologyPort.bindings_between`."""
        vhost, source, kind, destination = _ends(at)
        there = self._catalog.queue if kind == "queue" else self._catalog.exchange
        if self._catalog.exchange(vhost, source) is None or there(vhost, destination) is None:
            return None
        return [_shown_binding(it) for it in self._bindings_to(vhost, kind, destination) if it.source == source]

    def binding(self, at: Path) -> Row | None:
        """See `TopologyPort.binding`."""
        rows = self.bindings_between(at)
        return next((row for row in rows or () if row["properties_key"] == at["properties_key"]), None)

    def _bindings(self, vhost: str) -> Iterator[BindingRecord]:
        """With those that every queue has from the default exchange."""
        for queue in self._catalog.queues(vhost):
            yield BindingRecord(vhost, "", "queue", queue.name, queue.name)
        yield from self._catalog.bindings(vhost)

    def _bindings_to(self, vhost: str, kind: str, destination: str) -> Iterator[BindingRecord]:
        """Those of the catalog that end there, behind the one from the default exchange."""
        if kind == "queue":
            yield BindingRecord(vhost, "", "queue", destination, destination)
        for record in self._catalog.bindings(vhost):
            if record.destination == destination and record.destination_kind == kind:
                yield record

    async def bind(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """See `TopologyPort.bind`."""
        key = content.get("routing_key", "")
        if not isinstance(key, str):
            raise ValueError("routing_key takes a string")
        vhost, source, kind, destination = _ends(at)
        arguments = _arguments(content)
        made = _binding_method(kind, commands.Queue.Bind, commands.Exchange.Bind, source, destination, key, arguments)
        status, answer = await self._done(
            False, self._acting.ask(user, vhost, made, commands.Queue.BindOk, commands.Exchange.BindOk)
        )
        if status == HTTPStatus.CREATED:
            answer = {"properties_key": _properties_key(key, content.get("arguments") or {})}
        return status, answer

    async def unbind(self, user: AnyUser, at: Path) -> Answer:
        """See `TopologyPort.unbind`."""
        row = self.binding(at)
        if row is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        vhost, source, kind, destination = _ends(at)
        arguments = field_table(row["arguments"])
        undone = _binding_method(
            kind, commands.Queue.Unbind, commands.Exchange.Unbind, source, destination, row["routing_key"], arguments
        )
        return await self._done(
            True, self._acting.ask(user, vhost, undone, commands.Queue.UnbindOk, commands.Exchange.UnbindOk)
        )

    # -- queues -----------------------------------------------------------------------

    async def put_queue(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """See `TopologyPort.put_queue`."""
        vhost, name = at["vhost"], _checked_name(at["name"])
        existed = self._catalog.queue(vhost, name) is not None
        declare = unchecked(
            commands.Queue.Declare, ticket=0, queue=name, passive=False, durable=_boolean(content, "durable"),
            exclusive=False, auto_delete=_boolean(content, "auto_delete"), nowait=False, arguments=_arguments(content),
        )  # fmt: skip
        return await self._done(existed, self._acting.ask(user, vhost, declare, commands.Queue.DeclareOk))

    async def delete_queue(self, user: AnyUser, at: Path, if_unused: bool, if_empty: bool) -> Answer:
        """See `TopologyPort.delete_queue`."""
        if self._catalog.queue(at["vhost"], at["name"]) is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        delete = unchecked(
            commands.Queue.Delete, ticket=0, queue=at["name"], if_unused=if_unused, if_empty=if_empty, nowait=False
        )
        return await self._done(True, self._acting.ask(user, at["vhost"], delete, commands.Queue.DeleteOk))

    async def purge(self, user: AnyUser, at: Path) -> Answer:
        """See `TopologyPort.purge`."""
        purge = unchecked(commands.Queue.Purge, ticket=0, queue=at["name"], nowait=False)
        return await self._done(True, self._acting.ask(user, at["vhost"], purge, commands.Queue.PurgeOk))

    async def _done(self, existed: bool, asking: Awaitable[Received]) -> Answer:
        """201 for what is new, 204 for what was there; or why it was not done."""
        try:
            await asking
        except AmqpRefusal as refusal:
            return _refused(refusal)
        except TimeoutError:
            return in_doubt()
        return (HTTPStatus.NO_CONTENT if existed else HTTPStatus.CREATED), {}

    # -- messages ---------------------------------------------------------------------

    async def publish(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """See `TopologyPort.publish`."""
        exchange = _real_name(at["name"])
        if self._catalog.exchange(at["vhost"], exchange) is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        key, payload = _given(content, "routing_key"), _given(content, "payload")
        properties = content.get("properties", {})
        if not isinstance(properties, dict | list):
            raise ValueError("properties takes an object")
        body = _octets(payload, _given(content, "payload_encoding"))
        header = content_header(properties if isinstance(properties, dict) else {}, len(body))
        try:
            async with self._acting.client(user, at["vhost"]) as client:
                return await _published(client, exchange, key, header, body)
        except AmqpRefusal as refusal:
            return _refused(refusal, with_code=True)
        except TimeoutError:
            return in_doubt("the message was not confirmed in time: an alarm may block publishers; it may come yet")

    async def get(self, user: AnyUser, at: Path, content: Body) -> tuple[int, Any]:
        """See `TopologyPort.get`."""
        if self._catalog.queue(at["vhost"], at["name"]) is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        mode, count, encoding = _ack_mode(content), _number(content, "count"), _given(content, "encoding")
        if encoding not in ("auto", "base64"):
            raise ValueError("Unsupported encoding. Please use auto or base64.")
        most = None if content.get("truncate") is None else _number(content, "truncate")
        is_gone, requeue = mode
        got: list[Received] = []
        try:
            async with self._acting.client(user, at["vhost"]) as client:
                size_bytes = 0
                while len(got) < count and size_bytes < _MOST_GOT_BYTES:
                    one = unchecked(commands.Basic.Get, ticket=0, queue=at["name"], no_ack=is_gone)
                    received = await client.ask(one, commands.Basic.GetOk, commands.Basic.GetEmpty)
                    if isinstance(received.method, commands.Basic.GetEmpty):
                        break
                    got.append(received)
                    size_bytes += len(received.body)
                if requeue is not None:
                    await _reject(client, got, requeue)
        except AmqpRefusal as refusal:
            return _refused(refusal, with_code=True)
        except TimeoutError:
            return in_doubt("the queue did not answer in time")
        return HTTPStatus.OK, [_shown_message(each, encoding, most) for each in got]

    async def is_alive(self, user: AnyUser, vhost: str) -> Answer:
        """See `TopologyPort.is_alive`."""
        declare = unchecked(
            commands.Queue.Declare, ticket=0, queue=_ALIVENESS_QUEUE, passive=False, durable=False, exclusive=False,
            auto_delete=False, nowait=False, arguments={},
        )  # fmt: skip
        get = unchecked(commands.Basic.Get, ticket=0, queue=_ALIVENESS_QUEUE, no_ack=True)
        body = b"test_message"
        try:
            async with self._acting.client(user, vhost) as client:
                await client.ask(declare, commands.Queue.DeclareOk)
                await _published(client, "", _ALIVENESS_QUEUE, content_header({}, len(body)), body)
                await client.ask(get, commands.Basic.GetOk)
        except AmqpRefusal as refusal:
            return _refused(refusal)
        except TimeoutError:
            return in_doubt("declaring a queue, publishing and getting a message took too long")
        return HTTPStatus.OK, {"status": "ok"}


async def _published(client: ActingClient, exchange: str, key: str, header: bytes, body: bytes) -> Answer:
    await client.ask(unchecked(commands.Confirm.Select, nowait=False), commands.Confirm.SelectOk)
    publish = unchecked(
        commands.Basic.Publish, ticket=0, exchange=exchange, routing_key=key, mandatory=True, immediate=False
    )
    client.publish(publish, header, body)
    outcomes = (commands.Basic.Return, commands.Basic.Ack, commands.Basic.Nack)
    received = await client.answer(*outcomes)
    if isinstance(received.method, commands.Basic.Nack):
        return bad_request("rejected Unable to publish message. Check queue limits.")
    is_routed = not isinstance(received.method, commands.Basic.Return)
    return HTTPStatus.OK, {"routed": is_routed}


async def _reject(client: ActingClient, got: list[Received], requeue: bool) -> None:
    """Those that were got, the first of them first; done when this is over."""
    for each in got:
        assert isinstance(each.method, commands.Basic.GetOk)
        client.tell(unchecked(commands.Basic.Reject, delivery_tag=each.method.delivery_tag, requeue=requeue))


# -- what is asked for ---------------------------------------------------------------------------


def _real_name(exchange: str) -> str:
    return "" if exchange == DEFAULT_EXCHANGE else exchange


def _checked_name(name: str) -> str:
    return checked_name(name, "a name") if name else name


def _ends(at: Path) -> tuple[str, str, str, str]:
    """Vhost, source, kind of the destination, and destination. Raises ValueError."""
    if at["kind"] not in ("q", "e"):
        raise ValueError(f"'{at['kind']}' stands for no kind of destination; q and e do")
    kind = "queue" if at["kind"] == "q" else "exchange"
    destination = at["destination"] if kind == "queue" else _real_name(at["destination"])
    return at["vhost"], _real_name(at["source"]), kind, destination


def _binding_method(
    kind: str, of_queue: type[Frame], of_exchange: type[Frame], source: str, destination: str, key: str,
    arguments: FieldTable,
) -> Frame:  # fmt: skip
    same: dict[str, Any] = {"ticket": 0, "routing_key": key, "arguments": arguments}
    if not of_queue.name.endswith("Unbind"):
        same["nowait"] = False
    if kind == "queue":
        return unchecked(of_queue, queue=destination, exchange=source, **same)
    same["nowait"] = False
    return unchecked(of_exchange, destination=destination, source=source, **same)


def _boolean(content: Body, field: str) -> bool:
    """Tools send texts, too."""
    value = content.get(field)
    if value is None:
        return False
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ValueError(f"{field} takes true or false")
    return value


def _arguments(content: Body) -> FieldTable:
    arguments = content.get("arguments")
    if arguments in (None, [], ""):  # As clients write an empty object.
        return FieldTable()
    if not isinstance(arguments, dict):
        raise ValueError("arguments takes an object")
    return field_table(arguments)


def _given(content: Body, field: str) -> str:
    value = content.get(field)
    if value is None:
        raise ValueError(f"key_missing: {field} is missing in the body")
    if not isinstance(value, str):
        raise ValueError(f"{field} takes a string")
    return value


def _number(content: Body, field: str) -> int:
    value = content.get(field)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(_MOST_GOT_BYTES)):
        value = int(value)
    if value is None:
        raise ValueError(f"key_missing: {field} is missing in the body")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{field} takes a number")
    return min(value, _MOST_MESSAGES) if field == "count" else value


def _ack_mode(content: Body) -> tuple[bool, bool | None]:
    mode = content.get("ackmode")
    if mode is None:
        # Clients from before 3.7 say it so.
        return _ACK_MODES["ack_requeue_true" if _boolean(content, "requeue") else "ack_requeue_false"]
    if mode not in _ACK_MODES:
        raise ValueError(f"ackmode is one of {', '.join(_ACK_MODES)}")
    return _ACK_MODES[mode]


def _octets(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise ValueError(f"unsupported_encoding: payload_encoding is '{encoding}'; string or base64 is expected")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error:
        raise ValueError("not_base64: the payload is not base64") from None


# -- what is shown -------------------------------------------------------------------------------


def _shown_exchange(record: ExchangeRecord) -> Row:
    return {
        "name": record.name,
        "vhost": record.vhost,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "internal": record.internal,
        "arguments": record.arguments,
    }


def _shown_binding(record: BindingRecord) -> Row:
    return {
        "source": record.source,
        "vhost": record.vhost,
        "destination": record.destination,
        "destination_type": record.destination_kind,
        "routing_key": record.routing_key,
        "arguments": record.arguments,
        "properties_key": _properties_key(record.routing_key, record.arguments),
    }


def _properties_key(routing_key: str, arguments: dict[str, Any]) -> str:
    """What tells a binding from others between the same two; RabbitMQ's where there are no arguments."""
    key = quote_plus(routing_key, safe="").replace("~", "%7E")
    if not arguments:
        return key or "~"
    octets = msgspec.json.encode(arguments, order="deterministic", enc_hook=str)
    digest = hashlib.blake2b(octets, digest_size=_HASH_BYTES).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _shown_message(received: Received, encoding: str, most: int | None) -> Row:
    method: Any = received.method
    payload = received.body if most is None else received.body[:most]
    text = None
    if encoding == "auto":
        try:
            text = payload.decode("utf-8")
        except UnicodeDecodeError:
            text = None
    return {
        "payload_bytes": len(received.body),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": shown_properties(received.header),
        "payload": base64.b64encode(payload).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }


def _refused(refusal: AmqpRefusal, with_code: bool = False) -> Answer:
    """`with_code`: as RabbitMQ answers for messages."""
    if refusal.code == errors.NOT_FOUND:
        return no_such(refusal.text)
    if refusal.code in (errors.ACCESS_REFUSED, errors.NOT_ALLOWED):
        return HTTPStatus.UNAUTHORIZED, {"error": "not_authorised", "reason": refusal.text}
    if with_code:
        return bad_request(f"{refusal.code} {errors.reply_text(refusal.code, refusal.text)}")
    return bad_request(refusal.text)
