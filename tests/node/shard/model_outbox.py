"""Dead letters of the naive shard in `model.py`: those to be routed, those parked, and the lanes to other queues."""

from tests.node.shard.model_queue import Item


class ModelOutbox:
    """Lists, in the order in which messages died."""

    def __init__(self) -> None:
        self.deaths: list[tuple[int, int, Item, str]] = []
        self.parked: dict[int, tuple[int, int, Item, str]] = {}
        self.lanes: dict[int, list[Item]] = {}
        self.lane_first: dict[int, int] = {}
        self.next_death = 1

    def add(self, number: int, item: Item, reason: str) -> None:
        """A message of this queue has died."""
        self.deaths.append((self.next_death, number, item, reason))
        self.next_death += 1

    def take(self, sequence: int) -> tuple[int, int, Item, str] | None:
        """The first death, if it is this one; it is not to be routed any more."""
        if not self.deaths or self.deaths[0][0] != sequence:
            return None
        return self.deaths.pop(0)

    def line_up(self, lane: int, item: Item) -> None:
        """It waits in the lane of its target."""
        self.lane_first.setdefault(lane, 1)
        self.lanes.setdefault(lane, []).append(item)

    def settled(self, lane: int, up_to: int) -> None:
        while self.lanes.get(lane) and self.lane_first[lane] <= up_to:
            self.lanes[lane].pop(0)
            self.lane_first[lane] += 1

    def lane_closed(self, lane: int) -> None:
        self.lanes.pop(lane, None)
        self.lane_first.pop(lane, None)

    def retry_parked(self, sequence: int) -> None:
        death = self.parked.pop(sequence, None)
        if death:
            self.add(*death[1:])

    def drop_parked(self, sequence: int) -> None:
        self.parked.pop(sequence, None)

    def items(self) -> list[Item]:
        """All that is in it."""
        items = [death[2] for death in self.deaths] + [death[2] for death in self.parked.values()]
        for lane in self.lanes.values():
            items += lane
        return items
