"""Several shards between which queues move, and what their leaders do for that; what leaders send may get lost, come
twice or late."""

from random import Random

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_NUMBERED_MOVES
from mayfly.node.shard import commands
from mayfly.node.shard.commands import LetterContent
from mayfly.node.shard.effects import ConsumerMoved, Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, MANIFEST, Lane, item_kind
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.shard.declared import check_declared
from tests.node.shard.driver import A, Batch, Close, Entry, content_header, encode_transfer

KEY = b"\x00\x01k"
HEADER = content_header(b"")
"""Of no particular size of body: nobody looks at that."""


class MovingShard:
    """A shard with its log and a clock that is ahead of the true time."""

    def __init__(self, shard_id: int, ahead_ms: int, items_in_lane: int, piece: int, returned: int) -> None:
        self.id = shard_id
        self.ahead_ms = ahead_ms
        self.bounds = (piece, returned, items_in_lane)
        self.shard = self.new_shard()
        self.log: dict[int, Entry] = {}
        self.effects: list[object] = []
        self.released: set[int] = set()

    def new_shard(self) -> Shard:
        """An empty one."""
        piece, returned, items = self.bounds
        return Shard(
            self.id, 1, messages_per_piece=piece, returned_per_entry=returned, items_in_lane=items
        )  # fmt: skip

    def entry(self, now_ms: int, *batches: Batch | Close) -> list[object]:
        """Apply one entry; the answers."""
        index = len(self.log) + 1
        entry = Entry(index, now_ms + self.ahead_ms, now_ms, batches)
        self.log[index] = entry
        results = entry.apply(self.shard)
        self.effects += self.shard.take_effects()
        self.released.update(self.shard.take_released())
        assert not self.released & set(self.shard.live_entries())
        return results

    def restore(self) -> None:
        """Go on as what its snapshot says."""
        before = self.shard.snapshot()
        self.shard = self.new_shard()
        self.shard.restore(before)
        assert self.shard.snapshot() == before

    def body(self, message: Message) -> str:
        """The body of a message, out of the log."""
        return self.content(message).body.decode()

    def content(self, message: Message) -> LetterContent:
        """Its content."""
        data = self.log[message.index].data
        header = message.offset + message.key_length
        body = header + message.header_length
        return LetterContent(
            data[message.offset : header], data[header:body], data[body : body + message.body_length],
            message.redelivered,
        )  # fmt: skip


class MovingShards:
    """Shards 1, 2, 3. Where a queue is, `home` says as the catalog would, and `moves` how often it has moved."""

    def __init__(
        self, items_in_lane: int = 3, piece: int = 2, returned: int = 3, level: int = LEVEL_HIGHEST
    ) -> None:
        self.now_ms = 1_000_000
        self.level = level
        self.moves: dict[int, int] = {}
        self.shards = {
            id: MovingShard(id, ahead_ms, items_in_lane, piece, returned)
            for id, ahead_ms in ((1, 0), (2, -700_000), (3, 900_000))
        }
        self.home: dict[int, int] = {}
        self.moving_to: dict[int, int] = {}
        self.sent: list[tuple[int, bytes]] = []
        """Everything that leaders have sent, by target: it may arrive again."""
        for shard in self.shards.values():
            shard.entry(self.now_ms, (None, commands.encode_raise_level(level)))

    def run(self, shard: int, *encoded: bytes, session: tuple[int, int] | None = A) -> list[object]:
        """One entry of a shard."""
        return self.shards[shard].entry(self.now_ms, (session, b"".join(encoded)))

    def lead(self, shard: int, *encoded: bytes) -> None:
        """One entry of its leader."""
        assert self.run(shard, *encoded, session=None) == []

    def create(self, queue: int, shard: int, **settings: object) -> None:
        """A queue in a shard."""
        self.home[queue] = shard
        self.moves[queue] = 0
        made = ShardQueueSettings(name=f"q{queue}", **settings)  # type: ignore[arg-type]
        check_declared(made)
        self.run(shard, commands.encode_create_queue(queue, made))

    def epoch(self, shard: int, queue: int) -> int:
        """That of the queue's lease."""
        found = self.shards[shard].shard.queue(queue)
        assert found is not None
        return found.lease.epoch

    def publish(self, shard: int, queue: int, *bodies: str, ttl_ms: int = -1) -> None:
        """Publish to a queue where a node thinks that it is."""
        parts: list[bytes] = []
        for body in bodies:
            commands.encode_publish(parts, [queue], ttl_ms, KEY, HEADER, body.encode())
        self.run(shard, *parts)

    def publish_later(self, shard: int, queue: int, *bodies: str, after_ms: int) -> None:
        """The same, to be ready later."""
        parts: list[bytes] = []
        for body in bodies:
            due = (commands.AFTER, after_ms)
            commands.encode_publish_later(parts, [queue], -1, KEY, HEADER, body.encode(), due)
        self.run(shard, *parts)

    def ask_to_move(self, queue: int, target: int) -> None:
        """The catalog's word."""
        if target != self.home[queue]:
            self.moving_to.setdefault(queue, target)

    # ------------------------------------------------------------------ what leaders do

    def transfers(self, source: int, lane: Lane, most: int = 5) -> list[tuple[int, bytes]]:
        """What the leader of `source` sends now for a lane, and where to."""
        shard = self.shards[source]
        queue = shard.shard.queue(lane.target_queue)
        target = self.home[lane.target_queue]
        if queue is not None and queue.moving is not None and queue.has_left and target == source:
            target = queue.moving.target_shard
        received = self.shards[target].shard.received_up_to(lane.target_queue, source)
        wanted = max(lane.first_sequence, received + 1)
        items = list(lane.items)[wanted - lane.first_sequence :][:most]
        if not items:
            return []
        if item_kind(items[0]) == MANIFEST:
            return [(target, shard.shard.move_in(lane.target_queue))]
        before = 0
        while before < len(items) and item_kind(items[before]) != MANIFEST:
            before += 1
        items = items[:before]
        contents = [(item, shard.content(item)) for item in items]
        if all(item_kind(item) == LETTER for item in items):
            only = [content for _, content in contents]
            return [(target, encode_transfer(source, lane.target_queue, wanted, only))]
        now_ms = self.now_ms + shard.ahead_ms
        return [(target, commands.encode_transfer_moved(source, lane.target_queue, wanted, now_ms, contents))]

    def lead_moves(self, source: int) -> None:
        """MOVE_OUT for what is to leave, and the catalog's word once it has arrived."""
        shard = self.shards[source].shard
        for queue_id, target in list(self.moving_to.items()):
            if self.home[queue_id] != source:
                continue
            queue = shard.queue(queue_id)
            if queue is None:
                del self.moving_to[queue_id]
            elif not queue.has_left:
                command = self.move_out(queue_id, target)
                self.lead(source, command)
                if self.level >= LEVEL_NUMBERED_MOVES:
                    self.sent.append((source, command))
            elif queue.moving is not None and queue.moving.target_shard == target:
                received = self.shards[target].shard.received_up_to(queue_id, source)
                if 0 < queue.moving.end_sequence <= received:
                    self.home[queue_id] = target
                    self.moves[queue_id] += 1
                    del self.moving_to[queue_id]

    def move_out(self, queue_id: int, target: int) -> bytes:
        """The MOVE_OUT for the next move of a queue."""
        number = self.moves[queue_id] + 1 if self.level >= LEVEL_NUMBERED_MOVES else 0
        return commands.encode_move_out(queue_id, target, number)

    def settle_lanes(self, source: int) -> None:
        """SETTLED for what has arrived."""
        for lane in list(self.shards[source].shard.filled_lanes()):
            received = max(
                each.shard.received_up_to(lane.target_queue, source) for each in self.shards.values()
            )
            if received >= lane.first_sequence:
                self.lead(source, commands.encode_settled(lane.target_queue, received))

    def tick(self, shard: int) -> None:
        """Expire what is due, and route no deaths: they stay to be looked at."""
        each = self.shards[shard]
        if each.shard.due_messages(self.now_ms + each.ahead_ms):
            self.lead(shard, commands.encode_expire_due())
        for queue_id, epoch in each.shard.due_leases(self.now_ms):
            self.lead(shard, commands.encode_expire_queue(queue_id, epoch))

    def send(self, random: Random | None, source: int) -> None:
        """Send what is due from a shard; with `random`, what is sent may get lost, or come again much later."""
        for lane in list(self.shards[source].shard.filled_lanes()):
            most = 5 if random is None else random.randint(1, 6)
            for target, command in self.transfers(source, lane, most):
                self.sent.append((target, command))
                if random is None or random.random() < 0.7:
                    self.lead(target, command)
        if random is not None and self.sent and random.random() < 0.3:
            target, command = random.choice(self.sent)
            self.lead(target, command)

    def finish_moves(self, rounds: int = 2000) -> None:
        """All that moves arrives."""
        for _ in range(rounds):
            for source in self.shards:
                self.lead_moves(source)
                self.send(None, source)
                self.settle_lanes(source)
                if self.shards[source].shard.next_message_due_ms() == 0:
                    self.lead(source, commands.encode_expire_due())
            if not self.moving_to and not any(each.shard.has_lanes for each in self.shards.values()):
                return
        raise AssertionError("a move does not end")

    # ------------------------------------------------------------------ to look at

    def ready(self, queue: int) -> list[str]:
        """Bodies that wait in a queue, in order."""
        shard = self.shards[self.home[queue]]
        found = shard.shard.queue(queue)
        assert found is not None
        return [shard.body(message) for line in found.lines() for message in line.live()]

    def delivered(self, shard: int) -> list[tuple[int, int, str]]:
        """(consumer, delivery id, body) since the last look."""
        each = self.shards[shard]
        found = [
            (effect.consumer_id, effect.first_delivery_id + place, each.body(message))
            for effect in each.effects
            if isinstance(effect, Deliver)
            for place, message in enumerate(effect.messages)
        ]
        each.effects = [effect for effect in each.effects if not isinstance(effect, Deliver)]
        return found

    def moved_consumers(self, shard: int) -> list[tuple[int, int]]:
        """(consumer, new shard) since the last look."""
        each = self.shards[shard]
        found = [(effect.consumer_id, effect.shard) for effect in each.effects if isinstance(effect, ConsumerMoved)]
        each.effects = [effect for effect in each.effects if not isinstance(effect, ConsumerMoved)]
        return found
