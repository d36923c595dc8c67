"""Mirrors and sources of streams, as clients see them (RULES J4): each sentence of NATS ADR-43 by its meaning, on
three nodes whose leaders die, in shards that are not the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.raft import MessageType
from mayfly.node.catalog import QueueRecord
from mayfly.node.shard.commands import encode_delete_offset
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client, closed

STREAM: dict[str, Any] = {"x-queue-type": "stream"}
ALLOWS: dict[str, Any] = {**STREAM, "x-allow-msg-ttl": True}
MIRROR: dict[str, Any] = {**STREAM, "x-mirror": "s"}
SOURCE: dict[str, Any] = {**STREAM, "x-sources": ["s"]}
BOTH = pytest.mark.parametrize("copying", [MIRROR, SOURCE], ids=["mirror", "source"])


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=3)


def call(brokers: ThreeBrokers, client: Client, method: Any) -> Any:
    client.take(1)
    client.send(1, method)
    brokers.run_until(lambda: any(channel == 1 for channel, _ in client.received))
    return client.take(1)[-1]


def declare(brokers: ThreeBrokers, client: Client, name: str, arguments: dict[str, Any]) -> Any:
    return call(brokers, client, commands.Queue.Declare(queue=name, durable=True, arguments=arguments))


def record(brokers: ThreeBrokers, name: str, node: int = 1) -> QueueRecord:
    found = brokers.nodes[node].engine.catalog.queue("/", name)
    assert found is not None
    return found


def pass_ms(brokers: ThreeBrokers, ms: int) -> None:
    for _ in range(ms // TICK_MS):
        brokers.step()


def publish(client: Client, body: str, ttl: Any = None, key: str = "s", **options: Any) -> None:
    client.publish(1, key, body.encode(), headers=None if ttl is None else {"Nats-TTL": ttl}, **options)


def read(brokers: ThreeBrokers, client: Client, queue: str) -> list[Any]:
    """What is there, from the first on."""
    client.send(7, commands.Channel.Open())
    client.send(7, commands.Basic.Qos(prefetch_count=10_000))
    client.send(
        7, commands.Basic.Consume(queue=queue, consumer_tag="r", arguments={"x-stream-offset": "first"})
    )
    pass_ms(brokers, 500)
    found = [each for each in client.take(7) if hasattr(each, "body")]
    client.send(7, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    pass_ms(brokers, 200)
    client.take(7)
    return found


def bodies(brokers: ThreeBrokers, client: Client, queue: str) -> list[str]:
    return [each.body.decode() for each in read(brokers, client, queue)]


def offsets(found: list[Any]) -> list[int]:
    return [each.properties.headers["x-stream-offset"] for each in found]


def remove(brokers: ThreeBrokers, queue: str, offset: int) -> None:
    """As `DELETE .../stream/messages/{offset}` does."""
    answers: list[object] = []
    of = record(brokers, queue)
    brokers.nodes[1].engine.shard(of.shard).submit(encode_delete_offset(of.id, offset), answers.append)
    brokers.run_until(lambda: answers)


# ---------------------------------------------------------------------------------------------- ADR-43


@BOTH
def test_j4_headers_of_ttls_are_always_stored(brokers: ThreeBrokers, copying: dict[str, Any]) -> None:
    """ADR-43: sources and mirrors accept and store messages with the header, though the setting is off."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", ALLOWS)
    declare(brokers, client, "copy", copying)
    publish(client, "a", "5s")
    pass_ms(brokers, 1_000)
    (found,) = read(brokers, client, "copy")
    assert (found.body, found.properties.headers["Nats-TTL"]) == (b"a", "5s")
    # And with the setting off it is just stored.
    pass_ms(brokers, 60_000)
    assert bodies(brokers, client, "s") == []
    assert bodies(brokers, client, "copy") == ["a"]


@BOTH
def test_j4_with_the_opt_in_messages_leave_after_their_ttl(brokers: ThreeBrokers, copying: dict[str, Any]) -> None:
    """ADR-43: with the setting on, processing continues as for what is published."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", ALLOWS)
    declare(brokers, client, "copy", {**copying, "x-allow-msg-ttl": True, "x-max-age": "20s"})
    for body, ttl in (("a", "5s"), ("never", "never"), ("plain", None)):
        publish(client, body, ttl)
    pass_ms(brokers, 3_000)
    assert bodies(brokers, client, "copy") == ["a", "never", "plain"]
    pass_ms(brokers, 3_000)
    assert bodies(brokers, client, "copy") == ["never", "plain"]
    pass_ms(brokers, 20_000)
    assert bodies(brokers, client, "copy") == ["never"]


def test_j4_a_source_may_leave_markers(brokers: ThreeBrokers) -> None:
    """ADR-43: sources may set the TTL of markers, and what has a TTL leaves them there."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", ALLOWS)
    declare(brokers, client, "copy", {**SOURCE, "x-allow-msg-ttl": True, "x-delete-marker-ttl": 5})
    publish(client, "a", "5s")
    pass_ms(brokers, 6_500)
    (marker,) = read(brokers, client, "copy")
    assert (marker.body, marker.method.routing_key) == (b"", "s")
    assert marker.properties.headers["Nats-Marker-Reason"] == "MaxAge"
    assert bodies(brokers, client, "s") == []


def test_j4_a_mirror_takes_no_ttl_of_markers(client: Client) -> None:
    """ADR-43: mirrors may not enable it: sequences would not match."""
    client.declare("s", arguments=STREAM)
    client.send(1, commands.Queue.Declare(queue="m", durable=True, arguments={**MIRROR, "x-delete-marker-ttl": 5}))
    kind, code, text = closed(client.take()[-1])
    assert (kind, code) == ("channel", 406)
    assert "invalid arg 'x-delete-marker-ttl' for queue 'm'" in text and "leaves no markers" in text


def test_j4_an_audit_trail_keeps_what_leaves_elsewhere_markers_among_it(brokers: ThreeBrokers) -> None:
    """ADR-43: a stream with the feature can replicate to one without, where all that would have left is kept; and so
    are markers."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", {**ALLOWS, "x-delete-marker-ttl": 2})
    declare(brokers, client, "trail", MIRROR)
    declare(brokers, client, "trail of trail", {**STREAM, "x-mirror": "trail"})
    publish(client, "a", "2s")
    pass_ms(brokers, 3_000)
    publish(client, "b", "2s")
    pass_ms(brokers, 10_000)
    assert bodies(brokers, client, "s") == []
    for name in ("trail", "trail of trail"):
        found = read(brokers, client, name)
        assert [each.body.decode() for each in found] == ["a", "", "b", ""]
        assert offsets(found) == [0, 1, 2, 3]
        assert [each.properties.headers.get("Nats-Marker-Reason") for each in found] == [None, "MaxAge", None, "MaxAge"]
        assert found[1].properties.headers["Nats-TTL"] == "2s"


# ---------------------------------------------------------------------------------------------- offsets, order, content


def test_j4_a_mirror_has_the_offsets_of_its_stream(brokers: ThreeBrokers) -> None:
    """Those that were gone when it was declared are gaps there, too; what leaves the stream later stays in it."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", STREAM)
    for body in "abcdef":
        publish(client, body)
    pass_ms(brokers, 300)
    remove(brokers, "s", 1)
    remove(brokers, "s", 5)
    declare(brokers, client, "m", {**MIRROR, "x-max-length-bytes": 1000})
    pass_ms(brokers, 1_000)
    publish(client, "g", mandatory=True)
    pass_ms(brokers, 1_000)
    remove(brokers, "s", 2)
    found = read(brokers, client, "m")
    assert ([each.body.decode() for each in found], offsets(found)) == (list("acdeg"), [0, 2, 3, 4, 6])


def test_j4_a_source_says_where_a_message_is_from(brokers: ThreeBrokers) -> None:
    """Beside what is published to it; all else of the message is as it was."""
    client = brokers.nodes[1].client()
    for name in ("s", "t"):
        declare(brokers, client, name, STREAM)
        call(brokers, client, commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key=f"{name}.*"))
    declare(brokers, client, "all", {**STREAM, "x-sources": ["s", "t"]})
    declare(brokers, client, "again", {**STREAM, "x-sources": ["all"]})
    client.publish(1, "s.a", b"one", exchange="amq.topic", content_type="text/plain", priority=3, headers={"h": 1})
    pass_ms(brokers, 500)
    client.publish(1, "all", b"own")
    pass_ms(brokers, 500)
    client.publish(1, "t.b", b"two", exchange="amq.topic")
    pass_ms(brokers, 500)
    one, own, two = read(brokers, client, "all")
    assert (one.method.exchange, one.method.routing_key, one.body) == ("amq.topic", "s.a", b"one")
    assert (one.properties.content_type, one.properties.priority) == ("text/plain", 3)
    assert one.properties.headers == {"h": 1, "x-stream-source": "s 0", "x-stream-offset": 0}
    assert own.properties.headers == {"x-stream-offset": 1}
    assert two.properties.headers["x-stream-source"] == "t 0"
    assert [each.properties.headers["x-stream-source"] for each in read(brokers, client, "again")] == [
        "all 0", "all 1", "all 2"
    ]  # fmt: skip


def test_j4_large_and_many_messages_come_as_they_are(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", STREAM)
    sizes = [0, 1, *[80_000] * 9, 5, *range(2_500)]
    for number, size in enumerate(sizes):
        client.publish(1, "s", b"%06d" % number + b"x" * size)
    pass_ms(brokers, 3_000)
    declare(brokers, client, "m", MIRROR)
    pass_ms(brokers, 5_000)
    found = read(brokers, client, "m")
    assert [int(each.body[:6]) for each in found] == list(range(len(sizes)))
    assert [len(each.body) - 6 for each in found] == sizes


# ---------------------------------------------------------------------------------------------- leaders that die


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("which", ["origin", "copy"])
@BOTH
def test_j4_each_comes_once_and_in_order_whichever_leader_dies(
    copying: dict[str, Any], which: str, nodes: int
) -> None:
    """With five nodes the leader of the one has no replica of the other at first."""
    brokers = ThreeBrokers(shards=3 if nodes == 3 else 10, nodes=nodes)
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    declare(brokers, client, "s", STREAM)

    def leader(shard: int) -> int:
        groups = {id: node.engine.host.groups.get(shard) for id, node in brokers.nodes.items() if id not in brokers.cut}
        return next((id for id, group in groups.items() if group is not None and group.established), 0)

    origin = record(brokers, "s").shard
    for number in itertools.count():
        name = f"copy{number}"
        declare(brokers, client, name, copying)
        shard = record(brokers, name).shard
        if shard not in brokers.nodes[leader(origin)].engine.shards if nodes > 3 else shard != origin:
            break
    dying = origin if which == "origin" else record(brokers, name).shard

    sent = 0
    for _ in range(3):
        for _ in range(40):
            publish(client, f"m{sent}")
            sent += 1
            brokers.step()
        brokers.run_until(lambda: not any(node.broker.owes_answers for node in brokers.nodes.values()))
        publish(client, f"m{sent}")
        sent += 1
        brokers.run_until(lambda: leader(dying))
        dead = leader(dying)
        if dead != 1:
            brokers.cut.add(dead)
            pass_ms(brokers, 4_000)
            brokers.cut.discard(dead)
        pass_ms(brokers, 4_000)
    assert not any(refused for _, _, refused in client.acks())
    pass_ms(brokers, 3_000)
    expected = [f"m{each}" for each in range(sent)]
    assert bodies(brokers, client, "s") == expected
    found = read(brokers, client, name)
    assert [each.body.decode() for each in found] == expected
    if copying is SOURCE:
        assert [each.properties.headers["x-stream-source"] for each in found] == [f"s {each}" for each in range(sent)]


# ---------------------------------------------------------------------------------------------- refusals


def test_j4_a_mirror_is_read_only(client: Client) -> None:
    """Nothing is published to it by its name, and nothing is bound to it."""
    client.declare("s", arguments=STREAM)
    client.declare("m", arguments=MIRROR)
    published: list[dict[str, Any]] = [{"key": "m"}, {"key": "elsewhere", "headers": {"CC": ["m"]}}]
    for options in published:
        client.publish(1, **options)
        assert closed(client.take()[-1]) == (
            "channel", 406,
            "PRECONDITION_FAILED - queue 'm' in vhost '/' is read-only: it has the messages of stream 's' alone "
            "(x-mirror)",
        )  # fmt: skip
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    client.open_channel(2, confirms=True)
    client.publish(2, "m", mandatory=True)
    client.publish(2, "s")
    assert client.acks(2) == [(1, False, True), (2, False, False)]
    client.call(1, commands.Tx.Select())
    client.publish(1, "m")
    assert closed(client.take()[-1])[1] == 406
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.send(1, commands.Queue.Bind(queue="m", exchange="amq.fanout", routing_key=""))
    assert "is read-only" in closed(client.take()[-1])[2]
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.declare("m", arguments=MIRROR).message_count == 0
    assert client.declare("s", arguments=STREAM).message_count == 1


def test_j4_dead_letters_have_no_route_to_a_mirror(world: Any, client: Client) -> None:
    client.declare("s", arguments=STREAM)
    client.declare("m", arguments=MIRROR)
    client.declare(
        "q", arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "m"}
    )
    client.publish(1, "q")
    world.advance(1_000)
    assert client.declare("m", arguments=MIRROR).message_count == 0
    assert sum(len(local.shard.parked()) for local in world.cluster.shards.values()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"x-mirror": "nobody"}, 404, "no queue 'nobody' in vhost '/'"),
        ({"x-sources": ["s", "nobody"]}, 404, "no queue 'nobody' in vhost '/'"),
        ({"x-mirror": "q"}, 406, "queue 'new' in vhost '/' can't copy queue 'q' in vhost '/': it is no stream"),
        ({"x-mirror": "new"}, 406, "they would copy each other"),
        ({"x-sources": ["new"]}, 406, "they would copy each other"),
        ({"x-mirror": "s", "x-sources": ["s"]}, 406, "a stream has x-mirror or x-sources, not both"),
        ({"x-mirror": ""}, 406, "invalid arg 'x-mirror' for queue 'new' in vhost '/': the name of a stream expected"),
        ({"x-mirror": 5}, 406, "invalid arg 'x-mirror'"),
        ({"x-mirror": "x" * 256}, 406, "{value_too_long,256}"),
        ({"x-sources": []}, 406, "a list of 1 to 16 names of streams expected"),
        ({"x-sources": [f"s{number}" for number in range(17)]}, 406, "a list of 1 to 16 names of streams expected"),
        ({"x-sources": ["s", "s"]}, 406, "names of streams, each once, expected"),
        ({"x-sources": ["s", 5]}, 406, "names of streams, each once, expected"),
        ({"x-sources": "s"}, 406, "a list of 1 to 16 names of streams expected"),
        ({"x-sources": [""]}, 404, "no queue '' in vhost '/'"),
    ],
)  # fmt: skip
def test_j4_refused(client: Client, arguments: dict[str, Any], code: int, text: str) -> None:
    client.declare("s", arguments=STREAM)
    client.declare("q")
    client.send(1, commands.Queue.Declare(queue="new", durable=True, arguments={**STREAM, **arguments}))
    kind, was, told = closed(client.take()[-1])
    assert (kind, was) == ("channel", code)
    assert text in told
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.send(1, commands.Queue.Declare(queue="new", durable=True, passive=True))
    assert closed(client.take()[-1])[1] == 404


@pytest.mark.parametrize("arguments", [{"x-mirror": "s"}, {"x-sources": ["s"]}])
def test_j4_queues_copy_nothing(client: Client, arguments: dict[str, Any]) -> None:
    client.declare("s", arguments=STREAM)
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
    assert closed(client.take()[-1])[1] == 406


def test_j4_a_circle_is_refused_though_a_name_has_come_again(client: Client) -> None:
    """The origin of a copy goes, and comes again as a copy of that."""
    client.declare("s", arguments=STREAM)
    client.declare("t", arguments=SOURCE)
    client.declare("u", arguments={**STREAM, "x-mirror": "t"})
    client.call(1, commands.Queue.Delete(queue="s"))
    client.send(1, commands.Queue.Declare(queue="s", durable=True, arguments={**STREAM, "x-sources": ["u"]}))
    assert "they would copy each other" in closed(client.take()[-1])[2]


def test_j4_a_redeclare_is_equivalent_though_the_stream_is_gone(client: Client) -> None:
    client.declare("s", arguments=STREAM)
    client.declare("m", arguments=MIRROR)
    client.call(1, commands.Queue.Delete(queue="s"))
    assert client.declare("m", arguments=MIRROR).message_count == 0
    client.send(1, commands.Queue.Declare(queue="m", durable=True, arguments=STREAM))
    assert "inequivalent arg 'x-mirror'" in closed(client.take()[-1])[2]


def test_j4_to_copy_a_stream_takes_the_right_to_read_it(world: Any) -> None:
    world.client().declare("s", arguments=STREAM)
    world.add_user("maker", "guest", "^m$", ".*", "^m$")
    client = world.client(user="maker", password="guest")
    for arguments in (MIRROR, SOURCE):
        client.send(1, commands.Queue.Declare(queue="m", durable=True, arguments=arguments))
        assert closed(client.take()[-1]) == (
            "channel", 403, "ACCESS_REFUSED - access to queue 's' in vhost '/' refused for user 'maker'"
        )  # fmt: skip
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)


def test_j4_a_stream_that_is_declared_anew(brokers: ThreeBrokers) -> None:
    """Of its name: sources have all of it as well, a mirror stays what it is."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "s", STREAM)
    declare(brokers, client, "m", MIRROR)
    declare(brokers, client, "all", SOURCE)
    publish(client, "old")
    pass_ms(brokers, 1_000)
    call(brokers, client, commands.Queue.Delete(queue="s"))
    pass_ms(brokers, 1_000)
    declare(brokers, client, "s", STREAM)
    publish(client, "new")
    pass_ms(brokers, 2_000)
    assert bodies(brokers, client, "m") == ["old"]
    assert bodies(brokers, client, "all") == ["old", "new"]


@pytest.mark.parametrize("way", ["confirms", "plain", "transaction", "copy"])
def test_j4_a_queue_that_has_a_mirrors_name_by_now_is_found_on_a_node_that_is_behind(
    brokers: ThreeBrokers, way: str
) -> None:
    """There the name is a mirror's still: nothing is refused before that is known to be so."""
    near, behind = brokers.leader(), brokers.followers()[0]
    client, publishing = brokers.nodes[near].client(), brokers.nodes[behind].client(channel=False)
    publishing.open_channel(1, confirms=way == "confirms")
    declare(brokers, client, "s", STREAM)
    declare(brokers, client, "m", MIRROR)
    brokers.run_until(lambda: brokers.nodes[behind].engine.catalog.queue("/", "m"))
    if way == "transaction":
        publishing.call(1, commands.Tx.Select())
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    call(brokers, client, commands.Queue.Delete(queue="m"))
    declare(brokers, client, "m", {})
    assert record(brokers, "m", behind).settings.mirror == "s"
    if way == "copy":
        publishing.publish(1, "elsewhere", headers={"CC": ["m"]})
    else:
        publishing.publish(1, "m")
    brokers.step()
    assert publishing.take(1) == []
    brokers.loses = lambda sender, to, message: False
    pass_ms(brokers, 1_000)
    if way == "transaction":
        assert isinstance(call(brokers, publishing, commands.Tx.Commit()), commands.Tx.CommitOk)
    if way == "confirms":
        assert publishing.acks() == [(1, False, False)]
    assert publishing.take(1) == []
    assert declare(brokers, client, "m", {}).message_count == 1


def test_j4_a_commit_has_no_route_to_a_mirror_that_has_the_name_by_then(world: Any, client: Client) -> None:
    """Its queue was deleted meanwhile, and declared anew as a mirror."""
    client.declare("s", arguments=STREAM)
    client.declare("m")
    client.call(1, commands.Tx.Select())
    client.publish(1, "m", mandatory=True)
    other = world.client()
    other.call(1, commands.Queue.Delete(queue="m"))
    other.declare("m", arguments=MIRROR)
    client.send(1, commands.Tx.Commit())
    returned, done = client.take(1)
    assert returned.method.reply_text == "NO_ROUTE"
    assert isinstance(done, commands.Tx.CommitOk)
    assert other.declare("m", arguments=MIRROR).message_count == 0
