"""Definitions in RabbitMQ's JSON: what a file wants as catalog commands.

A whole file is looked at before anything is done: every field that counts, and then every command, on a copy of the
catalog. What has no meaning here is left out, with a note.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from mayfly.cluster.versions import LEVEL_GLOBAL_PARAMETERS, LEVEL_HIGHEST, LEVEL_VHOST_METADATA
from mayfly.node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    CatalogCommand,
    DeclareExchange,
    DeclareQueue,
    DescribeVhost,
    NeedsLevel,
    PutUser,
    Refusal,
    SetGlobalParameter,
    SetLimit,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    check_policy,
)
from mayfly.node.catalog.access_limits import LIMITS, limit_fault
from mayfly.node.catalog.arguments import SINCE_LEVEL, unbuilt_arguments, without_empty_type
from mayfly.node.catalog.declarations import DEFAULT_TYPES, is_exchange_type
from mayfly.node.catalog.expressions import expression_fault
from mayfly.node.catalog.journals import ARGUMENT
from mayfly.node.catalog.passwords import ALGORITHMS, from_imported
from mayfly.node.catalog.policies import known_part
from mayfly.node.catalog.records import (
    CLUSTER_ID_PARAMETER,
    CLUSTER_NAME_PARAMETER,
    CLUSTER_TAGS_PARAMETER,
    LimitedKind,
)
from mayfly.node.catalog.refusals import needs_level
from mayfly.node.catalog.streams import origins_said
from mayfly.node.catalog.values import MAX_DEPTH
from mayfly.node.operating.definitions.names import (
    checked_global_parameter,
    checked_name,
    checked_size,
    checked_tags,
    name_is_long,
)

OPERATOR_POLICY: Final = "operator_policy"
"""RabbitMQ exports operator policies as parameters of this component."""
VHOST_LIMITS: Final = "vhost-limits"
"""...and the limits of a vhost as the parameter `limits` of this one."""

_OF_A_PLUGIN: Final = "mqtt_"
"""So the names of global parameters begin that say something to a plugin alone."""
_PREDECLARED: Final = frozenset({"amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"})
_QUEUE_TYPES: Final = ("classic", "quorum", "stream", "", "undefined")
_OLD_ARGUMENTS: Final = ("x-queue-mode", "x-ha-policy", "x-ha-nodes")
"""Of queues. They stay in the record: a client that declares its queue with them is to find it equivalent."""
_SAID_OF_VHOSTS: Final = ("tags", "default_queue_type")
_LOWEST_NUMBER: Final = -(2**63)
_HIGHEST_NUMBER: Final = 2**63 - 1
_Item = TypeVar("_Item")


class BadDefinitions(ValueError):
    """What is wrong with a file: the field, its value, and what would be right."""


class EarlyDefinitions(BadDefinitions):
    """They are good once the cluster's feature level is raised."""


class Wish(NamedTuple):
    """A command that a file asks for, and where."""

    place: str
    command: CatalogCommand


class Plan(NamedTuple):
    """What a file comes to: `commands` in an order in which they can be done, `notes` on what is left out.

    Left out is what an export of RabbitMQ may rightly have and nothing here is: settings of policies, kinds of queues
    and exchanges, parameters of plugins. What could not be in an export is a mistake: the whole file is refused.
    """

    commands: list[Wish]
    notes: list[str]


def read_definitions(data: bytes) -> Plan:
    """What a file wants. Raises BadDefinitions."""
    try:
        content: object = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise BadDefinitions(f"not JSON: {error}") from None
    return _Reading(_Fields("", content)).plan()


def for_level(plan: Plan, level: int) -> Plan:
    """The plan without what every export of RabbitMQ says and this feature level does not know: what is so anyway, that
    a vhost has no tags and its queues are classic ones; and, with a note, how the cluster is called."""
    commands, notes = plan.commands, plan.notes
    if level < LEVEL_VHOST_METADATA:
        commands = [wish for wish in commands if not is_so_anyway(wish.command)]
    if level < LEVEL_GLOBAL_PARAMETERS:
        early = [wish for wish in commands if _is_of_every_cluster(wish.command)]
        commands = [wish for wish in commands if not _is_of_every_cluster(wish.command)]
        notes = notes + [
            f"{place}: left out, the cluster is at feature level {level} and global parameters begin with "
            f"{LEVEL_GLOBAL_PARAMETERS}"
            for place, _ in early
        ]
    return Plan(commands, notes)


def _is_of_every_cluster(command: CatalogCommand) -> bool:
    """Whether it sets a global parameter that clusters of RabbitMQ have from the beginning."""
    return isinstance(command, SetGlobalParameter) and command.name in (CLUSTER_NAME_PARAMETER, CLUSTER_TAGS_PARAMETER)


def is_so_anyway(command: CatalogCommand | None) -> bool:
    """Whether it says of a vhost what is so of each of which nothing is said."""
    return (
        isinstance(command, DescribeVhost)
        and not command.tags
        and command.default_queue_type in (None, "classic")
        and command.protected is None
    )


def check_on(founding_shards: int, snapshot: bytes, plan: Plan) -> None:
    """Do it all on a catalog of its own, made from a snapshot. Raises BadDefinitions for the first command that would
    be refused."""
    copy = Catalog(founding_shards)
    copy.restore(snapshot)
    for place, command in plan.commands:
        try:
            _check_expressions(place, command)
            if isinstance(command, DeclareQueue):
                for key in unbuilt_arguments(command.arguments, copy.level):
                    raise needs_level(key, SINCE_LEVEL[key], copy.level)
            result = copy.apply(command)
        except Refusal as refusal:
            result = refusal
        if isinstance(result, Refusal):
            fault = EarlyDefinitions if isinstance(result, NeedsLevel) else BadDefinitions
            raise fault(f"{place}: {' '.join(result.text.split())}")
        _check_size(place, command)


def _check_expressions(place: str, command: CatalogCommand) -> None:
    """What replicas may not judge (see `SetPermissions`)."""
    if isinstance(command, SetPolicy):
        check_policy(command)
    elif isinstance(command, SetPermissions | SetTopicPermissions):
        for field in ("configure", "write", "read") if isinstance(command, SetPermissions) else ("write", "read"):
            expression = getattr(command, field)
            fault = expression_fault(expression)
            if fault is not None:
                raise BadDefinitions(f"{place}.{field} = {_shown(expression)}: no regular expression: {fault}")


def _check_size(place: str, command: CatalogCommand) -> None:
    """Every node is to keep it."""
    try:
        if isinstance(command, DeclareQueue | DeclareExchange | Bind):
            checked_size(command.arguments, "arguments")
        elif isinstance(command, SetPolicy):
            checked_size(command.definition, "definition")
    except ValueError as error:
        raise BadDefinitions(f"{place}: {error}") from None


class _Fields:
    """A JSON object of the file, asked for its fields by type; `place` says where it is."""

    def __init__(self, place: str, content: object) -> None:
        if not isinstance(content, dict):
            raise BadDefinitions(f"{place or 'the file'} = {_shown(content)}: a JSON object is expected")
        self.place = place
        self._content: Mapping[str, object] = content

    def where(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def text(self, name: str, default: str | None = None) -> str:
        return self._get(name, default, str, "a string")

    def short(self, name: str, default: str | None = None) -> str:
        """A name or a key that AMQP has to carry."""
        text = self.text(name, default)
        if name_is_long(text):
            self._wrong(name, "a string of at most 255 octets")
        return text

    def flag(self, name: str, default: bool) -> bool:
        return self._get(name, default, bool, "true or false")

    def number(self, name: str, default: int) -> int:
        if isinstance(self._content.get(name), bool):
            self._wrong(name, "a whole number")
        return self._get(name, default, int, "a whole number")

    def table(self, name: str) -> dict[str, Any]:
        """An object, also as RabbitMQ 3.10 writes those in parameters: as pairs."""
        value = self._content.get(name)
        if isinstance(value, list) and all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
        ):
            return {pair[0]: pair[1] for pair in value}
        return self._get(name, {}, dict, "a JSON object")

    def arguments(self) -> dict[str, Any]:
        """The arguments of a queue, an exchange or a binding: what a table of AMQP can hold."""
        arguments = self.table("arguments")
        _check_table(self.where("arguments"), arguments, 0)
        return arguments

    def inner(self, name: str) -> "_Fields":
        return _Fields(self.where(name), self._content.get(name))

    def items(self, name: str) -> Iterator["_Fields"]:
        for number, item in enumerate(self._get(name, [], list, "a JSON array")):
            yield _Fields(f"{self.where(name)}[{number}]", item)

    def raw(self, name: str) -> object:
        return self._content.get(name)

    def _get(self, name: str, default: _Item | None, kind: type[_Item], expected: str) -> _Item:
        value = self._content.get(name, default)
        if not isinstance(value, kind):
            if name not in self._content:
                raise BadDefinitions(f"{self.where(name)} is missing: {expected} is expected")
            self._wrong(name, expected)
        return value

    def _wrong(self, name: str, expected: str) -> NoReturn:
        raise BadDefinitions(f"{self.where(name)} = {_shown(self._content[name])}: {expected} is expected")


def _check_table(place: str, value: object, depth: int) -> None:
    """Names that are too long, and numbers that no type of AMQP has. How deep tables go the catalog checks."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            if name_is_long(name):
                raise BadDefinitions(f"{place} has the name {_shown(name)}: a name of at most 255 octets is expected")
            _check_table(f"{place}.{name}", item, depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check_table(f"{place}[{number}]", item, depth + 1)
    elif isinstance(value, int) and not _LOWEST_NUMBER <= value <= _HIGHEST_NUMBER:
        raise BadDefinitions(f"{place} = {value}: a number from {_LOWEST_NUMBER} to {_HIGHEST_NUMBER} is expected")


class _Reading:
    """A file on its way to a plan."""

    def __init__(self, file: _Fields) -> None:
        self._file = file
        self._commands: list[Wish] = []
        self._notes: list[str] = []
        self._limits: list[Wish] = []
        """They come last: a vhost is filled before it is said to be full."""
        self._left_out: set[tuple[str, str, str]] = set()
        """Vhost, queue or exchange, and name."""

    def plan(self) -> Plan:
        steps: tuple[tuple[str, Callable[[_Fields], CatalogCommand | None]], ...] = (
            ("users", self._user),
            ("permissions", _permissions),
            ("topic_permissions", _topic_permissions),
            ("policies", lambda item: self._policy(item, item, False)),
            ("parameters", self._parameter),
            ("exchanges", self._exchange),
            ("queues", self._queue),
            ("bindings", self._binding),
        )
        for item in self._file.items("vhosts"):
            self._vhost(item)
        for name, read in steps:
            wishes = [
                Wish(item.place, command)
                for item in self._file.items(name)
                if (command := read(item)) is not None
            ]
            self._commands += _origins_first(wishes) if name == "queues" else wishes
        self._commands += self._limits
        for item in self._file.items("global_parameters"):
            self._global_parameter(item)
        return Plan(self._commands, self._notes)

    def _parameter(self, item: _Fields) -> CatalogCommand | None:
        component = item.text("component")
        if component == OPERATOR_POLICY:
            return self._policy(item, item.inner("value"), True)
        if component == VHOST_LIMITS:
            given = item.table("value")
            # All of them together are one parameter, which is replaced.
            self._limit("vhost", item.text("vhost"), item, "value", dict.fromkeys(LIMITS["vhost"]) | given)
            return None
        self._leave_out(item, f"there are no parameters of component {_shown(component)} here")
        return None

    def _global_parameter(self, item: _Fields) -> None:
        name = item.text("name")
        if name == CLUSTER_ID_PARAMETER:
            return  # every cluster has its own
        if name.startswith(_OF_A_PLUGIN):
            self._leave_out(item, "there is no such plugin here")
            return
        try:
            checked_global_parameter(name, item.raw("value"))
        except ValueError as error:
            raise BadDefinitions(f"{item.place}: {error}") from None
        self._commands.append(Wish(item.place, SetGlobalParameter(name, item.raw("value"))))

    def _leave_out(self, item: _Fields, why: str) -> None:
        self._notes.append(f"{item.place}: {_shown(item.raw('name'))} left out, {why}")

    def _vhost(self, item: _Fields) -> None:
        """What is said twice counts as it stands with the vhost itself; what it has anyway is not asked for."""
        name = _name(item, "a vhost's name")
        metadata = item.raw("metadata")
        said = {**metadata} if isinstance(metadata, dict) else {}
        said |= {key: item.raw(key) for key in _SAID_OF_VHOSTS if item.raw(key) is not None}
        description = said.get("description")
        text = item.text("description", description if isinstance(description, str) else "")
        self._commands.append(Wish(item.place, AddVhost(name, text)))
        default_type = said.get("default_queue_type")
        if default_type not in (None, "", "undefined", *DEFAULT_TYPES):
            text = f"default_queue_type = {_shown(default_type)} left out: there is no such type of queues here"
            self._notes.append(f"{item.place}: {text}")
            default_type = None
        if said.get("tracing") or item.raw("tracing"):
            self._notes.append(f"{item.place}: tracing left out, there is none here")
        try:
            tags = checked_tags(said.get("tags") or "")
        except ValueError as error:
            raise BadDefinitions(f"{item.place}: {error}") from None
        described = DescribeVhost(
            name, tags if "tags" in said else None,
            default_type if isinstance(default_type, str) and default_type in DEFAULT_TYPES[1:] else None,
            True if said.get("protected_from_deletion") is True else None,
        )  # fmt: skip
        if described != DescribeVhost(name):
            self._commands.append(Wish(item.place, described))

    def _policy(self, item: _Fields, value: _Fields, operator: bool) -> CatalogCommand | None:
        """The policy, with those of its settings that there are here. They are old (ha-mode), or of a plugin."""
        pattern, definition = value.text("pattern"), value.table("definition")
        apply_to = value.text("apply-to", "all")
        command = SetPolicy(
            item.text("vhost"), item.text("name"), pattern, known_part(apply_to, definition),
            value.number("priority", 0), apply_to, operator,
        )  # fmt: skip
        unknown = sorted(definition.keys() - command.definition.keys())
        fault = expression_fault(pattern)
        if fault is not None:
            self._leave_out(item, f"its pattern {_shown(pattern)} is not taken here: {fault}")
        elif unknown and not command.definition:
            self._leave_out(item, f"there is no {', '.join(unknown)} for {apply_to} here")
        else:
            if unknown:
                self._notes.append(
                    f"{item.place}: {_shown(command.name)} without its {', '.join(unknown)}, which is nothing for "
                    f"{apply_to} here"
                )
            return command
        return None

    def _user(self, item: _Fields) -> CatalogCommand:
        command = _user(item)
        self._limit("user", command.name, item, "limits", item.table("limits"))
        return command

    def _limit(self, kind: LimitedKind, name: str, item: _Fields, field: str, limits: Mapping[str, Any]) -> None:
        for limit, value in limits.items():
            fault = None if value is None and limit in LIMITS[kind] else limit_fault(kind, limit, value)
            if fault is not None:
                raise BadDefinitions(f"{item.where(field)}: {fault}")
            self._limits.append(Wish(item.where(field), SetLimit(kind, name, limit, value)))

    def _exchange(self, item: _Fields) -> CatalogCommand | None:
        name = item.short("name")
        if name == "" or name.startswith("amq."):
            return None  # every vhost has these
        vhost, kind = item.text("vhost"), item.text("type")
        if not is_exchange_type(kind, LEVEL_HIGHEST):
            self._left_out.add((vhost, "exchange", name))
            self._leave_out(item, f"with its bindings: there are no exchanges of type {_shown(kind)} here")
            return None
        return DeclareExchange(
            vhost, name, kind, item.flag("durable", True), item.flag("auto_delete", False),
            item.flag("internal", False), item.arguments(),
        )  # fmt: skip

    def _queue(self, item: _Fields) -> CatalogCommand | None:
        vhost, name = item.text("vhost"), item.short("name")
        if name == "":
            raise BadDefinitions(f'{item.where("name")} = "": a name of 1 to 255 octets is expected')
        durable, auto_delete = item.flag("durable", True), item.flag("auto_delete", False)
        arguments = dict(without_empty_type(item.arguments()))
        if auto_delete or not durable or item.flag("exclusive", False):
            self._left_out.add((vhost, "queue", name))
            self._leave_out(item, "it is not durable or goes with its clients")
            return None
        kind = arguments.get("x-queue-type", "classic")
        if isinstance(kind, str) and kind not in _QUEUE_TYPES:
            self._left_out.add((vhost, "queue", name))
            self._leave_out(item, f"with its bindings: there are no queues of type {_shown(kind)} here")
            return None
        for key in unbuilt_arguments(arguments, LEVEL_HIGHEST):
            del arguments[key]
            self._notes.append(f"{item.place}: {_shown(name)} without its argument {key}, which does nothing here yet")
        for key in _OLD_ARGUMENTS:
            if key in arguments:
                text = f"{_shown(name)} keeps its argument {key} = {_shown(arguments[key])}, which does nothing here"
                self._notes.append(f"{item.place}: {text}")
        return DeclareQueue(vhost, name, True, False, False, arguments)

    def _binding(self, item: _Fields) -> CatalogCommand | None:
        vhost, source, destination = item.text("vhost"), item.text("source"), item.text("destination")
        kind = item.text("destination_type")
        if kind not in ("queue", "exchange"):
            raise BadDefinitions(f"{item.where('destination_type')} = {_shown(kind)}: queue or exchange is expected")
        ends = ((vhost, "exchange", source), (vhost, kind, destination))
        if source == "" or not self._left_out.isdisjoint(ends):
            return None
        foreign = [name for _, of, name in ends if of == "exchange" and _is_of_a_plugin(name)]
        if foreign:
            self._notes.append(f"{item.place} left out, there is no exchange {_shown(foreign[0])} here")
            return None
        return Bind(
            vhost, source, "queue" if kind == "queue" else "exchange", destination, item.short("routing_key", ""),
            item.arguments(),
        )  # fmt: skip


def _is_of_a_plugin(exchange: str) -> bool:
    """Such as amq.rabbitmq.event: nobody can declare it, and here it is not."""
    return exchange.startswith("amq.") and exchange not in _PREDECLARED


def _user(item: _Fields) -> PutUser:
    algorithm, password_hash = item.text("hashing_algorithm", ALGORITHMS[0]), item.text("password_hash")
    try:
        stored = from_imported(algorithm, password_hash)
        tags = checked_tags("" if item.raw("tags") is None else item.raw("tags"))
    except ValueError as error:
        raise BadDefinitions(f"{item.place}: {error}") from None
    return PutUser(_name(item, "a user's name"), stored, tags)


def _name(item: _Fields, what: str) -> str:
    name = item.text("name")
    try:
        return checked_name(name, what)
    except ValueError as error:
        raise BadDefinitions(f"{item.where('name')} = {_shown(name)}: {error}") from None


def _origins_first(queues: list[Wish]) -> list[Wish]:
    """The queues of a file in its order, but streams behind those that they copy (RULES J4), and queues behind their
    journals (R4)."""
    left = {(wish.command.vhost, wish.command.name): wish for wish in queues if isinstance(wish.command, DeclareQueue)}
    ordered: list[Wish] = []
    for first in list(left):
        pending = [first]
        while pending:
            vhost, _ = key = pending[-1]
            wish = left.get(key)
            command = None if wish is None else wish.command
            if wish is None or not isinstance(command, DeclareQueue):
                pending.pop()
                continue
            before = [(vhost, name) for name in origins_said(command.arguments)]
            journal = command.arguments.get(ARGUMENT)
            if isinstance(journal, str):
                before.append((vhost, journal))
            waits = [each for each in before if each in left and each not in pending]
            pending += waits
            if not waits:
                ordered.append(left.pop(pending.pop()))
    return ordered


def _permissions(item: _Fields) -> CatalogCommand:
    return SetPermissions(
        item.text("user"), item.text("vhost"), item.text("configure"), item.text("write"), item.text("read")
    )


def _topic_permissions(item: _Fields) -> CatalogCommand:
    user, vhost, exchange = item.text("user"), item.text("vhost"), item.text("exchange")
    return SetTopicPermissions(user, vhost, exchange, item.text("write"), item.text("read"))


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else text[:100] + "..."
