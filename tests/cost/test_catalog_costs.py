"""What each command of the catalog costs, whatever else is in it; as `test_shard_costs`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from tests.cost.growth import SMALL, TIMES, is_bounded, is_linear
from tests.cost.metered import MeteredCopy

SHARDS: Final = 4
NODES: Final = ((1, "a", "a:1"), (2, "b", "b:1"), (3, "c", "c:1"))


class Modules:
    """The metered copy; `c` has all commands."""

    def __init__(self) -> None:
        self.copy = MeteredCopy("mayfly.node.catalog")
        self.c = self.copy.module("mayfly.node.catalog")
        self.commands = self.copy.module("mayfly.node.catalog.commands")


@cache
def modules() -> Modules:
    return Modules()


class World:
    """A catalog with one of everything."""

    def __init__(self, restored: bytes | None = None, level: int = LEVEL_HIGHEST) -> None:
        self.c = c = modules().c
        self.catalog = c.Catalog(SHARDS)
        if restored is not None:
            self.catalog.restore(restored)
            return
        self.give(c.FoundCluster(NODES, 3, level))
        for id, name, _ in NODES:
            self.give(c.NodeStarted(id, 1, name, levels=(1, LEVEL_HIGHEST)))
        self.give(c.PutUser("u", "x"))
        self.give(c.SetPermissions("u", "/", "a", "b", "c"))
        self.give(c.DeclareExchange("/", "x"))
        self.give(c.DeclareQueue("/", "q", True))
        self.give(c.Bind("/", "x", "queue", "q", "k"))

    def give(self, *commands: Any) -> None:
        """As they come out of a log."""
        for command in commands:
            answer = self.catalog.apply(self.c.decode(self.c.encode(command)), 1_000)
            assert not isinstance(answer, self.c.Refusal), answer

    def cost(self, *commands: Any, refused: bool = False) -> int:
        """Of applying these; whether any of them is ``refused`` is known."""
        answers: list[Any] = []

        def apply() -> None:
            answers.extend([self.catalog.apply(command, 1_000) for command in commands])

        taken: int = modules().copy.cost(apply)
        assert any(isinstance(answer, self.c.Refusal) for answer in answers) == refused, answers
        return taken


Burden = Callable[[World, int], None]


def nothing(world: World, n: int) -> None:
    """No burden at all."""


def queues(world: World, n: int) -> None:
    world.give(*(world.c.DeclareQueue("/", f"q{place}", True) for place in range(n)))


def queues_of_their_own_kind(world: World, n: int) -> None:
    world.give(
        *(world.c.DeclareQueue("/", f"q{place}", True, arguments={"x-expires": place + 1}) for place in range(n))
    )


def transient_queues(world: World, n: int) -> None:
    world.give(*(world.c.DeclareQueue("/", f"q{place}", node_id=2, incarnation=1) for place in range(n)))


def transient_queues_of_another(world: World, n: int) -> None:
    world.give(*(world.c.DeclareQueue("/", f"q{place}", node_id=1, incarnation=1) for place in range(n)))


def exchanges(world: World, n: int) -> None:
    world.give(*(world.c.DeclareExchange("/", f"x{place}") for place in range(n)))


def bound(type: str) -> Burden:
    """As many bindings of the exchange and of the queue, with keys and arguments of their own."""

    def burden(world: World, n: int) -> None:
        world.give(world.c.DeleteExchange("/", "x"), world.c.DeclareExchange("/", "x", type))
        world.give(
            *(world.c.Bind("/", "x", "queue", "q", f"a.{place}.#", {"field": place}) for place in range(n)),
            world.c.Bind("/", "x", "queue", "q", "k"),
        )

    burden.__name__ = f"bindings_of_{type}"
    return burden


def fan_out(world: World, n: int) -> None:
    queues(world, n)
    world.give(*(world.c.Bind("/", "x", "queue", f"q{place}", "k") for place in range(n)))


def exchanges_bound(world: World, n: int) -> None:
    exchanges(world, n)
    world.give(*(world.c.Bind("/", f"x{place}", "exchange", "x", "k") for place in range(n)))


def chain(world: World, n: int) -> None:
    """Exchanges each of which goes with the next one."""
    world.give(*(world.c.DeclareExchange("/", f"x{place}", auto_delete=True) for place in range(n)))
    world.give(*(world.c.Bind("/", f"x{place}", "exchange", f"x{place + 1}", "k") for place in range(n - 1)))
    world.give(world.c.Bind("/", f"x{n - 1}", "exchange", "x", "k"))


def users(world: World, n: int) -> None:
    for place in range(n):
        world.give(world.c.PutUser(f"u{place}", "x"), world.c.SetPermissions(f"u{place}", "/", "a", "b", "c"))
        world.give(world.c.SetTopicPermissions(f"u{place}", "/", "x", "a", "b"))


def vhosts(world: World, n: int) -> None:
    for place in range(n):
        world.give(world.c.AddVhost(f"v{place}"), world.c.SetPermissions("u", f"v{place}", "a", "b", "c"))
        world.give(world.c.SetTopicPermissions("u", f"v{place}", "x", "a", "b"))


def topic_permissions(world: World, n: int) -> None:
    world.give(*(world.c.SetTopicPermissions("u", "/", f"x{place}", "a", "b") for place in range(n)))


def policies(world: World, n: int) -> None:
    world.give(
        *(world.c.SetPolicy("/", f"p{place}", "^never$", {"expires": 5}, priority=place % 7) for place in range(n))
    )


def policies_of_exchanges(world: World, n: int) -> None:
    exchanges(world, n)
    world.give(
        *(
            world.c.SetPolicy("/", f"p{place}", "^never$", {"alternate-exchange": "x"}, apply_to="exchanges")
            for place in range(n)
        )
    )


BURDENS: list[Burden] = [
    nothing, queues, queues_of_their_own_kind, transient_queues, transient_queues_of_another, exchanges,
    bound("direct"), bound("fanout"), bound("topic"), bound("headers"), fan_out, exchanges_bound, chain, users, vhosts,
    topic_permissions, policies, policies_of_exchanges,
]  # fmt: skip

KNOWN: Final = (1, LEVEL_HIGHEST)


def one_more(world: World) -> list[Any]:
    """A member beside the founders."""
    return [world.c.AddMember("d", "d:1", "s", KNOWN), world.c.NodeStarted(4, 1, "d", {}, "s", levels=KNOWN)]


def shard_of_q(world: World) -> int:
    """1 or 2."""
    shard: int = world.catalog.queue("/", "q").shard
    return shard


# What is measured: commands on what the world has in any case, and commands that make or take something beside it.
ACTS: Final[dict[str, Callable[[World], list[Any]]]] = {
    "a new queue": lambda world: [world.c.DeclareQueue("/", "new", True)],
    "a new queue of a node": lambda world: [world.c.DeclareQueue("/", "new", node_id=3, incarnation=1)],
    "a queue that is there": lambda world: [world.c.DeclareQueue("/", "q", True)],
    "a checked queue": lambda world: [checked(world, world.c.DeclareQueue("/", "new", True))],
    "a queue goes": lambda world: [world.c.RemoveQueues((1,))],
    "a new exchange": lambda world: [world.c.DeclareExchange("/", "new", "topic")],
    "an exchange that is there": lambda world: [world.c.DeclareExchange("/", "amq.topic", "topic", True)],
    "an exchange goes": lambda world: [world.c.DeleteExchange("/", "x")],
    "an exchange in use stays": lambda world: [world.c.DeleteExchange("/", "x", if_unused=True)],
    "a binding": lambda world: [world.c.Bind("/", "x", "queue", "q", "new.*", {"other": 1})],
    "a checked binding": lambda world: [checked(world, world.c.Bind("/", "x", "queue", "q", "new.*", {"other": 1}))],
    "a binding goes": lambda world: [world.c.Unbind("/", "x", "queue", "q", "k")],
    "a new vhost": lambda world: [world.c.AddVhost("new")],
    "a vhost that is there": lambda world: [world.c.AddVhost("/", "told anew")],
    "what is said of a vhost": lambda world: [world.c.DescribeVhost("/", ("a",), "quorum", True)],
    "a global parameter": lambda world: [world.c.SetGlobalParameter("new", {"a": [1]})],
    "a global parameter goes": lambda world: [
        world.c.SetGlobalParameter("new", 1), world.c.ClearGlobalParameter("new"),
    ],
    "a vhost goes": lambda world: [world.c.AddVhost("new"), world.c.DeleteVhost("new")],
    "a new user": lambda world: [world.c.PutUser("new", "x")],
    "a user's hash": lambda world: [world.c.UpgradePassword("u", "x", "y")],
    "a user goes": lambda world: [world.c.PutUser("new", "x"), world.c.DeleteUser("new")],
    "permissions": lambda world: [world.c.SetPermissions("u", "/", "x", "y", "z")],
    "permissions go": lambda world: [world.c.ClearPermissions("u", "/")],
    "topic permissions": lambda world: [world.c.SetTopicPermissions("u", "/", "new", "y", "z")],
    "topic permissions go": lambda world: [
        world.c.SetTopicPermissions("guest", "/", "new", "y", "z"), world.c.ClearTopicPermissions("guest", "/"),
    ],
    "a limit": lambda world: [world.c.SetLimit("vhost", "/", "max-queues", 1_000_000)],
    "a switch": lambda world: [world.c.SetSwitch("/", "dead-lettering", False)],
    "a node starts": lambda world: [world.c.NodeStarted(3, 2, "c", levels=KNOWN)],
    "a node is lost": lambda world: [world.c.NodeLost(3, 1)],
    "a founding": lambda world: [world.c.FoundCluster(NODES, 3, LEVEL_HIGHEST)],
    "a member comes": lambda world: [world.c.AddMember("d", "d:1", "store", KNOWN)],
    "a level": lambda world: [world.c.RaiseLevel(LEVEL_HIGHEST, tuple((id, 1) for id, _, _ in NODES))],
    "a member is to go": lambda world: [world.c.AddMember("d", "d:1", "s", KNOWN), world.c.RemoveMember("d")],
    "a member is gone": lambda world: [*one_more(world), world.c.RemoveMember("d"), world.c.MemberGone(4)],
    "a place": lambda world: [world.c.PlaceGroup(1, ("1", "2", "3"))],
    "a leader": lambda world: [world.c.PreferLeader(1, "1")],
    "a policy": lambda world: [world.c.SetPolicy("/", "new", "^q", {"expires": 7}, priority=3)],
    "an operator policy": lambda world: [world.c.SetPolicy("/", "new", "^q", {"expires": 7}, operator=True)],
    "a policy of exchanges": lambda world: [
        world.c.SetPolicy("/", "new", "^x", {"alternate-exchange": "x"}, apply_to="exchanges")
    ],
    "a policy goes": lambda world: [
        world.c.SetPolicy("/", "new", "^q", {"expires": 7}), world.c.ClearPolicy("/", "new"),
    ],
    "definitions": lambda world: [world.c.DefinitionsLoaded("abc")],
    "a member is away": lambda world: [world.c.NodeLost(3, 1), world.c.MemberAway(3, 1)],
    "a member is back": lambda world: [world.c.NodeLost(3, 1), world.c.MemberAway(3, 1), world.c.MemberBack(3)],
    "a plan": lambda world: [world.c.PlanGroups(1, ((1, (1, 2, 3)),))],
    "a shard": lambda world: [world.c.AddShards(9)],
    "a queue is to move": lambda world: [world.c.MoveQueue("/", "q", 3 - shard_of_q(world))],
    "a queue has moved": lambda world: [
        world.c.MoveQueue("/", "q", 3 - shard_of_q(world)),
        world.c.QueueMoved(1, shard_of_q(world), 3 - shard_of_q(world), 1),
    ],
}  # fmt: skip

REFUSED: Final = frozenset({"an exchange in use stays"})
"""Acts that are meant to be refused; all others change something, so that it is their cost that is measured."""


def checked(world: World, command: Any) -> Any:
    digest = modules().copy.module("mayfly.node.catalog.permissions").rights_digest(world.catalog, "u", command)
    return world.c.decode(world.c.encode(type(command)(**_fields(command), rights=world.c.Rights("u", digest))))


def _fields(command: Any) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__ if name != "rights"}


OF_BINDINGS: Final = ("bindings_of_direct", "bindings_of_fanout", "bindings_of_topic", "bindings_of_headers")
GROWS: Final[dict[tuple[str, str], str]] = {
    ("a queue goes", burden): "takes its bindings along" for burden in OF_BINDINGS
} | {
    (act, burden): "the targets of its bindings are named anew"
    for act in ("a queue is to move", "a queue has moved") for burden in OF_BINDINGS
} | {
    ("an exchange goes", burden): "takes its bindings along, and exchanges that have none left"
    for burden in (
        "bindings_of_direct", "bindings_of_fanout", "bindings_of_topic", "bindings_of_headers", "fan_out",
        "exchanges_bound", "chain",
    )
}  # fmt: skip


@cache
def burdened(burden: Burden, n: int, level: int) -> bytes:
    world = World(level=level)
    burden(world, n)
    return bytes(world.catalog.snapshot())


def cost(name: str, burden: Burden, n: int) -> int:
    world = World(burdened(burden, n, level_below(name)))
    return world.cost(*ACTS[name](world), refused=name in REFUSED)


@pytest.mark.parametrize("burden", BURDENS)
def test_a_command_costs_the_same_however_much_there_is(burden: Burden) -> None:
    grown = []
    for name in ACTS:
        small, large = cost(name, burden, SMALL), cost(name, burden, TIMES * SMALL)
        if is_bounded(small, large) == ((name, burden.__name__) in GROWS):
            grown.append(f"{name}: {small} steps, with {TIMES} times as much {large}")
        elif not is_linear(small, large):
            grown.append(f"{name}: more than linear, {small} and {large}")
    assert not grown, "\n".join(grown)


UNCHANGED: Final = REFUSED | {"a queue that is there", "an exchange that is there", "a founding"}


def level_below(name: str) -> int:
    """The level of the catalog in which something is done."""
    return LEVEL_HIGHEST - 1 if name == "a level" else LEVEL_HIGHEST


@pytest.mark.parametrize("name", ACTS)
def test_the_last_command_of_an_act_changes_something(name: str) -> None:
    """So that it is not the cost of a no-op that is measured."""
    world = World(level=level_below(name))
    *ready, last = ACTS[name](world)
    world.give(*ready)
    before = world.catalog.snapshot()
    world.catalog.apply(last, 1_000)
    assert (world.catalog.snapshot() == before) == (name in UNCHANGED)


def test_every_command_is_here() -> None:
    world = World()
    kinds = {type(command) for make in ACTS.values() for command in make(world)}
    assert kinds == set(modules().commands.CatalogCommand.__args__)


ROWS: Final[list[Any]] = [
    pytest.param(burden, make, id=name)
    for name, burden, make in [
        ("deleting queues", queues, lambda world, place: world.c.RemoveQueues((place + 2,))),
        ("deleting users", users, lambda world, place: world.c.DeleteUser(f"u{place}")),
        ("deleting vhosts", vhosts, lambda world, place: world.c.DeleteVhost(f"v{place}")),
        ("clearing permissions", users, lambda world, place: world.c.ClearPermissions(f"u{place}", "/")),
        ("clearing topic permissions", users, lambda world, place: world.c.ClearTopicPermissions(f"u{place}", "/")),
        (
            "clearing those of exchanges", topic_permissions,
            lambda world, place: world.c.ClearTopicPermissions("u", "/", f"x{place}"),
        ),
        ("clearing policies", policies_of_exchanges, lambda world, place: world.c.ClearPolicy("/", f"p{place}")),
        (
            "changing policies", policies_of_exchanges,
            lambda world, place: world.c.SetPolicy("/", f"p{place}", "^x", {"expires": place + 1}),
        ),
        ("deleting exchanges", exchanges_bound, lambda world, place: world.c.DeleteExchange("/", f"x{place}")),
        (
            "unbinding a fan-out", fan_out,
            lambda world, place: world.c.Unbind("/", "x", "queue", f"q{place}", "k"),
        ),
        *(
            (
                f"unbinding {bound(type).__name__}", bound(type),
                lambda world, place: world.c.Unbind("/", "x", "queue", "q", f"a.{place}.#", {"field": place}),
            )
            for type in ("direct", "fanout", "topic", "headers")
        ),
    ]
]  # fmt: skip


@pytest.mark.parametrize(("burden", "make"), ROWS)
def test_as_many_in_a_row_cost_as_many_times_as_much(burden: Burden, make: Callable[[World, int], Any]) -> None:
    totals = []
    for n in (SMALL, TIMES * SMALL):
        world = World()
        burden(world, n)
        totals.append(world.cost(*(make(world, place) for place in range(n))))
    assert is_linear(*totals), totals


@pytest.mark.parametrize("burden", BURDENS)
@pytest.mark.parametrize("last", ["DeleteVhost", "DeleteUser", "NodeLost", "snapshot", "restore"])
def test_what_is_about_all_of_it_costs_what_there_is(burden: Burden, last: str) -> None:
    totals = []
    for n in (SMALL, TIMES * SMALL):
        world = World()
        burden(world, n)
        catalog, data = world.catalog, burdened(burden, n, LEVEL_HIGHEST)
        if last == "snapshot":
            totals.append(modules().copy.cost(catalog.snapshot))
        elif last == "restore":
            totals.append(modules().copy.cost(partial(catalog.restore, data)))
        else:
            of = {"DeleteVhost": ("/",), "DeleteUser": ("u",), "NodeLost": (2, 1)}
            totals.append(world.cost(getattr(world.c, last)(*of[last])))
    assert is_linear(*totals), totals
