"""What users, vhosts, tags and the like may be called, over HTTP and in files."""

from typing import Final

import msgspec

from mayfly.node.catalog import MalformedCommand, SetGlobalParameter, decode, encode
from mayfly.node.catalog.records import CLUSTER_ID_PARAMETER, CLUSTER_NAME_PARAMETER
from mayfly.node.limits import ARGUMENT_VALUES, ARGUMENTS_BYTES

LONGEST_NAME_BYTES: Final = 255


def checked_name(name: str, what: str) -> str:
    """The name of a user or a vhost. Raises ValueError, which says what `what` takes."""
    if not name or name_is_long(name) or any(ord(character) < 32 for character in name):
        raise ValueError(f"{what} has 1 to {LONGEST_NAME_BYTES} octets and no control characters")
    return name


def name_is_long(name: str) -> bool:
    """Whether AMQP can't carry the name: a short string has 255 octets at most."""
    return len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME_BYTES


def checked_tags(tags: object) -> tuple[str, ...]:
    """As RabbitMQ takes them: words with commas between, or a list. Raises ValueError."""
    words = tags.split(",") if isinstance(tags, str) else tags
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("tags takes words with commas between, or a list of words")
    checked_size(words, "tags")
    return tuple(dict.fromkeys(checked_name(word.strip(), "a tag") for word in words if word.strip()))


def checked_size(value: object, what: str) -> None:
    """What comes as JSON and is kept by every node has the same limits as the arguments of a method. Raises
    ValueError."""
    octets, values = len(msgspec.json.encode(value)), values_in_json(value) - 1
    if octets > ARGUMENTS_BYTES:
        raise ValueError(f"{what} of {octets} octets, where {ARGUMENTS_BYTES} are the most")
    if values > ARGUMENT_VALUES:
        raise ValueError(f"{what} with {values} values, where {ARGUMENT_VALUES} are the most")


def checked_value(value: object, what: str) -> object:
    """A value of JSON that the catalog can keep. Raises ValueError."""
    try:
        decode(encode(SetGlobalParameter("", value)))
    except MalformedCommand:
        raise ValueError(f"{what} takes numbers of 64 bits, and is not nested beyond reason") from None
    checked_size(value, what)
    return value


def checked_global_parameter(name: str, value: object) -> None:
    """Raises ValueError for one that can't be set."""
    checked_name(name, "a global parameter's name")
    if name == CLUSTER_ID_PARAMETER:
        raise ValueError(f"{name} is the cluster's own, and can't be set")
    if name == CLUSTER_NAME_PARAMETER:
        if not isinstance(value, str):
            raise ValueError(f"{name} takes a string")
        checked_name(value, f"the value of {name}")
    checked_value(value, f"the value of {name}")


def values_in_json(value: object) -> int:
    """How many values there are, this one and those inside of it, however deep."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return count
