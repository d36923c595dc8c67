"""Which queues a node says are the busiest of its hot shards."""

from collections.abc import Iterator

from mayfly.node.membership.group_loads import BYTES_PER_US, MEASURED_EVERY_MS, MESSAGE_US, SMOOTHED
from mayfly.node.membership.queue_balance import LEAST_PERMILLE
from mayfly.node.membership.queue_loads import QUEUES, TOLD, QueueLoads, QueueWork

HOT = 5 * LEAST_PERMILLE
LOOK_EVERY_MS = 250


class Shard:
    """Counts of queues that a test moves on."""

    def __init__(self) -> None:
        self.rows: dict[int, QueueWork] = {}
        self.asked = 0
        self.load = HOT
        self.led = True
        self.now_ms = 0
        self.loads = QueueLoads(self.works)

    def works(self, group: int) -> Iterator[QueueWork]:
        assert group == 1
        for row in list(self.rows.values()):
            self.asked += 1
            yield row

    def work(self, queue: int, messages: int, message_bytes: int = 0, may_move: bool = True) -> None:
        before = self.rows.get(queue, (queue, 0, 0, True))[1]
        self.rows[queue] = (queue, before + messages, message_bytes, may_move)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ms += LOOK_EVERY_MS
            self.loads.look({1: self.load}, lambda group: self.led, self.now_ms)

    def pass_over(self) -> None:
        self.look(MEASURED_EVERY_MS // LOOK_EVERY_MS)

    def run(self, *works: tuple[int, int, int], times: int = 40) -> dict[int, int]:
        for _ in range(times):
            for work in works:
                self.work(*work)
            self.pass_over()
        return dict(self.loads.busiest(1))


def test_a_queue_has_the_part_of_the_load_that_it_has_of_the_work() -> None:
    found = Shard().run((1, 3000, 0), (2, 1000, 0), (3, 0, 0))
    assert set(found) == {1, 2}
    assert 0.95 * HOT * 3 / 4 - SMOOTHED <= found[1] <= HOT * 3 / 4
    assert 0.95 * HOT / 4 - SMOOTHED <= found[2] <= HOT / 4


def test_bytes_count_as_far_as_messages_were_seen() -> None:
    shard = Shard()
    size = 10 * MESSAGE_US * BYTES_PER_US
    shard.run((1, 1000, size), (2, 1000, 0))
    found = shard.run((1, 1000, 0), (2, 1000, 0))
    assert found[1] > 8 * found[2], "what was seen once is remembered while nothing is there to be seen"


def test_the_busiest_are_told_of_first_and_no_more_than_some() -> None:
    shard = Shard()
    shard.run(*((queue, 100 * queue, 0) for queue in range(1, 3 * TOLD)))
    assert [queue for queue, _ in shard.loads.busiest(1)] == list(range(3 * TOLD - 1, 2 * TOLD - 1, -1))


def test_those_that_may_not_move_have_their_part_and_are_not_told_of() -> None:
    shard = Shard()
    for _ in range(40):
        shard.work(1, 1000, may_move=False)
        shard.work(2, 1000)
        shard.pass_over()
    assert [queue for queue, _ in shard.loads.busiest(1)] == [2]
    assert shard.loads.busiest(1)[0][1] <= HOT // 2


def test_what_came_with_a_queue_is_no_load() -> None:
    shard = Shard()
    shard.run((1, 100, 0))
    shard.work(2, 1_000_000)
    shard.pass_over()
    shard.pass_over()
    assert [queue for queue, _ in shard.loads.busiest(1)] == [1]


def test_a_look_takes_a_part_of_many_queues_and_a_pass_all() -> None:
    shard = Shard()
    for queue in range(1, 3 * QUEUES + 2):
        shard.work(queue, 1)
    shard.look(MEASURED_EVERY_MS // LOOK_EVERY_MS)
    assert shard.asked == QUEUES
    shard.look()
    assert shard.asked == 2 * QUEUES
    shard.work(3 * QUEUES + 1, 1000)
    shard.pass_over()
    shard.work(3 * QUEUES + 1, 1000)
    shard.pass_over()
    shard.pass_over()
    assert [queue for queue, _ in shard.loads.busiest(1)] == [3 * QUEUES + 1]


def test_shards_that_are_not_hot_or_led_elsewhere_are_not_looked_at() -> None:
    shard = Shard()
    shard.run((1, 100, 0))
    assert shard.loads.busiest(1)
    shard.load = LEAST_PERMILLE - 1
    shard.look()
    asked = shard.asked
    shard.pass_over()
    assert shard.asked == asked and not shard.loads.busiest(1)
    shard.load, shard.led = HOT, False
    shard.pass_over()
    assert shard.asked == asked
