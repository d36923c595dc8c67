"""What the shard says of publishes that come to no queue in it (`node.shard.results.Published.nowhere`)."""

from random import Random

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard import publish as publishing
from mayfly.node.shard.results import Applied, Published, Refused
from mayfly.node.shard.settings import REJECT_PUBLISH, ShardQueueSettings
from mayfly.node.shard.state import State
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, attach, publish
from tests.node.shard.moving_shards import MovingShards
from tests.node.shard.test_recurring import recurs
from tests.node.shard.test_rescheduling import change, header_of, later


def kept(body: str, *queue_ids: int) -> bytes:
    """A PUBLISH_KEPT."""
    parts: list[bytes] = []
    commands.encode_publish_kept(
        parts, queue_ids, commands.NO_TTL, b"\x00\x01q", header_of(""), body.encode(), None, 5_000
    )
    return b"".join(parts)


@pytest.fixture
def driver() -> Driver:
    """A shard with queue 1, which allows schedules, and a full queue 2."""
    driver = Driver()
    driver.create(1, allow_schedule=True)
    driver.create(2, max_length=0, overflow=REJECT_PUBLISH)
    return driver


def test_what_comes_to_no_queue_is_nowhere(driver: Driver) -> None:
    """Of whatever kind it is; where one of its queues is there it is somewhere."""
    run = (
        publish("a", 1), publish("b", 9), publish("c", 9, 1), publish("d", 8, 9), later("e", 9, after_ms=5),
        later("f", 9, 1, after_ms=5), kept("g", 9), kept("h", 1), recurs("i", 9, every_s=5), publish("j", 9),
    )  # fmt: skip
    assert driver.guarded(*run) == ([], [1, 3, 4, 6, 8, 9])
    assert driver.drain(1) == ["a", "c", "h"]
    assert statistics_of(driver.shard).missing_targets == 9
    assert driver.shard.digest() == driver.replay().digest()


def test_s4_nor_is_a_change_anywhere_under_whose_id_nothing_waits(driver: Driver) -> None:
    """S4: one word for both; the positions count publishes and changes together."""
    run = (publish("a", 9), change("x", queues=(1,)), publish("b", 1), change("x", queues=(9,)))
    assert driver.guarded(*run) == ([], [0, 1, 3])


def test_what_is_refused_is_not_nowhere(driver: Driver) -> None:
    assert driver.guarded(publish("a", 2), publish("b", 2, 9), publish("c", 9), publish("d", 9, 2)) == ([0, 1, 3], [2])


def test_the_log_decides_between_a_publish_and_the_coming_and_going_of_its_queue(driver: Driver) -> None:
    """L10: in one entry as well."""
    one = commands.encode_guard(1) + publish("a", 7)
    made = commands.encode_create_queue(7, ShardQueueSettings(name="q7"))
    gone = commands.encode_delete_queue(7, False, False)
    before, _, between, _, after = driver.run(one, made, one, gone, one)
    answers = (before, between, after)
    assert [answer.nowhere for answer in answers if isinstance(answer, Published)] == [[0], [], [0]]


def test_a_queue_that_has_moved_is_a_way_to_where_it_is() -> None:
    shards = MovingShards()
    shards.create(1, 1)
    shards.ask_to_move(1, 2)
    shards.finish_moves()
    (answer,) = shards.run(1, commands.encode_guard(2), publish("a", 1), publish("b", 9))
    assert isinstance(answer, Published) and (answer.refused, answer.nowhere) == ([], [1])
    shards.finish_moves()
    assert shards.ready(1) == ["a"]


def test_a_transaction_says_so_too(driver: Driver) -> None:
    driver.run(attach(1, 5), publish("held", 1))
    settle = commands.encode_settle(1, 5, commands.ACK, [1])
    parts = [publish("a", 9), publish("b", 1), later("c", 9, after_ms=5), publish("d", 9, 1), publish("e", 9), settle]
    (answer,) = driver.run(commands.encode_transaction(5, parts))
    assert isinstance(answer, Applied) and answer.nowhere == [0, 2, 4]
    (answer,) = driver.run(commands.encode_transaction(2, [publish("a", 9), publish("b", 2)]))
    assert isinstance(answer, Refused)


@pytest.mark.skipif(publishing.__file__.endswith(".so"), reason="what is replaced is compiled in")
@pytest.mark.parametrize("seed", range(30))
def test_c1_publishes_behind_a_guard_that_are_taken_together_are_as_those_that_are_taken_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: older releases take them one by one."""
    random = Random(seed)
    driver = Driver()
    driver.create(1)
    driver.create(2, message_ttl_ms=50)
    driver.create(3, max_length=3)
    driver.create(4, max_length=2, overflow=REJECT_PUBLISH)
    driver.create(5, max_priority=3)
    driver.create(6, is_stream=True, ttl_retroactive=True)
    driver.create(7, expire_anywhere=seed % 2 == 1, allow_schedule=True)
    driver.run(attach(1, 5, prefetch=4), attach(2, 6, no_ack=True))
    for _ in range(20):
        run: list[bytes] = []
        for _ in range(random.randint(1, 6)):
            queues = random.sample(range(1, 9), random.choice((1, 1, 1, 2)))
            ttl_ms = random.choice((-1, -1, 0, 20, 90))
            run += [publish(f"{random.random()}", *queues, ttl_ms=ttl_ms)] * random.randint(1, 4)
        driver.run(commands.encode_guard(len(run)), *run)
        driver.pass_ms(random.randint(0, 30))
        driver.tick()
    one_by_one = 0

    def take_none(state: State, position: int, end: int, most: int) -> tuple[int, int]:
        nonlocal one_by_one
        one_by_one += 1
        return position, 0

    monkeypatch.setattr(publishing, "_take_some", take_none)
    assert driver.shard.digest() == driver.replay().digest()
    assert one_by_one
