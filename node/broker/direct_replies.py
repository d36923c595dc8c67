"""Direct reply-to: replies that go from a responder's node to the requester's channel, through no queue.  Pure.

    requester   consumes from amq.rabbitmq.reply-to: its channel gets an address, amq.rabbitmq.reply-to.NODE.VHOST.KEY
                publishes with reply_to amq.rabbitmq.reply-to: the address is put in its place
    responder   publishes to the address in the default exchange, through any node: a REPLY to the address's node

The key is a secret of 128 bits: who has not got it with a request cannot reply, nor can who is in another vhost (VHOST
is a digest; in an address that another release has made it may be missing, and is not asked for). A reply whose
channel or node is gone is dropped, as in RabbitMQ: requesters have a time limit. queue.declare with an address asks
whether its channel is there. Notices between nodes, in the frames between them and in their order:

    REPLY  any -> requester's node   key length u16, names length u16, header length u32, then key, names, header, body
    ASK    any -> requester's node   number u64, key                            (`node.broker.peer_questions`)
    TOLD   requester's node -> any   number u64, whether the key is known u8
"""

from __future__ import annotations

import base64
import hashlib
import logging
import struct
from collections.abc import Callable
from struct import Struct
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.broker.cluster_facade import ClusterEvents, OnDone
from mayfly.node.broker.peer_questions import PeerQuestions, Respond
from mayfly.node.notice_kinds import ASK, REPLY, TOLD

logger = logging.getLogger(__name__)

REPLY_TO: Final = "amq.rabbitmq.reply-to"
REPLY_TO_OCTETS: Final = b"amq.rabbitmq.reply-to"
_PREFIX: Final = "amq.rabbitmq.reply-to."

ANSWER_WITHIN_MS: Final = 5000
"""A node that has not said whether it knows an address counts as one that does not."""

_DIGEST_BYTES: Final = 9

_REPLY_HEAD: Final = Struct("<HHI")
_KNOWN: Final = b"\x01"
_UNKNOWN: Final = b"\x00"


def is_address_in(vhost: str, name: str) -> bool:
    """Whether a routing key of the default exchange means a channel in that vhost instead of a queue."""
    if not name.startswith(_PREFIX):
        return False
    _, _, key = name.removeprefix(_PREFIX).partition(".")
    digest, dot, _ = key.partition(".")
    return not dot or digest == _digest(vhost)


def make_key(vhost: str, secret: str) -> str:
    """What tells a channel's address from others of its node, and from all of other vhosts."""
    return f"{_digest(vhost)}.{secret}"


def make_address(node_id: int, key: str) -> str:
    """The address of a channel of this node."""
    return f"{_PREFIX}{node_id}.{key}"


def parse_address(name: str) -> tuple[int, str] | None:
    """Node and key of an address; None for what no node has made."""
    node, _, key = name.removeprefix(_PREFIX).partition(".")
    if not name.startswith(_PREFIX) or not (node.isascii() and node.isdigit() and len(node) <= 9 and key):
        return None
    return int(node), key


def _digest(vhost: str) -> str:
    octets = hashlib.sha256(vhost.encode("utf-8", "surrogateescape")).digest()
    return base64.urlsafe_b64encode(octets[:_DIGEST_BYTES]).decode("ascii").rstrip("=")


class DirectReplies:
    """The way of replies between the channels of all nodes, at one of them."""

    def __init__(
        self,
        node_id: int,
        send: Callable[[int, int, bytes], None],
        events: Callable[[], ClusterEvents | None],
    ) -> None:
        """`send(node id, kind, notice)`.  `events()` is this node's broker, once there is one."""
        self.node_id: int = node_id
        self._send = send
        self._events = events
        self._questions: PeerQuestions = PeerQuestions(send, ASK, TOLD, ANSWER_WITHIN_MS)
        self._questions.answer = self._answer

    # -- for the broker -------------------------------------------------------------

    def reply(self, address: str, content: Content) -> None:
        """Send a reply on its way, or drop it."""
        parsed = parse_address(address)
        if parsed is None:
            return
        node_id, key = parsed
        if node_id == self.node_id:
            events = self._events()
            if events is not None:
                events.reply_came(key, content)
        elif self._questions.can_reach(node_id):
            octets = key.encode("utf-8", "surrogateescape")
            names, header = content.exchange_and_key, content.header
            head = _REPLY_HEAD.pack(len(octets), len(names), len(header))
            self._send(node_id, REPLY, b"".join((head, octets, names, header, content.body)))

    def ask(self, address: str, done: OnDone) -> None:
        """`done(True)` if the channel of an address is there, `done(False)` if it is gone, or its node is."""
        parsed = parse_address(address)
        if parsed is None:
            done(False)
            return
        node_id, key = parsed
        if node_id == self.node_id:
            done(self._is_known(key))
        else:
            question = key.encode("utf-8", "surrogateescape")
            self._questions.ask(node_id, question, lambda told: done(told == _KNOWN))

    # -- for the node ---------------------------------------------------------------

    def peer_up(self, node_id: int) -> None:
        """The stream to a node opened."""
        self._questions.peer_up(node_id)

    def peer_down(self, node_id: int) -> None:
        """The stream to a node broke."""
        self._questions.peer_down(node_id)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._questions.tick(now_ms)

    def notice(self, node_id: int, kind: int, data: bytes) -> None:
        """A notice of another node.  What cannot be read is dropped."""
        if kind != REPLY:
            self._questions.notice(node_id, kind, data)
            return
        try:
            self._reply_came(data)
        except (struct.error, ValueError) as error:
            logger.warning("a direct reply from node %d cannot be read: %s", node_id, error)

    # -- inside ---------------------------------------------------------------------

    def _reply_came(self, data: bytes) -> None:
        key_length, names_length, header_length = _REPLY_HEAD.unpack_from(data)
        names_at = _REPLY_HEAD.size + key_length
        header_at = names_at + names_length
        body_at = header_at + header_length
        if body_at > len(data):
            raise ValueError(f"a reply of {len(data)} bytes whose body begins at {body_at}")
        key = data[_REPLY_HEAD.size : names_at].decode("utf-8", "surrogateescape")
        events = self._events()
        if events is not None:
            events.reply_came(key, Content(data[names_at:header_at], data[header_at:body_at], data[body_at:]))

    def _answer(self, question: bytes, respond: Respond) -> None:
        respond(_KNOWN if self._is_known(question.decode("utf-8", "surrogateescape")) else _UNKNOWN)

    def _is_known(self, key: str) -> bool:
        events = self._events()
        return events is not None and events.awaits_reply(key)
