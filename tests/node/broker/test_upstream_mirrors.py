"""Mirrors of streams in another cluster, as clients of both see them (RULES J4): over octets of AMQP alone, with
leaders and connections that break on either side."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from mayfly.cluster.group.pieces import PIECE_BYTES, PIECES_UNDER_WAY
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.versions import LEVEL_UPSTREAMS, VersionRange
from mayfly.node.dead_letter.stream_content import PLACE, StreamPlace, without_place
from mayfly.node.duties.upstream_mirrors import (
    CONNECTING,
    MOST_RETRY_MS,
    READING,
    REFUSED,
    STALLED_MS,
    WAITING,
    UpstreamLink,
)
from mayfly.node.shard.commands import encode_delete_offset
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.upstream.reader import UpstreamLogin
from tests.node.broker.test_stream_copies import bodies, offsets, publish, read, record, remove
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.broker.two_clusters import UPSTREAM, TwoClusters, call, declare
from tests.node.conftest import Client, closed

MIRROR: dict[str, Any] = {"x-mirror": "s", "x-upstream": UPSTREAM}


@pytest.fixture
def both() -> TwoClusters:
    return TwoClusters()


def begin(both: TwoClusters, stream: dict[str, Any], mirror: dict[str, Any]) -> tuple[Client, Client]:
    """A client there, where the stream is, and one here, where its mirror is."""
    there, here = both.there.nodes[1].client(), both.here.nodes[1].client()
    assert isinstance(declare(both.there, there, "s", stream), commands.Queue.DeclareOk)
    assert isinstance(declare(both.here, here, "m", mirror), commands.Queue.DeclareOk)
    return there, here


def link_of(both: TwoClusters) -> UpstreamLink:
    """The link of the mirror, which begins when its leader knows of it."""
    both.run_until(both.links)
    (link,) = both.links()
    return link


def next_offset(cluster: ThreeBrokers, name: str) -> int:
    """The next offset, as a replica knows it that is not cut off."""
    of = record(cluster, name)
    (id, *_) = [id for id in cluster.ids if id not in cluster.cut]
    queue = cluster.nodes[id].engine.shards[of.shard].queue(of.id)
    assert queue is not None
    assert queue.stream is not None
    return queue.stream.next_offset


def catch_up(both: TwoClusters) -> None:
    """Until the mirror has all that the stream has."""
    both.run_until(lambda: next_offset(both.here, "m") == next_offset(both.there, "s"))


def publish_large(client: Client, key: str, body: bytes, **properties: Any) -> None:
    """In frames of 100 000 octets."""
    parts = [
        frame.marshal(commands.Basic.Publish(exchange="", routing_key=key), 1),
        frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties(**properties)), 1),
    ]
    pieces = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    parts += [frame.marshal(ContentBody(piece), 1) for piece in pieces]
    client.send_bytes(b"".join(parts))


def test_j4_a_mirror_of_a_stream_elsewhere_has_its_messages_at_their_offsets(both: TwoClusters) -> None:
    """With gaps, whatever the octets' pieces: names, properties, headers and bodies of any size."""
    both.piece = 1000
    both.reachable = False
    there, here = begin(both, {}, MIRROR)
    there.publish(1, "s", b"plain")
    there.publish(1, "s", b"", content_type="text/plain", headers={"of": "mine", "x-stream-place": "not this"})
    publish(there, "deleted")
    publish_large(there, "s", bytes(300_000), message_id="large")
    both.pass_ms(200)
    remove(both.there, "s", 2)
    publish(there, "last")
    both.reachable = True
    catch_up(both)
    found = read(both.here, here, "m")
    assert offsets(found) == [0, 1, 3, 4]
    assert [each.body for each in found] == [b"plain", b"", bytes(300_000), b"last"]
    assert found[1].properties.content_type == "text/plain"
    assert found[1].properties.headers["of"] == "mine"
    assert (found[2].properties.message_id, found[0].method.routing_key) == ("large", "s")
    assert list(found[0].properties.headers) == ["x-stream-offset"]


@pytest.mark.parametrize("breaks", [False, True])
def test_j4_large_messages_of_a_stream_elsewhere_come_in_pieces_and_the_others_in_their_order(
    both: TwoClusters, breaks: bool
) -> None:
    """No entry, and no frame to another node, has more than some pieces of one; whatever breaks meanwhile."""
    there, _ = begin(both, {}, MIRROR)
    large = random.Random(1).randbytes(3 * PIECE_BYTES)
    wanted = [b"1", b"2", large, b"3", large[1:], large[2:], b"4"]
    both.run_until(lambda: link_of(both).state == READING)
    largest: list[int] = []

    def watch(frame: Frame) -> None:
        largest.append(max([len(entry.data) for _, message in frame.raft for entry in message.entries], default=0))
        largest.append(sum(len(batch) for _, batch in frame.proposals))

    both.here.watches = watch
    for body in wanted:
        publish_large(there, "s", body)
    if breaks:
        both.run_until(lambda: next_offset(both.here, "m") == 3)
        link_of(both).lost(link_of(both).attempts, "the network", both.here.now_ms)
    catch_up(both)
    assert max(largest) <= PIECES_UNDER_WAY * PIECE_BYTES + 4_096
    found: list[bytes] = []
    for node in 1, 2:
        reader = both.here.nodes[node].client()
        reader.send(7, commands.Channel.Open())
        reader.send(7, commands.Basic.Qos(prefetch_count=4 if node == 1 else 3))
        first: dict[str, Any] = {"x-stream-offset": 0 if node == 1 else 4}
        reader.send(7, commands.Basic.Consume(queue="m", consumer_tag="r", arguments=first))
        both.pass_ms(500)
        found += [bytes(each.body) for each in reader.take(7) if hasattr(each, "body")]
    assert found == wanted


def test_j4_what_has_left_the_stream_elsewhere_is_in_no_mirror(both: TwoClusters) -> None:
    there, here = begin(both, {}, MIRROR)
    both.reachable = False
    for body in "abc":
        publish(there, body)
    both.pass_ms(200)
    remove(both.there, "s", 0)
    both.break_all()
    both.reachable = True
    catch_up(both)
    assert offsets(read(both.here, here, "m")) == [1, 2]


def test_j4_a_mirror_elsewhere_keeps_markers_and_what_has_expired(both: TwoClusters) -> None:
    """ADR-43, of mirrors: an audit trail without the opt-in; with it, messages leave in their time, markers too."""
    there, here = begin(both, {"x-allow-msg-ttl": True, "x-delete-marker-ttl": "5s"}, MIRROR)
    declare(both.here, here, "honours", {**MIRROR, "x-allow-msg-ttl": True, "x-stream-key-index": True})
    publish(there, "a", "10s")
    both.pass_ms(2_000)
    assert bodies(both.here, here, "honours") == ["a"]
    both.pass_ms(9_500)
    trail = read(both.here, here, "m")
    assert [(each.body, each.properties.headers.get("x-marker-reason")) for each in trail] == [
        (b"a", None), (b"", "MaxAge")
    ]  # fmt: skip
    (marker,) = read(both.here, here, "honours")
    assert (marker.properties.headers["x-stream-offset"], marker.properties.headers["Nats-TTL"]) == (1, "5s")
    of = record(both.here, "honours")
    queue = both.here.nodes[1].engine.shards[of.shard].queue(of.id)
    assert queue is not None
    assert queue.ready.items[queue.ready.head].marker_reason
    both.pass_ms(6_000)
    assert read(both.here, here, "honours") == []
    assert len(read(both.here, here, "m")) == 2


def test_j4_a_mirror_elsewhere_counts_from_when_a_message_came_to_its_stream(both: TwoClusters) -> None:
    there, here = begin(both, {"x-allow-msg-ttl": True}, {**MIRROR, "x-allow-msg-ttl": True})
    both.run_until(lambda: link_of(both).state == READING)
    both.reachable = False
    both.break_all()
    publish(there, "a", "20s")
    both.pass_ms(15_000)
    both.reachable = True
    catch_up(both)
    assert bodies(both.here, here, "m") == ["a"]
    both.pass_ms(6_000)
    assert bodies(both.here, here, "m") == []


@pytest.mark.parametrize("seed", range(4))
def test_j4_a_mirror_elsewhere_has_each_once_and_in_order_whatever_breaks(seed: int) -> None:
    """Leaders die on either side, sockets break with what is on its way, and commands of the mirror get lost."""
    chance = random.Random(seed)
    both = TwoClusters(piece=777)
    begin(both, {}, MIRROR)
    expected = 0
    for _ in range(12):
        cluster = chance.choice([both.there, both.here])
        leads = next((id for id in cluster.ids if cluster.nodes[id].engine.leads(1)), 1)
        what = chance.randrange(4)
        if what == 0:
            both.break_all()
        elif what < 3:
            cluster.cut.add(leads)
            both.pass_ms(chance.randrange(0, 3_000, 50))
            if cluster is both.there and both.to == leads:
                both.break_all()
                both.to = leads % 3 + 1
        (alive, *_) = [id for id in both.there.ids if id not in both.there.cut]
        client = both.there.nodes[alive].client(channel=False)
        client.send(1, commands.Channel.Open())
        client.send(1, commands.Confirm.Select())
        both.run_until(lambda client=client: len(client.take(1)) or client.connection.amqp.should_close)  # type: ignore[misc]
        for _ in range(chance.randrange(1, 40)):
            client.publish(1, "s", b"%d" % expected)
            expected += 1
        both.pass_ms(chance.randrange(0, 500, 50))
        both.run_until(lambda expected=expected: next_offset(both.there, "s") == expected)  # type: ignore[misc]
        for each in (both.there, both.here):
            each.cut.clear()
    both.break_all()
    catch_up(both)
    both.pass_ms(1_000)
    (alive, *_) = both.here.ids
    found = read(both.here, both.here.nodes[alive].client(), "m")
    assert [(each.properties.headers["x-stream-offset"], each.body) for each in found] == [
        (number, b"%d" % number) for number in range(expected)
    ]
    assert both.connections > 1


def test_j4_what_was_read_and_got_lost_is_read_again(both: TwoClusters) -> None:
    there, here = begin(both, {}, MIRROR)
    both.run_until(lambda: link_of(both).state == READING)
    (link,) = both.links()
    give, link._give = link._give, lambda command: None
    publish(there, "a")
    publish(there, "b")
    both.pass_ms(STALLED_MS + 100)
    assert (link.state, link.fault) == (WAITING, "what was read was not stored in time")
    link._give = give
    catch_up(both)
    assert bodies(both.here, here, "m") == ["a", "b"]


def test_j4_a_mirror_elsewhere_is_read_only_and_not_mixed_with_a_stream_that_is_declared_anew(
    both: TwoClusters,
) -> None:
    there, here = begin(both, {}, MIRROR)
    publish(there, "a")
    catch_up(both)
    here.publish(1, "m", b"mine")
    both.pass_ms(200)
    assert closed(here.take()[-1])[1] == 406
    call(both.there, there, commands.Queue.Delete(queue="s"))
    declare(both.there, there, "s", {})
    for body in "xyz":
        publish(there, body)
    both.run_until(lambda: "declared anew" in both.links()[0].fault)
    both.pass_ms(40_000)
    assert bodies(both.here, both.here.nodes[1].client(), "m") == ["a"]


@pytest.mark.parametrize(("cluster", "later_ms"), [("another", 0), ("one", 500)])
def test_j4_a_mirror_does_not_go_on_with_a_stream_of_another_cluster(
    both: TwoClusters, cluster: str, later_ms: int
) -> None:
    """That has the same queue id there; a cluster that was founded anew is even called as the one before."""
    for node in both.there.nodes.values():
        node.broker.settings.cluster_id = "one"
    there, _ = begin(both, {}, MIRROR)
    for body in "abc":
        publish(there, body)
    catch_up(both)
    id = record(both.there, "s").id
    both.break_all()
    both.there = ThreeBrokers(shards=1)
    for node in both.there.nodes.values():
        node.broker.settings.cluster_id = cluster
    for _ in range(later_ms // TICK_MS):
        both.there.step()
    there = both.there.nodes[1].client()
    declare(both.there, there, "s", {})
    assert record(both.there, "s").id == id
    for body in "12345":
        publish(there, body)
    both.run_until(lambda: "declared anew" in both.links()[0].fault)
    both.pass_ms(20_000)
    assert bodies(both.here, both.here.nodes[1].client(), "m") == ["a", "b", "c"]


def test_j4_a_stream_that_is_declared_anew_and_is_shorter_than_its_mirror_is_noticed(both: TwoClusters) -> None:
    there, _ = begin(both, {}, MIRROR)
    for body in "abcde":
        publish(there, body)
    catch_up(both)
    call(both.there, there, commands.Queue.Delete(queue="s"))
    declare(both.there, there, "s", {})
    for body in "xyz":
        publish(there, body)
    both.run_until(lambda: "declared anew" in both.links()[0].fault)
    both.pass_ms(5_000)
    assert bodies(both.here, both.here.nodes[1].client(), "m") == ["a", "b", "c", "d", "e"]


def test_j4_what_the_other_side_sends_is_no_defect_of_this_node(
    both: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    there, here = begin(both, {}, MIRROR)
    both.run_until(lambda: link_of(both).state == READING)
    (link,) = both.links()
    give = link._give

    def fails(command: bytes) -> None:
        raise IndexError("what nobody thought of")

    link._give = fails
    publish(there, "a")
    both.run_until(lambda: link.fault)
    assert (link.state, "can't be taken" in link.fault) == (WAITING, True)
    assert "what nobody thought of" in caplog.text
    link._give = give
    catch_up(both)
    assert bodies(both.here, here, "m") == ["a"]


def test_j4_what_an_older_connection_says_or_meets_is_dropped(both: TwoClusters) -> None:
    begin(both, {}, MIRROR)
    both.run_until(lambda: link_of(both).state == READING)
    (link,) = both.links()
    both.reachable = False
    older = link.attempts
    both.break_all()
    link.connected(older, both.login, both.here.now_ms)
    assert (link.state, link.is_open(older)) == (WAITING, False)
    newer = link.connecting()
    link.connected(older, both.login, both.here.now_ms)
    link.lost(older, "late", both.here.now_ms)
    assert (link.state, link.fault, link.is_open(newer)) == (CONNECTING, "broken", False)
    link.connected(newer, both.login, both.here.now_ms)
    link.receive(older, b"HTTP/1.1 400 Bad Request\r\n\r\n", both.here.now_ms)
    assert (link.take_output(older), link.is_open(older), link.is_open(newer)) == (b"", False, True)
    assert link.take_output(newer).startswith(b"AMQP")


def test_j4_mirrors_whose_connections_broke_at_once_do_not_connect_at_once(both: TwoClusters) -> None:
    both.reachable = False
    begin(both, {}, MIRROR)
    link, now_ms, after_ms = link_of(both), both.here.now_ms, set()
    for _ in range(30):
        link.lost(link.connecting(), "broken", now_ms)
        after_ms.add(next(ms for ms in range(MOST_RETRY_MS + 1) if link.wants_connection(now_ms + ms)))
    assert len(after_ms) > 10
    assert min(after_ms) > 0


def test_a_place_that_no_shard_can_hold_is_none() -> None:
    def said(ms: int) -> StreamPlace | None:
        properties = commands.Basic.Properties(headers={PLACE: f"1 2 {ms} 0"})
        return without_place(header.ContentHeader(0, 0, properties).marshal())[1]

    assert said(MAX_NUMBER) == StreamPlace(1, 2, MAX_NUMBER, 0)
    assert said(MAX_NUMBER + 1) is None


def test_j4_how_far_a_mirror_of_a_stream_elsewhere_is(both: TwoClusters) -> None:
    there, _ = begin(both, {}, MIRROR)
    both.reachable = False
    assert link_of(both).shown().lag == -1
    both.reachable = True
    publish(there, "a")
    catch_up(both)
    assert both.links()[0].shown()[3:] == (READING, "", 1, 1)
    both.reachable = False
    both.break_all()
    publish(there, "b")
    publish(there, "c")
    both.pass_ms(200)
    assert both.links()[0].shown()[3:5] == (WAITING, "broken")
    # What comes is looked at alone first: so it is known how much there is before it is here.
    of = record(both.there, "s")
    both.there.nodes[1].engine.shard(of.shard).submit(encode_delete_offset(of.id, 1), None)
    both.reachable = True
    catch_up(both)
    both.pass_ms(6_000)
    assert both.links()[0].shown()[3:] == (READING, "", 3, 3)


def test_j4_a_connection_that_is_refused_is_tried_again_later_and_later(both: TwoClusters) -> None:
    both.login = UpstreamLogin("guest", "wrong", "/")
    begin(both, {}, MIRROR)
    both.pass_ms(20_000)
    (link,) = both.links()
    assert link.fault.startswith("the other side has closed the connection: 403 'ACCESS_REFUSED")
    assert 4 <= both.connections <= 7
    assert "wrong" not in repr(both.login)
    both.login = UpstreamLogin("guest", "guest", "/")
    both.run_until(lambda: link_of(both).state == READING)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("absent", "has no cluster 'absent'"), ("other", "does not allow mirrors of 'other' in vhost '/'")],
)
def test_j4_a_cluster_that_the_settings_do_not_have_is_not_read(both: TwoClusters, name: str, fault: str) -> None:
    for node in both.here.nodes.values():
        node.engine.upstreams.allowed = {"other": frozenset({"private"})}
    begin(both, {}, {**MIRROR, "x-upstream": name})
    both.pass_ms(1_000)
    (link,) = both.links()
    assert (link.state, both.connections) == (REFUSED, 0)
    assert fault in link.fault


def test_j4_arguments_of_mirrors_elsewhere_that_are_refused(both: TwoClusters) -> None:
    client = both.here.nodes[1].client()
    got = closed(declare(both.here, client, "m", {"x-upstream": UPSTREAM}))
    assert (got[1], "x-mirror" in got[2]) == (406, True)
    client = both.here.nodes[1].client()
    got = closed(declare(both.here, client, "m", {"x-queue-type": "quorum", "x-upstream": UPSTREAM}))
    assert got[1] == 406


def test_j4_below_its_level_there_is_no_mirror_of_a_stream_elsewhere() -> None:
    brokers = ThreeBrokers(levels=VersionRange(7, LEVEL_UPSTREAMS - 1))
    client = brokers.nodes[1].client()
    assert isinstance(declare(brokers, client, "s", {}), commands.Queue.DeclareOk)
    got = closed(declare(brokers, client, "m", MIRROR))
    assert (got[1], "x-upstream" in got[2]) == (406, True)
