"""The cluster secret: who does not know it is nobody, on gRPC and at the port for frames; and it is never said."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec, framing, options, proving
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets, Dialogue, ProvenSecret, secret_fault
from mayfly.cluster.transport.join_listener import JoinListener
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.proving import NotProven
from mayfly.cluster.versions import PROTOCOL_LOWEST, VersionRange
from tests.cluster.transport.members import Member, Members, members, run, until
from tests.cluster.transport.raw_peer import RawPeer
from tests.cluster.transport.snapshots import MadeSnapshot, send
from tests.cluster.transport.wire import Wire

RED = "red-0123456789-red"
BLUE = "blue-0123456789-blue"
DIALOGUE = Dialogue(2, "data", 1, "h:1", b"n" * 32, b"m" * 32)

NONE = NO_SECRET
R = ClusterSecrets([RED])
B = ClusterSecrets([BLUE])
BOTH = ClusterSecrets([RED, BLUE])
R_LENIENT = ClusterSecrets([RED], demanded=False)


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelname == "WARNING")


# --- pure -----------------------------------------------------------------------------------------------


def test_a_proof_is_of_one_secret_one_side_and_all_that_was_said() -> None:
    def proof(known: ClusterSecrets = R, **changed: object) -> bytes:
        return known.proofs(dataclasses.replace(DIALOGUE, **changed))[0]  # type: ignore[arg-type]

    others = [
        proof(B), proof(node_id=3), proof(store="date"), proof(target=2), proof(address="h:2"), proof(nonce=b"o" * 32),
        proof(nonce_of_listener=b"o" * 32), proof(store="datah", address=":1"), proof(node_id=1, target=2),
    ]  # fmt: skip
    proven = R.proven_by([proof()], DIALOGUE)
    assert proven is not None
    assert len({proof(), proven.answer(DIALOGUE), *others}) == len(others) + 2
    wrong = [*others, b"", proof()[:-1], proof() + b"x"]
    for other in (*wrong, proven.answer(DIALOGUE)):
        assert R.proven_by([other], DIALOGUE) is None
    for other in (*wrong, proof()):
        assert R.shown_by(other, DIALOGUE) is None


def test_of_several_secrets_one_is_enough() -> None:
    proven = B.proven_by(BOTH.proofs(DIALOGUE), DIALOGUE)
    assert proven is not None
    assert BOTH.shown_by(proven.answer(DIALOGUE), DIALOGUE) is not None
    assert R.shown_by(proven.answer(DIALOGUE), DIALOGUE) is None


def test_a_ticket_is_shown_in_a_way_that_its_sight_does_not_give() -> None:
    red, blue = ProvenSecret(RED.encode()), ProvenSecret(BLUE.encode())
    ticket = b"t" * framing.TICKET_BYTES
    seen = {red.ticket(ticket, 2), red.ticket(ticket, 3), blue.ticket(ticket, 2), red.answer_to_ticket(ticket, 2)}
    assert len(seen | {ticket}) == 5
    assert {len(each) for each in seen} == {framing.TICKET_BYTES}


def test_a_secret_is_in_no_text() -> None:
    for shown in (R, BOTH, R.proven_by(R.proofs(DIALOGUE), DIALOGUE)):
        assert RED not in repr(shown) + str(shown)


def test_without_a_secret_none_can_be_demanded() -> None:
    assert not NONE
    assert not NONE.demanded
    assert R.demanded
    assert not R_LENIENT.demanded


@pytest.mark.parametrize(
    "secrets", [["short"], ["x" * 256], ["a b c d e f g h i j k"], ["ä" * 20], ["a" * 16] * 5, ["a" * 15 + "\n"]]
)
def test_secrets_that_are_none_are_told_without_being_named(secrets: list[str]) -> None:
    fault = secret_fault(secrets)
    assert fault
    assert secrets[0] not in fault


def test_good_secrets_have_no_fault() -> None:
    assert secret_fault([RED, BLUE, "!" * 16, "~" * 255]) == ""


# --- between nodes --------------------------------------------------------------------------------------


async def two(group: Members, one_knows: ClusterSecrets, two_knows: ClusterSecrets) -> tuple[Member, Member]:
    one, other = await group.add(1, known=one_knows), await group.add(2, known=two_knows)
    await group.introduce()
    return one, other


@pytest.mark.parametrize(
    ("one_knows", "two_knows"),
    [
        (NONE, NONE), (R, R), (R, BOTH), (BOTH, B), (BOTH, BOTH), (R_LENIENT, NONE), (R_LENIENT, R_LENIENT),
        (R_LENIENT, R),
    ],
)  # fmt: skip
def test_nodes_that_may_talk_do_frames_dead_letters_and_snapshots(
    one_knows: ClusterSecrets, two_knows: ClusterSecrets
) -> None:
    async def scenario() -> None:
        async with members() as group:
            one, other = await two(group, one_knows, two_knows)
            await until(lambda: 2 in one.up and 1 in other.up, "up")
            sent = Frame(7)
            sent.apart().notices.append((4, b"dead letter"))
            one.transport.send(2, sent)
            other.transport.send(1, Frame(8))
            await until(lambda: any(frame.notices for _, frame in other.frames), "a dead letter")
            await until(lambda: one.clocks(2) == [8], "a frame the other way")
            one.transport.send(2, Frame(9))
            await until(lambda: other.clocks(1)[-1] == 9, "a frame in order")
            made = MadeSnapshot(1)
            assert await send(one, made)
            assert made.arrived(other) == 1

    run(scenario())


@pytest.mark.parametrize(
    ("one_knows", "two_knows", "of_one", "of_two"),
    [
        (R, NONE, "has no cluster secret, and this node demands one", "a cluster secret is demanded here"),
        (R, B, "the cluster secret is another one here", "the cluster secret is another one here"),
        (R_LENIENT, B, "the cluster secret is another one here", "the cluster secret is another one here"),
    ],
)
def test_others_are_refused_and_both_say_why(
    one_knows: ClusterSecrets, two_knows: ClusterSecrets, of_one: str, of_two: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with members() as group:
            one, other = await two(group, one_knows, two_knows)
            expected = [f"node 2 at {other.address} refuses this node", f"node 1 at {one.address} refuses this node"]
            await until(lambda: all(text in warnings(caplog) for text in expected), "refusals")
            assert one.events == other.events == []
            assert one.frames == other.frames == []

    run(scenario())
    said = warnings(caplog).splitlines()
    assert any("node 2 at" in line and of_one in line for line in said)
    assert any("node 1 at" in line and of_two in line for line in said)
    # The end that was asked says it, too.
    assert any("turned away a peer at 127.0.0.1" in line and of_two in line for line in said)
    assert RED not in caplog.text
    assert BLUE not in caplog.text


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([NONE, R_LENIENT, R], id="a cluster without one gets one"),
        pytest.param([R, BOTH, B], id="one takes another's place"),
        pytest.param([R, R_LENIENT, NONE], id="it is given up"),
    ],
)
def test_nodes_change_one_at_a_time_and_always_talk(steps: Sequence[ClusterSecrets]) -> None:
    """Each step is taken by one node after the other, as in a rolling restart."""

    async def scenario() -> None:
        async with members() as group:
            for before, after in itertools.pairwise(steps):
                for knows in ((before, before), (after, before), (after, after)):
                    await two(group, *knows)
                    await until(lambda: all(member.up for member in group.all), f"{knows} up")
                    await group.stop()
                    group.all.clear()

    run(scenario())


def test_the_secret_is_not_on_the_wire() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, other = await group.add(1, known=R), await group.add(2, known=R)
            wire = Wire(other.transport.port)
            carried: list[bytes] = []
            wire.sees = carried.append
            await wire.start()
            await one.transport.set_peers({2: f"127.0.0.1:{wire.port}"})
            await other.transport.set_peers({1: one.address})
            await until(lambda: 2 in one.up, "up")
            await wire.stop()
            everything = b"".join(carried)
            assert options.PROVE.encode()[-5:] in everything
            assert RED.encode() not in everything
            assert RED.encode().hex().encode() not in everything

    run(scenario())


@pytest.mark.parametrize(("known", "up"), [(NONE, True), (R_LENIENT, True), (R, False)])
def test_a_node_of_the_release_before_is_talked_to_as_long_as_no_secret_is_demanded(
    known: ClusterSecrets, up: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=known)
            monkeypatch.setattr(options, "PROVE", "/mayfly.peer.v1.Peer/NotYet")
            old = await group.add(2, protocols=VersionRange(PROTOCOL_LOWEST, PROTOCOL_LOWEST))
            monkeypatch.undo()
            caplog.set_level("INFO")
            await group.introduce()
            if up:
                await until(lambda: 2 in one.up and 1 in old.up, "up")
            else:
                await until(lambda: "is too old to know of cluster secrets" in warnings(caplog), "a refusal")
                await until(lambda: "a cluster secret is demanded here" in warnings(caplog), "a refusal of the other")
                assert one.events == old.events == []

    run(scenario())


@asynccontextmanager
async def serving(handlers: dict[str, grpc.RpcMethodHandler]) -> AsyncIterator[int]:
    """A server of these methods, and the port where it listens."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mayfly.peer.v1.Peer", handlers),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def echo(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    """Answers a proof with itself."""
    while (step := await context.read()) is not grpc.aio.EOF:
        yield step


def test_who_only_repeats_what_it_hears_has_shown_nothing() -> None:
    async def scenario() -> None:
        handlers = {"Prove": grpc.stream_stream_rpc_method_handler(echo)}
        async with serving(handlers) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(NotProven, match="does not show that it knows the cluster secret"):
                await proving.prove(channel, R, 1, "data", 2, f"127.0.0.1:{port}")

    run(scenario())


def test_who_only_repeats_what_it_hears_is_no_node(caplog: pytest.LogCaptureFixture) -> None:
    """A listener without the secret gets no hello, and nothing of what it can make up counts."""

    async def scenario() -> None:
        heard = []

        async def exchange(_: object, context: grpc.aio.ServicerContext) -> bytes:
            heard.append(await context.read())
            return b""

        handlers = {"Prove": grpc.stream_stream_rpc_method_handler(echo)}
        handlers["Exchange"] = grpc.stream_unary_rpc_method_handler(exchange)
        async with serving(handlers) as port, members() as group:
            one = await group.add(1, known=R)
            await one.transport.set_peers({2: f"127.0.0.1:{port}"})
            await until(lambda: "does not show that it knows the cluster secret" in warnings(caplog), "a refusal")
            assert heard == []
            assert one.events == []

    run(scenario())


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DATA_LOSS])
def test_nobody_who_has_proven_nothing_sends_a_node_away_for_good(code: grpc.StatusCode) -> None:
    async def refuse(_: object, context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, "you were removed")

    async def scenario() -> None:
        handlers = {"Prove": grpc.stream_stream_rpc_method_handler(refuse)}
        async with serving(handlers) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(NotProven) as failed:
                await proving.prove(channel, R, 1, "data", 2, f"127.0.0.1:{port}")
        assert failed.value.code not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DATA_LOSS)

    run(scenario())


async def proven_peer(one: Member, proves_as: int, says: int) -> tuple[RawPeer, ProvenSecret]:
    peer = RawPeer(one, says)
    proven = await proving.prove(peer.channel, R, proves_as, "", 1, one.address)
    assert proven is not None
    peer.call = peer.channel.stream_unary(options.EXCHANGE)()
    return peer, proven


def test_at_the_port_for_frames_the_ticket_alone_is_not_enough() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=R)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            peer, proven = await proven_peer(one, 2, 2)
            await peer.greet()
            assert await peer.show(peer.ticket) == b"", "what everybody on the way can read was enough"
            assert await peer.show(ProvenSecret(BLUE.encode()).ticket(peer.ticket, 2)) == b""
            answer = await peer.show(proven.ticket(peer.ticket, 2))
            answer += await peer.reader.readexactly(framing.TICKET_BYTES)
            assert answer[len(framing.encode_answer(peer.protocol)) :] == proven.answer_to_ticket(peer.ticket, 2)
            peer.send(Frame(7))
            await until(lambda: one.clocks(2) == [7], "a frame")
            await peer.close()

    run(scenario())


def test_a_connection_is_good_for_the_node_alone_that_has_proven_on_it() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=R)
            await one.transport.set_peers({2: "127.0.0.1:9", 3: "127.0.0.1:9"})
            peer, _ = await proven_peer(one, 3, 2)
            hello = LocalPeer(2, "node-2", "blue").hello()
            await peer.call.write(codec.encode_hello(hello))
            assert await peer.call.code() is grpc.StatusCode.UNAUTHENTICATED
            await peer.close()

    run(scenario())


def test_calls_without_a_proof_are_refused() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=R)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            async with grpc.aio.insecure_channel(one.address) as channel:
                for method in (options.EXCHANGE, options.SEND_SNAPSHOT):
                    call = channel.stream_unary(method)()
                    assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
                data = await channel.unary_unary(options.JOIN)(peer_pb2.JoinRequest(name="x").SerializeToString())
                assert peer_pb2.JoinAnswer.FromString(data).refusal == proving.DEMANDED

    run(scenario())


# --- asking for a place ---------------------------------------------------------------------------------

PLACE = JoinAnswer(node_id=7, node_name="seven", cluster_id="blue", shards=1, replication_factor=1)
ASKS = JoinRequest("seven", "h:7", "data")


def test_a_place_is_given_to_who_knows_the_secret_alone() -> None:
    async def join(_: JoinRequest) -> JoinAnswer:
        return PLACE

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=R)
            one.transport._admission.join = join  # type: ignore[method-assign, assignment]
            assert (await ask_to_join(one.address, ASKS, None, known=R)).node_id == 7
            for known, text in ((NONE, "is demanded here"), (B, "is another one here")):
                with pytest.raises(JoinRefused, match=text) as refused:
                    await ask_to_join(one.address, ASKS, None, known=known)
                assert not refused.value.again

    run(scenario())


def test_founders_talk_to_founders_with_the_secret_alone() -> None:
    async def scenario() -> None:
        async with members() as group:
            port = (await group.add(1)).transport.port
            await group.stop()
            group.all.clear()
            not_yet = JoinAnswer.refused("no cluster yet", True, "forming", "other")
            listener = JoinListener(f"127.0.0.1:{port}", None, lambda _: not_yet, R)
            await listener.open()
            for known, text in ((R, "no cluster yet"), (NONE, "is demanded here"), (B, "is another one here")):
                with pytest.raises(JoinRefused, match=text) as refused:
                    await ask_to_join(f"127.0.0.1:{port}", ASKS, None, known=known)
                assert (refused.value.stance == "forming") == (known is R)
            await listener.close()

    run(scenario())


def test_who_proves_and_says_no_more_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that breaks off in its middle: the connection is bounded like any other stranger's."""
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(limits, "STOP_GRACE_SECONDS", 0.05)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, known=R)
            async with grpc.aio.insecure_channel(one.address) as channel:
                call = channel.stream_stream(options.PROVE)()
                try:
                    await call.write(peer_pb2.ProofStep(nonce=bytes(32)).SerializeToString())
                    await call.read()
                    await call.read()
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    pass
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
            await until(lambda: len(one.transport._peer_port._all) == 0, "no connections")

    run(scenario())
