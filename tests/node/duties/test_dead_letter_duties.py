"""Routing the dead of one shard: decided ahead of the log, bounded, and right after lost commands (RULES D6, D7)."""

import struct
from collections.abc import Callable

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Bind, Catalog, DeclareQueue, FoundCluster, QueueDeclared, QueueRecord, RemoveQueues
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.dead_letter.journal import is_record
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.duties.shard_duties import PARKED_REST_MS, ShardDuties
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY, DEAD_LETTERS_ROUTED_AHEAD, ROUTING_STEPS_PER_TURN
from mayfly.node.shard import commands
from mayfly.node.shard.room import ANY_ROOM, Room
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver

DEATHS = 12_000


def founded(level: int = LEVEL_HIGHEST) -> Catalog:
    """The catalog of a cluster of one that began at this feature level; 0: of one from before there were levels."""
    catalog = Catalog(1)
    if level:
        catalog.apply(FoundCluster(((1, "n1", "h:1"),), 1, level))
    return catalog


class Leader:
    """A shard with many deaths, and the duties; what they give waits in `given` until a test applies it."""

    is_waited_for = True

    def __init__(self, level: int = LEVEL_HIGHEST) -> None:
        self.catalog = founded(level)
        self.given: list[bytes] = []
        self.driver = Driver(expiries=DEATHS, level=level)
        self.now_ms = 1_000_000
        arguments = {"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.dead = self.declare("dead", {})
        timed = self.declare("timed", arguments)
        self.driver.run(*(publish(str(number), timed.id) for number in range(DEATHS)))
        self.driver.pass_ms(100)
        self.driver.tick()
        # The queues are in shard 1 of the catalog; the driver's is called 3.
        self.driver.shard.shard_id = 1
        self.duties = ShardDuties(self.driver.shard, 1, self, self.give, self.data, lambda now_ms: now_ms)

    def declare(self, name: str, arguments: dict[str, object], is_made: bool = True) -> QueueRecord:
        """A queue of the catalog, and of the shard if it `is_made` there."""
        result = self.catalog.apply(DeclareQueue("/", name, durable=True, arguments=arguments))
        assert isinstance(result, QueueDeclared)
        if is_made:
            self.make(result.queue)
        return result.queue

    def make(self, queue: QueueRecord) -> None:
        self.driver.run(commands.encode_create_queue(queue.id, shard_settings(self.catalog, queue)))

    def look(self) -> None:
        self.catalog.routing_turns.begin()
        self.duties.perform(self.now_ms)

    def apply_first(self) -> None:
        self.driver.lead(self.given.pop(0))

    def give(self, command: bytes) -> None:
        self.given.append(command)

    def data(self, index: int) -> bytes:
        return self.driver.log[index].data

    def transfer(self, target_shard: int, command: bytes) -> None:
        assert target_shard == 1, "everything is in one shard"
        self.given.append(command)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return self.driver.shard.received_up_to(queue, source)

    def ask_again(self, target_shard: int, queue: int, source: int) -> None: ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return ANY_ROOM

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        raise AssertionError("no queue moves here")

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        raise AssertionError("no queue goes")

    def barrier(self, done: Callable[[], None]) -> None:
        done()

    def arrived(self) -> list[int]:
        return [int(body) for body in self.driver.drain(self.dead.id)]


def publish(body: str, queue_id: int, key: str = "timed") -> bytes:
    """A PUBLISH with a content header as clients send it, without properties."""
    parts: list[bytes] = []
    header = struct.pack(">HHQH", 60, 0, len(body), 0)
    commands.encode_publish(parts, (queue_id,), -1, b"\x00" + bytes([len(key)]) + key.encode(), header, body.encode())
    return b"".join(parts)


def deaths_in(route: bytes) -> int:
    """How many decisions a ROUTE has."""
    return int(commands.LIST_HEAD.unpack_from(route)[1])


def test_d7_deaths_are_decided_ahead_of_the_log_within_bounds_and_arrive_in_order() -> None:
    leader = Leader()
    leader.look()
    assert 1 < len(leader.given) <= 2, "one look takes a bounded part"
    for _ in range(20):
        leader.look()
    ahead = sum(map(deaths_in, leader.given))
    assert DEAD_LETTERS_PER_ENTRY < ahead <= DEAD_LETTERS_ROUTED_AHEAD + DEAD_LETTERS_PER_ENTRY
    while leader.given:
        leader.apply_first()
        leader.look()
    assert leader.arrived() == list(range(DEATHS))
    assert statistics_of(leader.driver.shard).refused_routes == 0


def test_d6_a_lost_route_is_given_again_and_what_was_ahead_of_it_counts_once() -> None:
    leader = Leader()
    for _ in range(20):
        leader.look()
    leader.given.pop(0)
    while leader.given:
        leader.apply_first()
        leader.look()
    assert leader.arrived() == []
    leader.now_ms += AGAIN_MS
    leader.look()
    assert leader.given
    while leader.given:
        leader.apply_first()
        leader.look()
    assert leader.arrived() == list(range(DEATHS))


class Noting(Leader):
    """A leader of a queue whose messages are noted in a journal when they expire, and dead-lettered if they are to."""

    def __init__(self, level: int, dead_letters: bool) -> None:
        super().__init__(level)
        while self.driver.shard.unrouted(1):
            self.look()
            while self.given:
                self.apply_first()
        self.j = self.declare("j", {"x-queue-type": "stream"})
        arguments: dict[str, object] = {"x-message-ttl": 100, "x-journal": "j"}
        if dead_letters:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        noted = self.declare("noted", arguments)
        self.driver.drain(self.dead.id)
        self.driver.run(*(publish(str(number), noted.id, "noted") for number in range(5)))
        self.driver.pass_ms(100)
        self.driver.tick()

    def records(self) -> list[tuple[int, int, int]]:
        """Of what is in the journal: lengths of key and body, and whether it is a record, in order."""
        stream = self.driver.shard.queue(self.j.id)
        assert stream is not None
        contents = [content_of(self.data(each.index), each) for each in stream.ready.live()]
        return [(len(each.exchange_and_key), len(each.body), is_record(each.header)) for each in contents]


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize(("level", "kind"), [(8, commands.ROUTE), (LEVEL_HIGHEST, commands.ROUTE_NOTED)])
def test_r4_records_are_routed_many_at_a_time_once_all_members_can_read_it(
    level: int, kind: int, dead_letters: bool
) -> None:
    leader = Noting(level, dead_letters)
    leader.look()
    [route] = leader.given
    assert (route[0], deaths_in(route)) == (kind, 10 if dead_letters else 5)
    leader.apply_first()
    assert leader.records() == [(len(b"\0\5noted"), 0, True)] * 5
    assert leader.arrived() == (list(range(5)) if dead_letters else [])
    assert leader.driver.shard.unrouted(1) == []


def test_r4_without_a_journal_records_are_parked_among_letters_that_go() -> None:
    leader = Noting(LEVEL_HIGHEST, True)
    leader.catalog.apply(RemoveQueues((leader.j.id,)))
    leader.look()
    leader.look()
    while leader.given:
        assert leader.given[0][0] == commands.ROUTE
        leader.apply_first()
        leader.look()
    assert leader.arrived() == list(range(5))
    assert len(leader.driver.shard.parked()) == 5


class Returned(Leader):
    """A leader whose catalog is old until it is told of the rest."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        super().__init__()

    def barrier(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)


def test_d6_a_new_leader_routes_nothing_before_its_catalog_is_as_new_as_its_lead() -> None:
    """What it lacks may be the second queue of an exchange: it would get nothing, and nobody would notice."""
    leader = Returned()
    for _ in range(2):
        for _ in range(3):
            leader.look()
        assert (leader.given, len(leader.waiting)) == ([], 1)
        leader.waiting.pop()()
        assert leader.given and not leader.waiting
        leader.given.clear()
        leader.duties.forget()


class Parking(Leader):
    """A leader with more parked deaths than it looks at in one go; only the youngest has a route."""

    def __init__(self) -> None:
        self.catalog = founded()
        self.given = []
        self.driver = Driver(expiries=DEATHS)
        self.now_ms = 1_000_000
        self.dead = self.declare("dead", {})
        nowhere, somewhere = (
            self.declare(key, {"x-message-ttl": 9, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": key[:4]})
            for key in ("lost letters", "dead letters")
        )
        self.youngest = DEAD_LETTERS_PER_ENTRY + 500
        self.driver.run(*(publish("lost", nowhere.id) for _ in range(self.youngest - 1)))
        self.driver.run(publish("found", somewhere.id))
        self.driver.pass_ms(9)
        self.driver.tick()
        sequences = range(1, self.youngest + 1)
        self.driver.lead(commands.encode_route([commands.RouteDecision(each, commands.PARKED) for each in sequences]))
        self.driver.shard.shard_id = 1
        self.duties = ShardDuties(self.driver.shard, 1, self, self.give, self.data, lambda now_ms: now_ms)


def test_d8_parked_ones_are_looked_at_to_the_end_however_often_routes_change() -> None:
    """RULES D8: many that have no route do not keep a younger one from its own."""
    leader = Parking()
    for number in range(20):
        # Somebody declares a queue of his own now and then.
        leader.catalog.apply(DeclareQueue("/", f"own {number}", durable=True, arguments={}))
        leader.now_ms += 4000
        leader.look()
    assert leader.given
    assert leader.given[0] == commands.encode_retry_parked([leader.youngest])


def test_d8_a_lost_retry_is_given_again_though_no_route_changes() -> None:
    leader = Parking()
    leader.look()
    leader.now_ms += PARKED_REST_MS
    leader.look()
    retry = commands.encode_retry_parked([leader.youngest])
    assert leader.given == [retry]
    leader.given.clear()
    leader.now_ms += AGAIN_MS - 1
    leader.look()
    assert leader.given == [], "it may be on its way"
    for _ in range(2):
        leader.now_ms += AGAIN_MS
        leader.look()
        assert leader.given == [retry]
        leader.given.clear()
    leader.driver.lead(retry)
    leader.look()
    leader.apply_first()
    for _ in range(3):
        leader.now_ms += PARKED_REST_MS
        leader.look()
    assert (leader.driver.drain(leader.dead.id), leader.given) == (["found"], [])


class Burying(Leader):
    """A leader with two queues that have expired; what becomes of removals in the catalog is the test's to say."""

    def __init__(self) -> None:
        self.catalog = founded()
        self.given = []
        self.driver = Driver()
        self.now_ms = 1_000_000
        self.removals: list[tuple[tuple[int, ...], Callable[[bool], None]]] = []
        self.ids = tuple(self.declare(name, {"x-expires": 100}).id for name in ("one", "two"))
        self.driver.pass_ms(100)
        for id, epoch in self.driver.shard.due_leases(self.driver.led_ms):
            self.driver.lead(commands.encode_expire_queue(id, epoch))
        self.driver.shard.shard_id = 1
        self.duties = ShardDuties(self.driver.shard, 1, self, self.give, self.data, lambda now_ms: now_ms)

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        self.removals.append((ids, done))


def test_l10_a_queue_is_forgotten_once_it_is_known_to_have_left_the_catalog() -> None:
    """A removal of which nobody knows whether it happened is asked for again; without its tombstone the queue, if the
    catalog still had it, would be created anew."""
    leader = Burying()
    leader.look()
    (ids, done), = leader.removals
    assert sorted(ids) == sorted(leader.ids)
    done(False)
    assert leader.given == []
    leader.look()
    assert len(leader.removals) == 1, "not again and again at once"
    leader.now_ms += AGAIN_MS
    leader.look()
    assert leader.given == []
    again, done = leader.removals[1]
    assert sorted(again) == sorted(leader.ids)
    done(True)
    assert leader.given == [commands.encode_forget_deleted(again)]
    leader.apply_first()
    leader.now_ms += AGAIN_MS
    leader.look()
    assert (leader.driver.shard.deleted, leader.given, len(leader.removals)) == ({}, [], 2)


class Slow(Leader):
    """The deaths of a queue with keys and bindings that make each take long to route; the n-th key ends with "nx"."""

    def __init__(self, deaths: int, bound_by: str = "#") -> None:
        self.catalog = founded()
        self.given = []
        self.driver = Driver(expiries=deaths)
        self.now_ms = 1_000_000
        self.dead = self.declare("dead", {})
        timed = self.declare("timed", {"x-message-ttl": 100, "x-dead-letter-exchange": "amq.topic"})
        for number in range(200):
            pattern = ".".join("a*#"[number // 3**place % 3] for place in range(5)) + ".#.a" * 30 + f".#.{number}"
            self.catalog.apply(Bind("/", "amq.topic", "queue", "dead", pattern))
        self.catalog.apply(Bind("/", "amq.topic", "queue", "dead", bound_by))
        for number in range(deaths):
            self.driver.run(publish(str(number), timed.id, ".".join("a" * 60) + f".{number}x"))
        self.driver.pass_ms(100)
        self.driver.tick()
        self.driver.shard.shard_id = 1
        self.duties = ShardDuties(self.driver.shard, 1, self, self.give, self.data, lambda now_ms: now_ms)


def test_d7_a_look_at_deaths_ends_when_routing_them_takes_long() -> None:
    """So that 1000 of them with keys of their own don't keep the node from everything else."""
    leader = Slow(100)
    looks = 0
    while leader.driver.shard.unrouted(1):
        before = leader.catalog.routing_steps
        leader.look()
        assert leader.catalog.routing_steps - before <= 1.5 * ROUTING_STEPS_PER_TURN
        while leader.given:
            leader.apply_first()
        looks += 1
    assert 2 < looks < 100
    assert leader.arrived() == list(range(100))


def test_d8_parked_ones_that_take_long_are_looked_at_to_the_end_however_often_routes_change() -> None:
    """RULES D8: each look sees some of them; those without a route, first of all, do not keep the last from its own."""
    deaths = 100
    leader = Slow(deaths, bound_by=f"#.{deaths - 1}x")
    parked = [commands.RouteDecision(each, commands.PARKED) for each in range(1, deaths + 1)]
    leader.driver.lead(commands.encode_route(parked))
    looks = 0
    while not leader.given and looks < deaths:
        leader.catalog.apply(Bind("/", "amq.topic", "queue", "dead", f"*.{looks}.own"))
        leader.now_ms += PARKED_REST_MS
        leader.look()
        looks += 1
    assert leader.given == [commands.encode_retry_parked([deaths])]
    assert looks > 2


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}], ids=["dead letters", "records"])
def test_d6_r4_what_goes_to_a_queue_that_its_shard_has_not_made_yet_waits_for_it(arguments: dict[str, object]) -> None:
    """The catalog has it first. In another shard it would wait in a lane, and so it does in the same."""
    leader = Leader()
    target = leader.declare("late", arguments, is_made=False)
    died = {"x-journal": "late"} if arguments else {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
    source = leader.declare("brief", {"x-message-ttl": 100, **died})
    leader.driver.run(publish("here", source.id, "brief"))
    leader.driver.pass_ms(100)
    leader.driver.tick()
    while leader.driver.shard.unrouted(1):
        leader.look()
        leader.apply_first()
    assert statistics_of(leader.driver.shard).lost == 0
    leader.make(target)
    for _ in range(3):
        leader.now_ms += AGAIN_MS
        leader.look()
        while leader.given:
            leader.apply_first()
    assert statistics_of(leader.driver.shard).lost == 0
    found = leader.driver.shard.queue_statistics(target.id)
    assert found is not None and found.ready == 1
