"""Bugs made on purpose in the AMQP endpoint: the walks against the model find them without being told where to look."""

from tests.bugs.bug import Bug

WALKS = "tests/fuzz/test_endpoint.py::test_walks_hold_against_the_model"
FAULTS = "tests/fuzz/test_endpoint.py::test_all_that_is_wrong_ends_the_connection_with_its_code"
CODECS = "tests/fuzz/test_codecs.py::test_changed_octets_are_read_or_refused"

FRAME_BUGS = [
    Bug(
        "leaves the end of a frame unchecked",
        "node/amqp/frames.py",
        "            if data[stop] != FRAME_END:\n                raise self._bad_end(kind, data[offset + 7 : stop]",
        "            if stop < 0:\n                raise self._bad_end(kind, data[offset + 7 : stop]",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "takes a body that is one octet too long",
        "node/amqp/channel.py",
        "if size > self.body_left:",
        "if size > self.body_left + 1:",
        FAULTS,
        "AssertionError: a body of one octet too many, cut 0 times",
    ),
    Bug(
        "takes a header of another class",
        "node/amqp/frames.py",
        "        if class_id != BASIC_CLASS_ID:\n",
        "        if class_id < 0:\n",
        FAULTS,
        "AssertionError: a header of another class, cut 0 times",
    ),
    Bug(
        "lets a field value run past its table",
        "node/amqp/field_table.py",
        "    stop = start + length\n    if stop > end:\n",
        "    stop = start + length\n    if stop > end + 4:\n",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "takes tables nested as deeply as anybody likes",
        "node/amqp/field_table.py",
        "if depth >= MAX_DEPTH:",
        "if depth < 0:",
        "tests/node/amqp/test_field_table.py::test_nesting_is_bounded",
        "DID NOT RAISE",
    ),
    Bug(
        "takes octets behind the arguments",
        "node/amqp/methods.py",
        "    if at != end:\n        raise IndexError\n",
        "",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "cuts what it sends into frames that are too long",
        "node/amqp/frame_writer.py",
        "largest = frame_max_bytes - FRAME_OVERHEAD_BYTES\n    size",
        "largest = frame_max_bytes\n    size",
        WALKS,
        "AssertionError: walk(",
    ),
]

STATE_BUGS = [
    Bug(
        "passes over a heartbeat on a channel",
        "node/amqp/channels.py",
        "            raise ProtocolError(UNEXPECTED_FRAME, frame_snippet(kind, payload))\n",
        "            return\n",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "opens a channel twice",
        "node/amqp/channel_state.py",
        "(OPEN,      SECOND_OPEN, ",
        "(OPEN,      OPEN, ",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "takes a method where a header is due",
        "node/amqp/channel_state.py",
        "RECEIVE_METHOD:        (NOT_OPEN,  OPEN,            NO_HEADER, ",
        "RECEIVE_METHOD:        (NOT_OPEN,  OPEN,            HEADER_EXPECTED, ",
        FAULTS,
        "AssertionError: a method, cut 0 times",
    ),
    Bug(
        "objects to a header on a channel that it has closed",
        "node/amqp/channel_state.py",
        "BODY_EXPECTED, NO_BODY,       CLOSING),",
        "BODY_EXPECTED, NO_BODY,       NO_METHOD),",
        WALKS,
        "not due on channel 0",
    ),
    Bug(
        "takes a close for a close-ok",
        "node/amqp/channel_state.py",
        "(NOT_OPEN,  CLOSED,          NO_HEADER,     NO_BODY,       CLOSING)",
        "(NOT_OPEN,  CLOSED,          NO_HEADER,     NO_BODY,       CLOSED)",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "takes a close of the connection for a close-ok",
        "node/amqp/connection_state.py",
        "CLOSED,    CLOSING, NEVER)",
        "CLOSED,    CLOSED,  NEVER)",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "carries out what stands behind an error",
        "node/broker/channel.py",
        "        if not self.open:\n            return\n        if self._operation is not None or not",
        "        if self._operation is not None or not",
        WALKS,
        "AssertionError: walk(",
    ),
]

CHANNEL_BUGS = [
    Bug(
        "forgets a consumer before what came with its end",
        "node/broker/consumer_moves.py",
        "        yield ShardStep(holder.shard_id, _NEXT_ENTRY)\n",
        "",
        "tests/node/broker/test_consuming.py::"
        "test_what_comes_with_the_cancel_of_a_consumer_is_delivered_before_it",
        "Delivery",
    ),
    Bug(
        "takes tag 0 for all",
        "node/broker/unacknowledged.py",
        "if multiple and tag == 0:",
        "if tag == 0:",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "settles one too few of several",
        "node/broker/unacknowledged.py",
        "end = min(tag + 1, run.end_tag)\n            each = run.lowest_tag",
        "end = min(tag, run.end_tag)\n            each = run.lowest_tag",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "settles a tag twice",
        "node/broker/unacknowledged.py",
        "if tag >= run.end_tag or (run.settled >> (tag - run.lowest_tag)) & 1:",
        "if tag >= run.end_tag:",
        "tests/node/broker/test_unacknowledged.py",
        "DID NOT RAISE",
    ),
    Bug(
        "begins no new tags after deliveries without acknowledgement",
        "node/broker/unacknowledged.py",
        '        """Tags for deliveries that need no acknowledgement; the first of them."""\n'
        "        first = self.next_tag\n        self.next_tag = first + count\n",
        '        """Tags for deliveries that need no acknowledgement; the first of them."""\n'
        "        first = self.next_tag\n",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "gives a consumer one more than its prefetch",
        "node/broker/operations/basic.py",
        "prefetch = channel.prefetch\n",
        "prefetch = channel.prefetch + 1 if channel.prefetch else 0\n",
        WALKS,
        "its limit is",
    ),
    Bug(
        "lets a consumer tag be used twice",
        "node/broker/operations/basic.py",
        "    if tag in channel.consumers:\n",
        "    if tag in channel.consumers and not tag:\n",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "numbers confirms anew at a second select",
        "node/broker/operations/session.py",
        "    if channel.publisher.confirms is None:\n",
        "    if not method.nowait:\n",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "confirms what a queue has refused",
        "node/broker/publishing.py",
        "confirms.refuse(refused, refused)",
        "confirms.acknowledge(refused, refused)",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "settles a tag twice in a transaction",
        "node/broker/transaction.py",
        "if tag in self._settled_tags:",
        "if tag < 0:",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "commits to queues that are gone, though others have their names",
        "node/broker/transaction.py",
        "catalog.queue_by_id(queue.id) or named(queue.vhost, queue.name)",
        "catalog.queue_by_id(queue.id)",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "gives back in recover what a commit is to settle",
        "node/broker/transaction.py",
        "return [each for each in tags if each not in self._settled_tags]",
        "return tags",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "returns nothing that is mandatory",
        "node/amqp/frames.py",
        "known = (method[2:bits_at], method[bits_at] & 3)",
        "known = (method[2:bits_at], method[bits_at] & 2)",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "takes requeue for multiple",
        "node/amqp/frames.py",
        "settlements.append((NACK, tag, bits & 1 == 1, bits & 2 == 2))",
        "settlements.append((NACK, tag, bits & 2 == 2, bits & 1 == 1))",
        WALKS,
        "AssertionError: walk(",
    ),
    Bug(
        "forgets who consumes when it cancels",
        "node/broker/operations/basic.py",
        "        if channel.consumers.get(consumer.tag) is consumer:\n"
        "            del channel.consumers[consumer.tag]\n        channel.node",
        "        channel.node",
        WALKS,
        "AssertionError: walk(",
    ),
]

LOGIN_BUGS = [
    Bug(
        "logs the password of a refused login",
        "node/broker/login.py",
        'login of %r refused: %s", self._client.name, named, why)',
        'login of %r refused: %s", self._client.name, event.username, event.password)',
        "tests/node/broker/test_secrets.py::test_no_password_is_logged",
        "wrong-needle-2",
    ),
]

DECODER_BUGS = [
    Bug(
        "ends at a text that is no UTF-8 in a snapshot",
        "node/catalog/snapshot.py",
        "(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, NotMessagePack)",
        "(msgspec.MsgspecError, RecursionError, NotMessagePack)",
        CODECS,
        "catalog state: UnicodeDecodeError",
    ),
    Bug(
        "takes more properties than there are",
        "node/amqp/content.py",
        "    if at != end:\n",
        "    if at > end:\n",
        CODECS,
        "a content header was read, though it is none",
    ),
    Bug(
        "takes a damaged record of the log for a whole one",
        "cluster/log/records.py",
        '        raise CorruptStore(f"{name} is corrupt: {len(value)} bytes long")\n    checksum = ',
        '        pass\n    checksum = ',
        CODECS,
        "records: ",
    ),
]

AMQP_BUGS = FRAME_BUGS + STATE_BUGS + CHANNEL_BUGS + LOGIN_BUGS + DECODER_BUGS
