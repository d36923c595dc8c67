"""Length limits, refusals and the reasons of death as a client sees them, with fake time."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.node.limits import CONSUMER_TIMEOUT_MS
from tests.node.readings import statistics_of

MAX_LENGTH = "x-max-length"
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
REJECT = {"x-overflow": "reject-publish"}
REJECT_DLX = {"x-overflow": "reject-publish-dlx"}


def confirming(client: Any) -> Any:
    """Channel 2, in confirm mode."""
    client.open_channel(2, confirms=True)
    return client


def settled(client: Any, last: int) -> list[bool]:
    """Whether each of the publishes up to now was refused; each must be settled, and once."""
    refused: dict[int, bool] = {}
    told = 0
    for tag, multiple, nack in client.acks(2):
        first = told + 1 if multiple else tag
        for sequence in range(first, tag + 1):
            if multiple and sequence in refused:
                continue
            assert sequence not in refused, f"{sequence} is settled twice"
            refused[sequence] = nack
        while told + 1 in refused:
            told += 1
    assert sorted(refused) == list(range(1, last + 1))
    return [refused[sequence] for sequence in sorted(refused)]


def bodies(client: Any, queue: str) -> list[str]:
    found = []
    while isinstance(got := client.get(queue), object) and hasattr(got, "body"):
        found.append(got.body.decode())
    return found


def deaths(message: Any) -> list[tuple[str, str, int]]:
    return [(d["queue"], d["reason"], d["count"]) for d in message.properties.headers["x-death"]]


def summary(message: Any) -> dict[str, str]:
    return {key: value for key, value in message.properties.headers.items() if key != "x-death"}


def test_d2_d3_d4_overflow_has_the_headers_of_maxlen(client: Any) -> None:
    client.declare("dead")
    client.declare("q", arguments={MAX_LENGTH: 2, **TO_DEAD})
    for number in range(5):
        client.publish(1, "q", str(number).encode(), expiration="60000")
    first = client.get("dead")
    (death,) = first.properties.headers["x-death"]
    assert (first.body, death["reason"], death["count"], death["queue"]) == (b"0", "maxlen", 1, "q")
    assert (death["exchange"], death["routing-keys"], death["original-expiration"]) == ("", ["q"], "60000")
    assert first.properties.expiration is None
    assert summary(first) == {
        f"x-{which}-death-{what}": value
        for which in ("first", "last")
        for what, value in (("queue", "q"), ("reason", "maxlen"), ("exchange", ""))
    }
    assert (bodies(client, "dead"), bodies(client, "q")) == (["1", "2"], ["3", "4"])


@pytest.mark.parametrize("transient", [False, True])
def test_d2_a_full_queue_nacks_each_publish_it_refuses(client: Any, transient: bool) -> None:
    confirming(client)
    client.declare("q", durable=not transient, exclusive=transient, arguments={MAX_LENGTH: 2, **REJECT})
    client.send_bytes(b"".join(client.publish_bytes(2, "q", str(n).encode()) for n in range(5)))
    assert settled(client, 5) == [False, False, True, True, True]
    assert bodies(client, "q") == ["0", "1"]


def test_d2_refusals_and_acceptances_of_one_run_are_told_apart(client: Any) -> None:
    confirming(client)
    client.declare("q", arguments={"x-max-length-bytes": 4, **REJECT})
    sizes = [b"aaa", b"bb", b"c", b"d", b""]
    client.send_bytes(b"".join(client.publish_bytes(2, "q", body) for body in sizes))
    assert settled(client, 5) == [False, True, False, True, False]
    assert bodies(client, "q") == ["aaa", "c", ""]


def test_d2_one_refusal_of_several_targets_is_a_nack_and_the_others_keep_it(client: Any) -> None:
    """As in RabbitMQ, whether the queues share a shard or not."""
    confirming(client)
    names = [f"q{number}" for number in range(8)]
    for name in names:
        limits = {MAX_LENGTH: 1, **REJECT} if name == "q3" else {}
        client.declare(name, arguments=limits)
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    client.send_bytes(b"".join(client.publish_bytes(2, "", b"m", exchange="amq.fanout") for _ in range(3)))
    assert settled(client, 3) == [False, True, True]
    assert [client.count(name) for name in names] == [1 if name == "q3" else 3 for name in names]


def test_d2_without_confirms_a_refused_publish_is_gone(client: Any) -> None:
    client.declare("q", arguments={MAX_LENGTH: 1, **REJECT})
    client.publish(1, "q", b"a")
    client.publish(1, "q", b"b", mandatory=True)
    assert (client.take(1), bodies(client, "q")) == ([], ["a"])


def test_d2_reject_publish_dlx_nacks_and_dead_letters(client: Any) -> None:
    confirming(client)
    client.declare("dead")
    client.declare("q", arguments={MAX_LENGTH: 1, **REJECT_DLX, **TO_DEAD})
    client.send_bytes(b"".join(client.publish_bytes(2, "q", body) for body in (b"a", b"b", b"c")))
    assert settled(client, 3) == [False, True, True]
    got = [client.get("dead"), client.get("dead")]
    assert [(each.body, deaths(each)) for each in got] == [
        (b"b", [("q", "maxlen", 1)]),
        (b"c", [("q", "maxlen", 1)]),
    ]
    assert bodies(client, "q") == ["a"]


def test_d2_length_zero(client: Any) -> None:
    """As recorded in dlx.maxlen_zero; a consumer that waits gets what it can take."""
    client.declare("dead")
    client.declare("q", arguments={MAX_LENGTH: 0, **TO_DEAD})
    client.publish(1, "q", b"a")
    assert deaths(client.get("dead")) == [("q", "maxlen", 1)]
    client.consume("q")
    client.publish(1, "q", b"b")
    assert [each.body for each in client.take(1)] == [b"b"]


def test_limits_of_any_size_are_taken(client: Any) -> None:
    """Golden args.length_args takes 2^40; nothing larger breaks the shard either."""
    for number, arguments in enumerate(
        [
            {MAX_LENGTH: 2**40}, {MAX_LENGTH: 2**63 - 1}, {"x-max-length-bytes": 2**63 - 1},
            {"x-queue-type": "quorum", "x-delivery-limit": 2**63 - 1},
        ]
    ):  # fmt: skip
        assert isinstance(client.declare(f"q{number}", arguments=arguments), commands.Queue.DeclareOk)
        client.publish(1, f"q{number}", b"m")
        assert client.count(f"q{number}") == 1


def test_d2_delivery_limit(client: Any) -> None:
    """x-delivery-count as recorded; 20 where none is given; -1 is none; 0 is one delivery."""
    client.declare("dead")
    client.declare("q", arguments={"x-queue-type": "quorum", "x-delivery-limit": 2, **TO_DEAD})
    client.publish(1, "q")
    for count in range(3):
        got = client.get("q", no_ack=False)
        headers = got.properties.headers or {}
        assert (got.method.redelivered, headers.get("x-delivery-count")) == (count > 0, count or None)
        client.send(1, commands.Basic.Reject(delivery_tag=got.tag, requeue=True))
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)
    assert deaths(client.get("dead")) == [("q", "delivery_limit", 1)]

    for limit, deliveries in ((None, 21), (0, 1), (-1, 40)):
        name = f"limit {limit}"
        given = {} if limit is None else {"x-delivery-limit": limit}
        arguments = {"x-queue-type": "quorum", **given}
        client.declare(name, arguments=arguments)
        client.publish(1, name)
        seen = 0
        while seen < 40 and hasattr(got := client.get(name, no_ack=False), "body"):
            seen += 1
            client.send(1, commands.Basic.Reject(delivery_tag=got.tag, requeue=True))
        assert seen == deliveries


FAILED = {"x-acquired-count": 1, "x-delivery-count": 1}
GIVEN_BACK = {"x-acquired-count": 1}
RETURNS = {
    "nack": GIVEN_BACK, "reject": FAILED, "recover": GIVEN_BACK, "channel": FAILED, "connection": FAILED,
    "consumer": FAILED, "nack in a transaction": GIVEN_BACK, "reject in a transaction": FAILED,
    "recover in a transaction": GIVEN_BACK, "timeout": GIVEN_BACK,
}  # fmt: skip


@pytest.mark.parametrize("how", RETURNS)
def test_q1_which_returns_are_failed_deliveries(world: Any, client: Any, how: str) -> None:
    """As RabbitMQ 4.3.6 answers to each of these (golden count4.nack_and_reject, recover4, timeout4)."""
    client.declare("q", arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
    client.publish(1, "q")
    other = world.client()
    way, _, transaction = how.partition(" in ")
    if transaction:
        other.call(1, commands.Tx.Select())
    if how == "consumer":
        (got,) = other.consume("q")
        other.call(1, commands.Basic.Cancel(consumer_tag="tag"))
        assert client.count("q") == 0, "what a cancelled consumer holds stays held"
        other.lose()
    else:
        got = other.get("q", no_ack=False)
    if way == "nack":
        other.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    elif way == "reject":
        other.send(1, commands.Basic.Reject(delivery_tag=got.tag, requeue=True))
    elif way == "recover":
        other.call(1, commands.Basic.Recover(requeue=True))
    elif how == "channel":
        other.call(1, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    elif how == "connection":
        other.lose()
    elif how == "timeout":
        other.connection.channels[1].look_at_oldest(0)
        other.connection.channels[1].look_at_oldest(CONSUMER_TIMEOUT_MS)
    if transaction:
        other.call(1, commands.Tx.Commit())
    again = client.get("q")
    assert again.method.redelivered and again.properties.headers == RETURNS[how]


def test_q1_nacks_go_on_for_ever(client: Any) -> None:
    """The default limit of 20 is for deliveries that fail."""
    client.declare("q", arguments={"x-queue-type": "quorum"})
    client.publish(1, "q")
    for count in range(60):
        got = client.get("q", no_ack=False)
        assert got.properties.headers == ({"x-acquired-count": count} if count else None)
        client.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    assert client.get("q").properties.headers == {"x-acquired-count": 60}


@pytest.mark.parametrize("target", [{}, {"durable": False}], ids=["replicated", "transient"])
@pytest.mark.parametrize("source", [{}, {"durable": False}], ids=["from replicated", "from transient"])
@pytest.mark.parametrize(
    "steps, redelivered",
    [
        (["reject"], True),
        (["nack"], False),
        (["reject, requeued", "nack"], True),
        (["nack, requeued", "nack"], False),
        (["reject, requeued", "expire"], True),
        (["nack, requeued", "expire"], False),
        (["expire"], False),
    ],
)
def test_q1_a_dead_letter_is_redelivered_if_a_delivery_failed(
    world: Any, client: Any, source: dict[str, Any], target: dict[str, Any], steps: list[str], redelivered: bool
) -> None:
    """Recorded of 4.3.6 (dlx.reason_rejected, dlx.at_least_once, and by hand); counts begin anew in the dead-letter
    queue, in any shard, also after one more death."""
    ttl = {"x-message-ttl": 100} if steps[-1] == "expire" else {}
    for number in range(4):
        client.declare(f"end{number}")
        client.declare(f"dead{number}", arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"end{number}", "x-message-ttl": 1000,
        }, **target)  # fmt: skip
        client.declare(f"q{number}", arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"dead{number}", **ttl,
        }, **source)  # fmt: skip
        client.publish(1, f"q{number}")
        for step in steps:
            if step == "expire":
                continue
            got = client.get(f"q{number}", no_ack=False)
            way, _, requeued = step.partition(", ")
            method = commands.Basic.Reject if way == "reject" else commands.Basic.Nack
            client.send(1, method(delivery_tag=got.tag, requeue=bool(requeued)))
    world.advance(300)
    for number in range(4):
        dead = client.get(f"dead{number}", no_ack=False)
        assert dead.method.redelivered == redelivered
        assert not {"x-acquired-count", "x-delivery-count"} & dead.properties.headers.keys()
        client.send(1, commands.Basic.Nack(delivery_tag=dead.tag, requeue=True))
    again = [client.get(f"dead{number}", no_ack=False) for number in range(4)]
    counts = None if target else 1
    assert [each.properties.headers.get("x-acquired-count") for each in again] == 4 * [counts]


def test_d8_d7_dead_letters_wait_for_a_full_target_in_order(world: Any, client: Any) -> None:
    """Any shard, the source's own too: nothing is lost, nothing comes twice, others go on."""
    client.declare("full", arguments={MAX_LENGTH: 2, **REJECT})
    client.declare("free")
    for number in range(6):
        name = f"s{number}"
        client.declare(name, arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "amq.direct"})
        for target in ("full", "free"):
            client.call(1, commands.Queue.Bind(queue=target, exchange="amq.direct", routing_key=name))
        for message in range(5):
            client.publish(1, name, f"{name} {message}".encode())
    world.advance(300)
    assert client.count("full") == 2
    assert client.count("free") == 30
    shards = {local.shard_id: statistics_of(local.shard) for local in world.cluster.shards.values()}
    assert sum(statistics.outbox for statistics in shards.values()) == 28
    got: list[str] = []
    for _ in range(60):
        assert client.count("full") <= 2
        got += bodies(client, "full")
        world.advance(500)
    assert client.count("full") == 0
    for number in range(6):
        assert [body for body in got if body.startswith(f"s{number}")] == [f"s{number} {m}" for m in range(5)]
    assert sorted(bodies(client, "free")) == sorted(got)
    assert all(statistics_of(local.shard).outbox == 0 for local in world.cluster.shards.values())


def test_d9_a_drop_head_target_drops_what_is_too_much(world: Any, client: Any) -> None:
    client.declare("dead", arguments={MAX_LENGTH: 1})
    client.declare("q", arguments={"x-message-ttl": 100, **TO_DEAD})
    for body in (b"a", b"b", b"c"):
        client.publish(1, "q", body)
    world.advance(300)
    assert bodies(client, "dead") == ["c"]


@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit", "queue_expired"])
def test_d5_a_cycle_without_a_rejection_is_dropped(world: Any, client: Any, reason: str) -> None:
    """RULES D5 for each reason: the message dies in q, goes to back, and would come to q again by itself."""
    dying: dict[str, dict[str, Any]] = {
        "expired": {"x-message-ttl": 100},
        "maxlen": {MAX_LENGTH: 0},
        "delivery_limit": {"x-queue-type": "quorum", "x-delivery-limit": 0},
        "queue_expired": {"x-expires": 100, "x-expires-dead-letter": True},
    }
    limits = dying[reason]
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "back", **limits})
    client.declare(
        "back",
        arguments={"x-message-ttl": 500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
    )
    client.publish(1, "q")
    if reason == "delivery_limit":
        client.send(1, commands.Basic.Reject(delivery_tag=client.get("q", no_ack=False).tag, requeue=True))
    world.advance(200)
    if reason == "queue_expired":
        client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "back"})
    assert client.count("back") == 1
    world.advance(1000)
    assert (client.count("back"), client.count("q")) == (0, 0)
    statistics = [statistics_of(local.shard) for local in world.cluster.shards.values()]
    assert (sum(s.dropped_cycle for s in statistics), sum(s.parked for s in statistics)) == (1, 0)


def test_d3_d4_several_reasons_one_entry_each_and_the_first_stays_first(world: Any, client: Any) -> None:
    """maxlen in a, expired in b, maxlen in c: newest first; CC is kept in the first death's keys, BCC is not."""
    for name, limits, to in (
        ("a", {MAX_LENGTH: 0}, "b"), ("b", {"x-message-ttl": 50}, "c"), ("c", {MAX_LENGTH: 0}, "end"),
    ):  # fmt: skip
        client.declare(name, arguments={**limits, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to})
    client.declare("end")
    client.publish(1, "a", headers={"CC": ["nowhere"], "BCC": ["hidden"]})
    world.advance(200)
    got = client.get("end")
    assert deaths(got) == [("c", "maxlen", 1), ("b", "expired", 1), ("a", "maxlen", 1)]
    assert got.properties.headers["x-death"][2]["routing-keys"] == ["a", "nowhere"]
    found = summary(got)
    assert (found["x-first-death-queue"], found["x-first-death-reason"]) == ("a", "maxlen")
    assert (found["x-last-death-queue"], found["x-last-death-reason"]) == ("c", "maxlen")
    assert "BCC" not in found


def test_l11_what_an_expired_queue_leaves_is_dead_lettered(world: Any, client: Any) -> None:
    client.declare("dead")
    client.declare("q", arguments={"x-expires": 1000, "x-expires-dead-letter": True, **TO_DEAD})
    for body in (b"a", b"b"):
        client.publish(1, "q", body)
    world.advance(1100)
    got = client.get("dead")
    assert (got.body, deaths(got)) == (b"a", [("q", "queue_expired", 1)])
    assert got.properties.headers["x-last-death-reason"] == "queue_expired"
    assert client.get("dead").body == b"b"
    assert client.call(1, commands.Basic.Get(queue="q")).reply_code == 404


def test_l11_a_queue_with_messages_stays(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-expires": 500, "x-expires-if": "empty"})
    client.publish(1, "q", b"a", expiration="2000")
    world.advance(1900)
    assert world.cluster.catalog.queue("/", "q") is not None
    world.advance(200)
    assert world.cluster.catalog.queue("/", "q") is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-expires-if": "full"}, "invalid_expires_if"),
        ({"x-expires-if": 1}, "{unacceptable_type,"),
        ({"x-expires-dead-letter": "yes"}, "{unacceptable_type,longstr}"),
        ({"x-overflow": "drop-tail"}, "invalid_overflow"),
        ({MAX_LENGTH: -1}, "{value_negative,-1}"),
    ],
)
def test_bad_arguments_are_refused_in_the_style_of_the_others(client: Any, arguments: Any, text: str) -> None:
    refusal = client.declare("q", arguments=arguments)
    (name,) = arguments
    assert refusal.reply_code == 406
    before = f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': "
    assert refusal.reply_text.startswith(before + text)


def test_d8_a_parked_dead_letter_goes_once_it_has_a_route(world: Any, client: Any) -> None:
    """Nothing bound, then something: by itself and in order, as RabbitMQ's at-least-once tries again."""
    client.declare("q", arguments={MAX_LENGTH: 0, "x-dead-letter-exchange": "amq.direct"})
    client.publish(1, "q", b"a")
    client.publish(1, "q", b"b")
    world.advance(100)
    shard = world.cluster.shards[world.cluster.catalog.queue("/", "q").shard].shard
    assert (statistics_of(shard).parked, statistics_of(shard).outbox) == (2, 0)
    client.declare("late")
    world.advance(3000)
    assert statistics_of(shard).parked == 2
    client.call(1, commands.Queue.Bind(queue="late", exchange="amq.direct", routing_key="q"))
    world.advance(5100)
    assert (statistics_of(shard).parked, bodies(client, "late")) == (0, ["a", "b"])


def test_d8_at_most_once_drops_instead_of_parking(world: Any, client: Any) -> None:
    arguments = {MAX_LENGTH: 0, "x-dead-letter-exchange": "amq.direct", "x-dead-letter-strategy": "at-most-once"}
    client.declare("q", arguments=arguments)
    client.publish(1, "q", b"a")
    world.advance(100)
    statistics = statistics_of(world.cluster.shards[world.cluster.catalog.queue("/", "q").shard].shard)
    assert (statistics.parked, statistics.outbox, statistics.dropped_unroutable) == (0, 0, 1)


@pytest.mark.parametrize("durable", [True, False])
def test_d2_the_count_behind_publishes_in_one_piece_is_that_of_the_limit(client: Any, durable: bool) -> None:
    """As Bunny's own tests ask for it: 100 publishes, and at once a passive declare on the same channel."""
    client.declare("short", durable=durable, arguments={"x-max-length": 10})
    client.take()
    asked = frame.marshal(commands.Queue.Declare(queue="short", passive=True), 1)
    client.send_bytes(b"".join(client.publish_bytes(1, "short", b"%d" % number) for number in range(100)) + asked)
    (answer,) = client.take(1)
    assert answer.message_count == 10
    assert client.get("short").body == b"90"
