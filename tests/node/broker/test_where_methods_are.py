"""docs/architecture.md says for each method that is served what it is to the state machines, who does it, and what the
cluster is given for it: held against the tables, the code, and what a broker does."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pamqp import commands
from pamqp.base import Frame
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx

from mayfly.node.amqp import channel_state, connection_state
from mayfly.node.amqp.method_table import ON_CHANNEL_0, ON_CHANNELS
from mayfly.node.broker.handlers import HANDLERS
from mayfly.node.shard import commands as shard_commands
from tests.node.conftest import Client, World

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "architecture.md"
BY_INDEX: Final[dict[int, type[Frame]]] = dict(commands.INDEX_MAPPING)
INDICES: Final = {method.name: index for index, method in BY_INDEX.items()}
OPCODES: Final = {
    value: name
    for name, value in vars(shard_commands).items()
    if name in ("PUBLISH", "SETTLE", "GET", "ATTACH", "DETACH", "CREATE_QUEUE", "TOUCH_QUEUE", "PURGE",
                "DELETE_QUEUE", "NOOP", "PUBLISH_GUARDED", "TRANSACTION", "PREFETCH")
}
NOTHING: Final = "nothing"


def rows() -> dict[str, tuple[str, str, str]]:
    """Method -> input, who does it, and what the cluster is given."""
    text = PAGE.read_text(encoding="utf-8").partition("## Where a method is found")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| \w+\.", line)]
    assert len({line[0] for line in lines}) == len(lines)
    return {name: (happening, done_by, given) for name, happening, done_by, given in lines}


def inputs() -> dict[str, str]:
    """Method -> the name of its input, of all that are served."""
    found = {}
    for table, module in ((ON_CHANNEL_0, connection_state), (ON_CHANNELS, channel_state)):
        names = {value: name for name, value in vars(module).items() if name.startswith("RECEIVE_")}
        for index, happening in table.items():
            if happening != vars(module)["RECEIVE_OTHER_METHOD"]:
                found[BY_INDEX[index].name] = names[happening]
    return found


def place(path: str) -> Any:
    """`broker/operations/basic.get` -> the function; `broker/channel.Channel.settle` -> the method."""
    module, _, name = path.strip("`").partition(".")
    found: Any = importlib.import_module("mayfly.node." + module.replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Recorder:
    """A shard's handle that notes the kinds of the commands given to it."""

    def __init__(self, handle: Any, given: list[str]) -> None:
        self._handle = handle
        self._given = given

    def submit(self, command: bytes, done: Any) -> None:
        self._given.append(OPCODES[command[0]])
        self._handle.submit(command, done)

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        self._given.append(OPCODES[command[0]])
        self._handle.acknowledge(queue_id, holder_id, command)

    def publish(self, parts: list[bytes], size_bytes: int, done: Any) -> None:
        self._given.append(OPCODES[b"".join(parts)[0]])
        self._handle.publish(parts, size_bytes, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def nothing_before(client: Client) -> None:
    """The queue q and the channel are all that is needed."""


def held(client: Client) -> None:
    client.publish(1, "q")
    client.get("q", no_ack=False)


def consuming(client: Client) -> None:
    client.consume("q", "c")


def exchanges(client: Client) -> None:
    client.call(1, Exchange.Declare(exchange="e"))
    client.call(1, Exchange.Declare(exchange="f"))


def in_transaction(client: Client) -> None:
    client.publish(1, "q")
    client.call(1, Tx.Select())
    client.publish(1, "q")


SCENES: Final[dict[str, tuple[Callable[[Client], None], Any]]] = {
    "Exchange.Declare": (nothing_before, Exchange.Declare(exchange="e")),
    "Exchange.Delete": (exchanges, Exchange.Delete(exchange="e")),
    "Exchange.Bind": (exchanges, Exchange.Bind(source="e", destination="f")),
    "Exchange.Unbind": (exchanges, Exchange.Unbind(source="e", destination="f")),
    "Queue.Declare": (nothing_before, Queue.Declare(queue="new", durable=True)),
    "Queue.Bind": (exchanges, Queue.Bind(queue="q", exchange="e")),
    "Queue.Unbind": (exchanges, Queue.Unbind(queue="q", exchange="e")),
    "Queue.Purge": (nothing_before, Queue.Purge(queue="q")),
    "Queue.Delete": (nothing_before, Queue.Delete(queue="q")),
    "Basic.Qos": (consuming, Basic.Qos(prefetch_count=9)),
    "Basic.Consume": (nothing_before, Basic.Consume(queue="q")),
    "Basic.Cancel": (consuming, Basic.Cancel(consumer_tag="c")),
    "Basic.Get": (nothing_before, Basic.Get(queue="q")),
    "Basic.Recover": (held, Basic.Recover(requeue=True)),
    "Basic.RecoverAsync": (held, Basic.RecoverAsync(requeue=True)),
    "Basic.Ack": (held, Basic.Ack(1)),
    "Basic.Nack": (held, Basic.Nack(1)),
    "Basic.Reject": (held, Basic.Reject(1)),
    "Basic.Publish": (nothing_before, None),
    "Confirm.Select": (nothing_before, Confirm.Select()),
    "Tx.Select": (nothing_before, Tx.Select()),
    "Tx.Commit": (in_transaction, Tx.Commit()),
    "Tx.Rollback": (in_transaction, Tx.Rollback()),
}


def given_for(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the cluster is given for a method, each kind of command once, in order."""
    cluster, given = world.cluster, list[str]()
    submit_catalog = cluster.submit_catalog

    def noted(command: Any, done: Any) -> None:
        given.append(type(command).__name__)
        submit_catalog(command, done)

    monkeypatch.setattr(cluster, "submit_catalog", noted)
    handles = {id: Recorder(handle, given) for id, handle in cluster._handles.items()}
    monkeypatch.setattr(cluster, "_handles", handles)
    client = world.client()
    client.declare("q")
    before, method = SCENES[name]
    before(client)
    given.clear()
    if method is None:
        client.publish(1, "q")
    else:
        client.send(1, method)
    assert client.connection.channels[1].open, name
    return list(dict.fromkeys(given))


def test_the_page_names_each_method_that_is_served() -> None:
    assert {name: row[0].strip("`") for name, row in rows().items()} == inputs()


def test_the_page_says_who_does_it() -> None:
    for name, (_, done_by, _) in rows().items():
        places = [place(path) for path in done_by.split(", ")]
        assert all(map(callable, places)), name
        index = INDICES[name]
        if index in HANDLERS:
            assert places == [HANDLERS[index]], name


@pytest.mark.parametrize("name", SCENES)
def test_the_page_says_what_the_cluster_is_given(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = given_for(world, name, monkeypatch)
    told = rows()[name][2]
    assert (["`" + each + "`" for each in given] or [NOTHING]) == told.split(", ")


def test_every_method_on_channels_that_reaches_the_broker_is_tried() -> None:
    reaching = ("RECEIVE_METHOD", "RECEIVE_PUBLISH", "RECEIVE_SETTLEMENT")
    assert set(SCENES) == {name for name, happening in inputs().items() if happening in reaching}
