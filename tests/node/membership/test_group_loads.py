"""What load a node says its groups are."""

from mayfly.node.membership.group_loads import (
    BYTES_PER_US,
    MEASURED_EVERY_MS,
    MESSAGE_US,
    MOST_DEARER,
    SMOOTHED,
    GroupLoads,
)


class Node:
    """Counts of work that a test moves on."""

    def __init__(self) -> None:
        self.done = {1: (0, 0), 2: (0, 0)}
        self.led = {1, 2}
        self.loads = GroupLoads(lambda group: self.done[group])
        self.now_ms = 0
        self.loads.tick(self.done, self.led.__contains__, self.now_ms)

    def works(self, group: int, messages: int, size: int) -> None:
        before = self.done[group]
        self.done[group] = (before[0] + messages, before[1] + size)

    def time_passes(self, by_ms: int = MEASURED_EVERY_MS) -> None:
        self.now_ms += by_ms
        self.loads.tick(self.done, self.led.__contains__, self.now_ms)


def at_rate(node: Node, messages_per_s: int, size: int, times: int) -> None:
    for _ in range(times):
        node.works(1, messages_per_s * MEASURED_EVERY_MS // 1000, messages_per_s * size * MEASURED_EVERY_MS // 1000)
        node.time_passes()


def test_messages_and_bytes_are_the_load() -> None:
    node = Node()
    at_rate(node, 10_000, 1_000, 40)
    expected = 10_000 * (MESSAGE_US + 1_000 // BYTES_PER_US) // 1000
    assert 0.9 * expected <= node.loads.of_groups[1] <= expected
    assert node.loads.of_groups[2] == 0


def test_a_moment_of_load_counts_for_little() -> None:
    node = Node()
    at_rate(node, 10_000, 1_000, 1)
    assert 0 < node.loads.of_groups[1] <= 10_000 * 11 // 1000 // SMOOTHED


def test_nothing_is_measured_before_it_is_time() -> None:
    node = Node()
    node.works(1, 1_000_000, 0)
    node.time_passes(MEASURED_EVERY_MS - 1)
    assert node.loads.of_groups == {}


def test_the_time_of_the_process_makes_messages_dearer_up_to_a_bound() -> None:
    loads = []
    for cpu_permille in (0, 50, 140, 100_000):
        node = Node()
        node.loads.cpu_permille = cpu_permille
        at_rate(node, 10_000, 0, 60)
        loads.append(node.loads.of_groups[1])
    plain, cheaper, twice, most = loads
    assert plain == cheaper
    assert 1.9 * plain <= twice <= 2.1 * plain
    assert (MOST_DEARER - 0.1) * plain <= most <= MOST_DEARER * 10_000 * MESSAGE_US // 1000


def test_counts_that_go_back_are_no_work() -> None:
    """A snapshot has replaced the replica."""
    node = Node()
    node.works(1, 1000, 1000)
    node.time_passes()
    node.done[1] = (0, 0)
    node.time_passes()
    assert 0 <= node.loads.of_groups[1] <= 2
