"""Snapshots: everything is in them, damaged ones change nothing."""

from functools import partial

import msgspec
import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.snapshot.reader import RestoreInSteps
from mayfly.node.shard.snapshot.writer import ShardSnapshotInSteps, snapshot
from mayfly.node.shard.state import State
from tests.node.readings import statistics_of
from tests.node.shard.driver import B, Driver, attach, encode_transfer, publish
from tests.node.shard.driver import publish as published
from tests.node.shard.test_dead_letters import content
from tests.node.shard.test_dead_letters import routed as decided


def everything(level: int = LEVEL_HIGHEST, header: bytes = b"") -> Driver:
    """A shard with something of each kind in its state; with the ``header``, in all that is published there."""
    driver = Driver(level=level)
    publish = partial(published, header=header)
    routed = partial(decided, header=header and header + b"er with x-death")
    driver.create(1, message_ttl_ms=100, dead_letter_exchange="dlx", expires_ms=60_000)
    driver.create(2, delivery_limit=5, single_active_consumer=True)
    driver.create(3)
    driver.create(4, expires_ms=5000)
    driver.run(*(publish(f"m{i}", 1) for i in range(6)))
    driver.pass_ms(100)
    driver.tick()
    driver.lead(
        commands.encode_route(
            [
                routed(1, "x", [2, 3], [(8, 80)]),
                routed(2, "y", [2], [(8, 80)]),
                commands.RouteDecision(3, commands.PARKED),
                commands.RouteDecision(4, commands.DROPPED_CYCLE),
            ]
        ),
        commands.encode_settled(80, 1),
        encode_transfer(9, 3, 1, [content("t", header and header + b"er with x-death")] * 2),
    )
    driver.run(attach(2, 5, prefetch=1), attach(2, 6, no_ack=True, priority=-1), attach(3, 5, prefetch=2))
    driver.run(attach(3, 5, window_bytes=300), commands.encode_get(1, 9, False), session=B)
    driver.run(publish("live", 1, ttl_ms=50), publish("held", 1), commands.encode_get(1, 99, False))
    driver.run(commands.encode_settle(2, 5, commands.REQUEUE, [1]), commands.encode_flow(3, 5, False))
    driver.run(commands.encode_delete_queue(4, False, False))
    driver.run(publish("k", 3), publish("k", 2, 3, ttl_ms=9999))
    driver.run(commands.encode_taken(3, 5, 200), session=B)
    return driver


def test_c1_a_restored_shard_is_the_same_and_goes_on_the_same() -> None:
    """RULES C1: bytes, due times, live entries, statistics; whoever is local."""
    driver = everything()
    state = driver.shard.snapshot()
    other = Shard(3, 2)
    other.restore(state)
    assert other.snapshot() == state
    assert other.digest() == driver.shard.digest() == driver.replay().digest()
    assert sorted(other.live_entries()) == sorted(driver.shard.live_entries())
    assert other.next_message_due_ms() == driver.shard.next_message_due_ms()
    assert other.next_lease_due_ms() == driver.shard.next_lease_due_ms()
    one, two = statistics_of(other), statistics_of(driver.shard)
    for name in (name for name in dir(one) if not name.startswith("_") and not callable(getattr(one, name))):
        assert getattr(one, name) == getattr(two, name), name
    assert other._state.live == driver.shard._state.live


def test_a_snapshot_is_small_when_messages_are_alike() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(*(publish("body", 1) for _ in range(1000)))
    assert len(driver.shard.snapshot()) < 1000 * 8 + 500


@pytest.mark.parametrize("messages_per_step", [1, 3, 10, 1000])
def test_a_snapshot_in_steps_is_the_one_of_the_moment_at_which_it_was_begun(messages_per_step: int) -> None:
    """RULES C1: whatever is applied between its steps, and however large they are."""
    driver = everything()
    state = driver.shard.snapshot()
    making = ShardSnapshotInSteps(driver.shard._state, messages_per_step)
    driver.run(publish("later", 1, 2, 3), commands.encode_purge(1), commands.encode_settle(2, 5, commands.ACK, [2]))
    driver.run(commands.encode_delete_queue(3, False, False))
    driver.pass_ms(20_000)
    driver.tick()
    steps = 1
    while (made := making.step()) is None:
        driver.run(publish("later still", 1, 2))
        steps += 1
    assert made == state != driver.shard.snapshot()
    assert steps > 1 or messages_per_step == 1000


def test_each_step_writes_a_bounded_number_of_messages() -> None:
    """So many steps as there is work: a node has to answer its peers between them, however much waits."""
    driver = Driver()
    driver.create(1)
    driver.create(2)
    for _ in range(20):
        driver.run(*(publish("body", 1 + number % 2) for number in range(100)))
    making = ShardSnapshotInSteps(driver.shard._state, 50)
    steps = 1
    while (made := making.step()) is None:
        steps += 1
    assert made == driver.shard.snapshot()
    assert steps > 2000 // 50


@pytest.mark.parametrize("messages_per_step", [1, 3, 10, 1000])
def test_a_snapshot_is_read_in_steps_and_is_the_state_at_the_end(messages_per_step: int) -> None:
    """RULES C1: until then the shard is what it was, and goes on as such."""
    source = everything()
    state = source.shard.snapshot()
    other = State(3, {1}, 100, 100)
    reading = RestoreInSteps(other, state, messages_per_step)
    steps = 1
    while not reading.step():
        steps += 1
    assert snapshot(other) == state
    assert other.live == source.shard._state.live
    assert steps > 10 or messages_per_step > 3
    driver = everything()
    whole = driver.shard.restore_steps(state)
    driver.run(publish("later", 1))
    before = driver.shard.digest()
    while not whole.step():
        pass
    assert driver.shard.digest() == before != source.shard.digest()
    whole.finish()
    assert driver.shard.digest() == source.shard.digest()


def test_each_step_reads_a_bounded_number_of_messages() -> None:
    """Many short lists count as well: queues, what consumers hold, dead letters."""
    driver = Driver()
    for queue in range(1, 41):
        driver.create(queue, message_ttl_ms=100 if queue > 20 else None, dead_letter_exchange="dlx")
        driver.run(*(publish("body", queue) for _ in range(10)))
    driver.run(*(publish("body", 1) for _ in range(1000)), attach(1, 5))
    driver.pass_ms(100)
    driver.tick()
    reading = RestoreInSteps(State(3, {1}, 100, 100), driver.shard.snapshot(), 50)
    steps = 1
    while not reading.step():
        steps += 1
    assert steps >= (1000 + 20 * 10 + 40 * 16) // 50


def test_a_damaged_number_of_messages_is_no_work_without_end() -> None:
    """A count that no octets bear out: alike messages need none."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("a"))
    row = msgspec.msgpack.decode(driver.shard.snapshot())
    line = row[4][0][6]
    line[0][0] = 1 << 50
    with pytest.raises(ShardError, match="messages that nothing tells apart"):
        driver.shard.restore(msgspec.msgpack.encode(row))
    line[0][0] = 1
    line[1] = [[1 << 50, -2, *line[0][1:]]]
    with pytest.raises(ShardError, match="messages that nothing tells apart"):
        driver.shard.restore(msgspec.msgpack.encode(row))


def test_a_damaged_column_deep_in_a_line_is_found_when_it_is_read() -> None:
    """Not when its messages are wanted: by then the snapshot is stored."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=2)
    driver.create(1)
    driver.run(*(publish(f"m{number}", 1) for number in range(12)))
    row = msgspec.msgpack.decode(driver.shard.snapshot())
    pieces = row[4][0][6][1]
    assert pieces
    for column in range(1, 10):
        for wrong in (None, "x", b"\0" * 9, 1.5):
            kept, pieces[0][column] = pieces[0][column], wrong
            with pytest.raises(ShardError):
                driver.shard.restore(msgspec.msgpack.encode(row))
            pieces[0][column] = kept
    driver.shard.restore(msgspec.msgpack.encode(row))


def test_a_bad_snapshot_is_refused_and_changes_nothing() -> None:
    """Cut off, of another version, or with any part replaced."""
    driver = everything()
    state = driver.shard.snapshot()
    before = driver.shard.digest()
    decoded = msgspec.msgpack.decode(state)
    damaged = [state[:length] for length in range(0, len(state), 37)]
    for place in range(len(decoded)):
        for wrong in (None, 99, "x", [], [1], [[None] * 11]):
            copy = list(decoded)
            copy[place] = wrong
            if not (wrong == [] and place in (4, 5)):
                damaged.append(msgspec.msgpack.encode(copy))
    damaged.append(b"\x91" * 9999 + b"\x01")
    for data in damaged:
        with pytest.raises(ShardError):
            driver.shard.restore(data)
    assert driver.shard.digest() == before


def test_a_new_shard_has_nothing_to_do() -> None:
    shard = Shard(1, 1)
    assert (shard.next_message_due_ms(), shard.next_lease_due_ms()) == (-1, -1)
    assert not shard.due_messages(1 << 40)
    assert shard.due_leases(1 << 40) == []
    assert shard.take_released() == []
    assert shard.digest() == Shard(2, 5).digest()
