"""A connection and its channels against a model of some lines: what each method is answered with, in whatever order.

The model is written from AMQP 0-9-1 and RabbitMQ's answers, not from the code: it knows which of few states a
connection and each channel are in. A frame that is not due ends the connection with the code the model names; frames
after that are ignored; and nothing ever raises.
"""

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from pamqp.header import ContentHeader

from mayfly.node.amqp import connection_state
from mayfly.node.amqp.events import ChannelClosed, ChannelOpened, ConnectionClosed, Event, MethodReceived
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from tests.node.amqp.scripted_client import ScriptedClient, contents_of, raw_frame

CHANNEL_IDS = st.integers(1, 3)
WRONG = st.sampled_from([False] * 9 + [True])
"""Whether a step may be out of place. Most are not, or no connection would live for more than some steps."""
UNEXPECTED_FRAME, CHANNEL_ERROR, COMMAND_INVALID, FRAME_ERROR, NOT_ALLOWED, NOT_IMPLEMENTED, SYNTAX_ERROR = (
    505, 504, 503, 501, 530, 540, 502,
)
FOR_THE_BROKER: list[Frame] = [
    Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="e"), Queue.Purge(queue="q"), Queue.Delete(queue="q"),
    Exchange.Declare(exchange="e"), Exchange.Delete(exchange="e"), Basic.Qos(), Basic.Consume(queue="q"),
    Basic.Cancel(consumer_tag="c"), Basic.Get(queue="q"), Basic.Recover(), Confirm.Select(), Tx.Select(), Tx.Commit(),
]
SERVERS_OWN: list[Frame] = [
    Queue.DeclareOk("q", 1, 1), Basic.QosOk(), Basic.CancelOk("c"),
    Basic.GetEmpty(), Basic.Deliver("c", 1, False, "e", "k"), Tx.SelectOk(),
]
LIMIT = 3


class ConnectionMachine(RuleBasedStateMachine):
    """Steps are what a client sends; each step is judged at once."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ScriptedClient()
        self.state = "header"
        self.channels: dict[int, str] = {}
        self.left: dict[int, int] = {}
        self.events: list[Event] = []
        self.sent: list[tuple[int, Any]] = []
        self.told_end = 0

    # ------------------------------------------------------------------ doing and judging

    def feed(self, octets: bytes) -> None:
        self.events = self.client.feed(octets)
        self.sent = self.client.output()
        self.told_end += sum(isinstance(event, ConnectionClosed) for event in self.events)

    def say(self, channel: int, what: Frame | ContentHeader | ContentBody) -> None:
        self.feed(frame.marshal(what, channel))

    def answered(self, channel: int, answer: type[Any]) -> None:
        assert [(id, type(what)) for id, what in self.sent] == [(channel, answer)], self.sent

    def silent(self) -> None:
        assert not self.sent and not self.events, (self.sent, self.events)

    def fails(self, code: int) -> None:
        """The connection ends with this code; before it is open only the socket is closed."""
        if self.state == "running":
            self.answered(0, Connection.Close)
            assert self.sent[0][1].reply_code == code
            self.state = "closing"
        else:
            assert not [what for _, what in self.sent if not isinstance(what, Connection.Close)]
            self.state = "closing" if self.sent else "closed"
            assert not self.sent or self.sent[0][1].reply_code == code
        self.channels.clear()
        assert any(isinstance(event, ConnectionClosed) for event in self.events)

    @property
    def is_over(self) -> bool:
        return self.state in ("closing", "closed")

    def ignored_when_over(self) -> bool:
        if self.is_over:
            self.silent()
        return self.is_over

    @invariant()
    def ends_once(self) -> None:
        assert self.told_end == self.is_over
        assert self.client.connection.should_close == (self.state == "closed")
        assert (self.client.connection.state == connection_state.CLOSED) == (self.state == "closed")

    def spares(self, wrong: bool) -> bool:
        """Whether a step that would end a running connection is left out."""
        return self.state == "running" and not wrong

    # ------------------------------------------------------------------ the handshake

    @initialize(most=st.sampled_from([LIMIT, LIMIT, 2047, 2047, 2047, 2047, 0]), opened=st.sets(CHANNEL_IDS))
    def begin(self, most: int, opened: set[int]) -> None:
        """Most runs begin where most can happen."""
        if most:
            self.client.handshake(channel_max=most)
            self.state, self.most = "running", most
            for channel in opened:
                self.client.open_channel(channel)
                self.channels[channel] = "open"

    @precondition(lambda self: self.state == "header")
    @rule()
    def protocol_header(self) -> None:
        self.feed(PROTOCOL_HEADER)
        self.answered(0, Connection.Start)
        self.state = "starting"

    @precondition(lambda self: self.state == "header")
    @rule(octets=st.binary(min_size=8, max_size=8).filter(lambda octets: not octets.startswith(b"AMQP")))
    def other_header(self, octets: bytes) -> None:
        assert not self.client.feed(b"")
        events = self.client.connection.receive(octets)
        assert b"".join(self.client.connection.take_output()) == PROTOCOL_HEADER
        self.told_end += sum(isinstance(event, ConnectionClosed) for event in events)
        self.state = "closed"

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(wrong=WRONG)
    def start_ok(self, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.feed(self.client.start_ok())
        if self.ignored_when_over():
            return
        if self.state == "starting":
            self.answered(0, Connection.Tune)
            self.state = "tuning"
        else:
            self.fails(CHANNEL_ERROR)

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(channels=st.sampled_from([LIMIT, 2047, 65535]), frame_max=st.sampled_from([4096, 131072, 100]), wrong=WRONG)
    def tune_ok(self, channels: int, frame_max: int, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.say(0, Connection.TuneOk(channels, frame_max, 0))
        if self.ignored_when_over():
            return
        if self.state != "tuning":
            self.fails(CHANNEL_ERROR)
        elif channels > 2047 or frame_max < 4096:
            self.fails(NOT_ALLOWED)
        else:
            self.silent()
            self.state, self.most = "opening", channels

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(wrong=WRONG)
    def open(self, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.say(0, Connection.Open())
        if self.ignored_when_over():
            return
        if self.state == "opening":
            self.answered(0, Connection.OpenOk)
            self.state = "running"
        else:
            self.fails(CHANNEL_ERROR)

    # ------------------------------------------------------------------ the connection

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(wrong=WRONG)
    def close(self, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.say(0, Connection.Close(200, "bye", 0, 0))
        if self.state == "closing":
            # Both at once: answered, and still waiting.
            self.answered(0, Connection.CloseOk)
        elif self.state == "running":
            self.answered(0, Connection.CloseOk)
            self.state = "closed"
            self.channels.clear()
        else:
            self.fails(CHANNEL_ERROR)

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(wrong=WRONG)
    def close_ok(self, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.say(0, Connection.CloseOk())
        if self.state == "closing":
            self.silent()
            self.state = "closed"
        elif not self.ignored_when_over():
            self.fails(CHANNEL_ERROR)

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(wrong=WRONG)
    def heartbeat(self, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.feed(raw_frame(8, 0, b""))
        self.silent()

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(kind=st.sampled_from([0, 4, 5, 7, 9, 255]), channel=st.integers(0, 3), wrong=WRONG)
    def unknown_kind(self, kind: int, channel: int, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.feed(raw_frame(kind, channel, b"x"))
        if not self.ignored_when_over():
            self.fails(FRAME_ERROR if self.state == "running" or channel == 0 else UNEXPECTED_FRAME)

    @precondition(lambda self: self.state == "running")
    @rule(kind=st.sampled_from([2, 3]), wrong=WRONG)
    def content_on_channel_0(self, kind: int, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.feed(raw_frame(kind, 0, b"0123456789abcdef"))
        self.fails(UNEXPECTED_FRAME)

    @precondition(lambda self: self.state == "running")
    @rule(channel=st.integers(0, 2), junk=st.binary(max_size=3), wrong=WRONG)
    def short_method(self, channel: int, junk: bytes, wrong: bool) -> None:
        if self.spares(wrong):
            return
        self.feed(raw_frame(1, channel, junk))
        self.fails(FRAME_ERROR)

    @precondition(lambda self: self.state == "closed")
    @rule(octets=st.sampled_from([PROTOCOL_HEADER, raw_frame(8, 0, b""), raw_frame(1, 1, b"\0\x14\0\x0a\0"), b"junk"]))
    def after_the_end(self, octets: bytes) -> None:
        self.feed(octets)
        self.silent()

    # ------------------------------------------------------------------ channels

    def pick(self, channel: int, wrong: bool, due: str = "open") -> int:
        """A channel in a state in which the step is due; any, if it may be wrong; 0 for none."""
        if wrong or self.state != "running":
            return channel
        if due == "closed":
            return channel if channel not in self.channels else 0
        fit = [id for id, state in self.channels.items() if state in (due, "closing")]
        return fit[channel % len(fit)] if fit else 0

    def channel_frame(self, channel: int, what: Frame | ContentHeader | ContentBody) -> str | None:
        """Send it; the channel's state, or None where nothing more is to be judged."""
        if channel == 0:
            return None
        self.say(channel, what)
        if self.is_over:
            self.silent()
            return None
        if self.state != "running":
            self.fails(UNEXPECTED_FRAME)
            return None
        if channel not in self.channels and len(self.channels) >= self.most:
            self.fails(NOT_ALLOWED)
            return None
        return self.channels.get(channel, "closed")

    def fails_in(self, state: str, closed: int = CHANNEL_ERROR) -> None:
        """A method that is not due in this state of its channel."""
        self.fails(closed if state == "closed" else UNEXPECTED_FRAME)

    @precondition(lambda self: self.state not in ("header", "closed"))
    @rule(channel=st.integers(1, LIMIT + 2), wrong=WRONG)
    def open_channel(self, channel: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong, "closed")
        state = self.channel_frame(channel, Channel.Open())
        if state == "closed":
            self.answered(channel, Channel.OpenOk)
            assert [type(event) for event in self.events] == [ChannelOpened]
            self.channels[channel] = "open"
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails(CHANNEL_ERROR if state == "open" else UNEXPECTED_FRAME)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, wrong=WRONG)
    def close_channel(self, channel: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong)
        state = self.channel_frame(channel, Channel.Close(200, "bye", 0, 0))
        if state == "open":
            self.answered(channel, Channel.CloseOk)
            assert [type(event) for event in self.events] == [ChannelClosed]
            del self.channels[channel]
        elif state == "closing":
            self.answered(channel, Channel.CloseOk)
        elif state is not None:
            self.fails_in(state)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, wrong=WRONG)
    def close_ok_of_channel(self, channel: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong, "closing")
        state = self.channel_frame(channel, Channel.CloseOk())
        if state == "closing":
            assert not self.sent
            del self.channels[channel]
        elif state is not None:
            self.fails(
                {"open": COMMAND_INVALID, "closed": CHANNEL_ERROR}.get(state, UNEXPECTED_FRAME)
            )

    @precondition(lambda self: "open" in self.channels.values())
    @rule()
    def broker_closes_channel(self) -> None:
        channel = next(id for id, state in self.channels.items() if state == "open")
        self.client.connection.close_channel(channel, 404, "no queue", 50, 10)
        self.sent = self.client.output()
        self.answered(channel, Channel.Close)
        self.channels[channel] = "closing"

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, method=st.sampled_from(FOR_THE_BROKER), wrong=WRONG)
    def method(self, channel: int, method: Frame, wrong: bool) -> None:
        channel = self.pick(channel, wrong)
        state = self.channel_frame(channel, method)
        if state == "open":
            (event,) = self.events
            assert isinstance(event, MethodReceived) and event.method.name == method.name and not self.sent
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails_in(state)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, method=st.sampled_from(SERVERS_OWN), wrong=WRONG)
    def method_of_the_server(self, channel: int, method: Frame, wrong: bool) -> None:
        channel = self.pick(channel, wrong, "closing")
        state = self.channel_frame(channel, method)
        if state == "closing":
            self.silent()
        elif state is not None:
            self.fails(COMMAND_INVALID if state == "open" else CHANNEL_ERROR if state == "closed" else UNEXPECTED_FRAME)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, active=st.booleans(), wrong=WRONG)
    def flow(self, channel: int, active: bool, wrong: bool) -> None:
        channel = self.pick(channel, wrong)
        state = self.channel_frame(channel, Channel.Flow(active))
        if state == "open" and active:
            self.answered(channel, Channel.FlowOk)
        elif state == "closing":
            self.silent()
        elif state == "open":
            self.fails(NOT_IMPLEMENTED)
        elif state is not None:
            self.fails_in(state)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, multiple=st.booleans(), wrong=WRONG)
    def ack(self, channel: int, multiple: bool, wrong: bool) -> None:
        channel = self.pick(channel, wrong)
        state = self.channel_frame(channel, Basic.Ack(5, multiple))
        if state == "open":
            assert len(self.events) == 1 and not self.sent
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails_in(state)

    # ------------------------------------------------------------------ content

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, wrong=WRONG)
    def publish(self, channel: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong)
        state = self.channel_frame(channel, commands.Basic.Publish(exchange="e", routing_key="k"))
        if state == "open":
            self.silent()
            self.channels[channel] = "header due"
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails_in(state)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, size=st.integers(0, 5), wrong=WRONG)
    def header(self, channel: int, size: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong, "header due")
        state = self.channel_frame(channel, ContentHeader(body_size=size))
        if state == "header due":
            if size:
                self.silent()
                self.channels[channel], self.left[channel] = "body due", size
            else:
                self.one_message(b"")
                self.channels[channel] = "open"
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails(UNEXPECTED_FRAME)

    @precondition(lambda self: self.state == "running")
    @rule(channel=CHANNEL_IDS, size=st.integers(1, 4), wrong=WRONG)
    def body(self, channel: int, size: int, wrong: bool) -> None:
        channel = self.pick(channel, wrong, "body due")
        state = self.channel_frame(channel, ContentBody(b"x" * size))
        if state == "body due":
            self.left[channel] -= size
            if self.left[channel] < 0:
                self.fails(UNEXPECTED_FRAME)
            elif self.left[channel] > 0:
                self.silent()
            else:
                self.one_message(None)
                self.channels[channel] = "open"
        elif state == "closing":
            self.silent()
        elif state is not None:
            self.fails(UNEXPECTED_FRAME)

    def one_message(self, body: bytes | None) -> None:
        (content,) = contents_of(self.events)
        assert not self.sent and (body is None or content.body == body)


ConnectionMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestConnection = ConnectionMachine.TestCase


def walk(chance: random.Random, steps: int) -> ConnectionMachine:
    """The same steps, chosen so that more of them are to the point: connections live longer and get further."""
    machine = ConnectionMachine()
    machine.begin(most=chance.choice([0, LIMIT, 2047, 2047, 2047]), opened=set(chance.sample([1, 2, 3], 2)))
    for _ in range(steps):
        wrong = chance.random() < 0.04
        channel = chance.randint(1, 3)
        if machine.state == "closed":
            machine.after_the_end(octets=chance.randbytes(20))
            break
        if machine.state == "header":
            machine.protocol_header()
        elif machine.state != "running" or (wrong and chance.random() < 0.5):
            handshake: list[tuple[Any, dict[str, Any]]] = [
                    (machine.start_ok, {}), (machine.open, {}), (machine.close_ok, {}), (machine.close, {}),
                    (machine.tune_ok, {"channels": chance.choice([LIMIT, 2047, 9999]), "frame_max": 4096}),
                    (machine.heartbeat, {}), (machine.open_channel, {"channel": channel}),
                    (machine.unknown_kind, {"kind": chance.choice([0, 4, 9]), "channel": channel}),
            ]
            step, arguments = chance.choice(handshake)
            if machine.state != "running" or step.__name__ != "open_channel":
                arguments = arguments | {"wrong": True}
                step(**arguments)
        else:
            channels: list[tuple[Any, dict[str, Any]]] = [
                    (machine.open_channel, {}), (machine.close_channel, {}), (machine.close_ok_of_channel, {}),
                    (machine.method, {"method": chance.choice(FOR_THE_BROKER)}),
                    (machine.method_of_the_server, {"method": chance.choice(SERVERS_OWN)}),
                    (machine.flow, {"active": chance.random() < 0.9}), (machine.ack, {"multiple": wrong}),
                    (machine.publish, {}), (machine.publish, {}), (machine.header, {"size": chance.randrange(6)}),
                    (machine.header, {"size": 3}), (machine.body, {"size": chance.randint(1, 4)}),
                    (machine.body, {"size": 1}), (machine.body, {"size": 2}),
            ]
            step, arguments = chance.choice(channels)
            if "open" in machine.channels.values() and chance.random() < 0.05:
                machine.broker_closes_channel()
            step(channel=channel, wrong=wrong, **arguments)
        machine.ends_once()
    return machine


def test_walks_of_many_steps() -> None:
    ends: dict[str, int] = {}
    for seed in range(400):
        state = walk(random.Random(seed), 60).state
        ends[state] = ends.get(state, 0) + 1
    assert min(ends[state] for state in ("running", "closing", "closed")) > 10, ends
