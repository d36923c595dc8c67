"""Bad values at the doors for operators: policies of both kinds over HTTP and on the command line, and definitions.

One list of values for all of them. Every refusal names the field, the value and what would be right; the catalog is
what it was, octet by octet; and the next request is answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import Catalog, decode, encode
from mayfly.node.catalog.arguments import MAX_TTL_MS
from mayfly.node.catalog.policies import MAX_LIMIT
from mayfly.node.command_line import main
from mayfly.node.command_line.operator_client import request
from mayfly.node.operating.definitions.exporting import definitions_of
from mayfly.node.operating.definitions.reading import BadDefinitions, check_on, read_definitions
from tests.node.http.served import Served
from tests.node.http.test_management import Api

VALUES: Final[dict[str, str]] = {
    "null": "null", "true": "true", "false": "false", "zero": "0", "one": "1", "minus one": "-1", "minus two": "-2",
    "1.0": "1.0", "1.5": "1.5", "1e3": "1e3", "ten years": str(MAX_TTL_MS), "ten years and 1 ms": str(MAX_TTL_MS + 1),
    "2^48": str(2**48), "2^63": str(2**63), "-2^64": str(-(2**64)), "10^30": str(10**30), "empty string": '""',
    "string 5": '"5"', "string -1": '"-1"', "string NaN": '"NaN"', "word": '"drop-tail"', "NUL": '"a\\u0000b"',
    "ü": '"ü"', "256 octets": json.dumps("x" * 256), "256 octets in 128 letters": json.dumps("ü" * 128),
    "empty list": "[]", "list": "[5]", "empty object": "{}", "object": '{"a": 5}',
    "lists 400 deep": "[" * 400 + "]" * 400, "objects 400 deep": '{"a":' * 400 + "1" + "}" * 400,
}  # fmt: skip
"""As they stand in JSON."""
NO_JSON: Final = ("NaN", "Infinity", "1e400", '"\\ud800"', "9" * 5000, "01", "+5", "nul", "[" * 100_000)


def _number(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= highest


def _name(value: Any) -> bool:
    return isinstance(value, str) and len(value.encode()) < 256


def _none(value: Any) -> bool:
    return False


KEYS: Final[dict[str, Callable[[Any], bool]]] = {
    "message-ttl": _number(0, MAX_TTL_MS), "expires": _number(1, MAX_TTL_MS), "max-length": _number(0, MAX_LIMIT),
    "max-length-bytes": _number(0, MAX_LIMIT), "delivery-limit": _number(-1, MAX_LIMIT), "dead-letter-exchange": _name,
    "dead-letter-routing-key": _name, "dead-letter-strategy": _none, "overflow": _none, "ttl-applies": _none,
}  # fmt: skip
"""The keys of definitions, and which of the values they take."""


def definitions(key: str) -> Iterator[tuple[str, str]]:
    """Label and JSON of a definition for each value that the key does not take."""
    beside = '"dead-letter-exchange": "x", ' if key == "dead-letter-routing-key" else ""
    for label, text in VALUES.items():
        if not KEYS[key](json.loads(text)):
            yield label, f'{{{beside}"{key}": {text}}}'


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.logins.close()


@pytest.fixture(scope="module")
def address(api: Api) -> Iterator[str]:
    with Served(api.server) as address:
        yield address


def put(address: str, kind: str, body: object) -> tuple[int, Any]:
    return request("PUT", address, f"/api/{kind}/%2F/bad", body, "guest", "guest")


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
@pytest.mark.parametrize("key", KEYS)
def test_t1_l1_d1_policies_over_http(api: Api, address: str, kind: str, key: str) -> None:
    before = api.catalog.snapshot()
    for label, definition in definitions(key):
        status, answer = put(address, kind, {"pattern": "^q", "definition": json.loads(definition)})
        assert (status, answer["error"]) == (400, "bad_request"), (label, answer)
        hint, theirs = answer["reason"].strip().split("\n")[-2:]
        assert hint.startswith(f"{key} takes "), (label, hint)
        assert " is not a valid " in theirs, (label, theirs)
        assert api.catalog.snapshot() == before, label
    assert put(address, kind, {"pattern": "^q", "definition": {"expires": 5}})[0] == 201
    path = f"/api/{kind}/%2F/bad"
    assert request("DELETE", address, path, None, "guest", "guest")[0] == 204


@pytest.mark.parametrize("field", ["pattern", "priority", "apply-to", "definition"])
def test_fields_of_policies_over_http(api: Api, address: str, field: str) -> None:
    before = api.catalog.snapshot()
    good: dict[str, Callable[[Any], bool]] = {
        "pattern": lambda value: isinstance(value, str), "definition": _none, "apply-to": lambda value: value is None,
        "priority": lambda value: value is None or (type(value) is int and abs(value) < 2**31),
    }  # fmt: skip
    for label, text in VALUES.items():
        value = json.loads(text)
        if not good[field](value):
            status, answer = put(address, "policies", {"pattern": "^q", "definition": {"expires": 5}, field: value})
            assert (status, answer["error"]) == (400, "bad_request"), (label, answer)
            told = "policy" if field == "definition" and value == {} else field
            told = "not recognised policy settings" if field == "definition" and value else told
            assert told in answer["reason"] or field in answer["reason"], (label, answer)
            assert api.catalog.snapshot() == before, label


def mayfly(address: str, *arguments: str, data: bytes = b"") -> Result:
    return CliRunner().invoke(main, [*arguments, "--node", address], input=data)


@pytest.mark.parametrize("operator", [False, True])
def test_policies_on_the_command_line(api: Api, address: str, operator: bool) -> None:
    """All values for one key, and one for every key; and what is no JSON."""
    before = api.catalog.snapshot()
    asked = [("expires", definition) for _, definition in definitions("expires")]
    asked += [(key, next(definitions(key))[1]) for key in KEYS]
    options = ["--operator"] if operator else []
    for key, definition in asked:
        done = mayfly(address, "policy", "set", "bad", "^q", definition, *options)
        assert done.exit_code == 1 and f"{key} takes " in done.output, (definition[:80], done.output, done.exception)
    for text in NO_JSON:
        done = mayfly(address, "policy", "set", "bad", "^q", f'{{"expires": {text}}}', *options)
        assert done.exit_code in (1, 2) and "JSON" in done.output, (text[:20], done.output, done.exception)
    assert api.catalog.snapshot() == before


def in_definitions(definition: str) -> Iterator[tuple[str, str]]:
    """A file with a policy and one with an operator policy, each behind a queue that is in order; and where it is."""
    queue = '"queues": [{"name": "good", "vhost": "/"}]'
    policy = f'"pattern": "^q", "definition": {definition}'
    yield "policies[0]", f'{{{queue}, "policies": [{{"name": "p", "vhost": "/", {policy}}}]}}'
    operator = f'"component": "operator_policy", "name": "p", "vhost": "/", "value": {{{policy}}}'
    yield "parameters[0]", f'{{{queue}, "parameters": [{{{operator}}}]}}'


def refused(data: str) -> str:
    """How a file is refused, for certain before anything was done; "" if its commands can be done."""
    catalog = Catalog(2)
    try:
        plan = read_definitions(data.encode())
        check_on(catalog.founding_shards, catalog.snapshot(), plan)
    except BadDefinitions as error:
        return str(error)
    for place, command in plan.commands:
        result = catalog.apply(decode(encode(command)))
        assert not isinstance(result, Exception), (place, result)
    assert definitions_of(catalog) and catalog.snapshot()
    return ""


@pytest.mark.parametrize("key", KEYS)
def test_policies_in_definitions(key: str) -> None:
    for label, definition in definitions(key):
        for place, file in in_definitions(definition):
            text = refused(file)
            assert text.startswith(place) and f"{key} takes " in text, (label, text)


ARGUMENTS: Final[dict[str, Callable[[Any], bool]]] = {
    "x-message-ttl": _number(0, MAX_TTL_MS), "x-expires": _number(1, MAX_TTL_MS), "x-max-length": _number(0, 2**63 - 1),
    "x-max-length-bytes": _number(0, 2**63 - 1), "x-delivery-limit": _number(-(2**63), 2**63 - 1),
    "x-dead-letter-exchange": _name, "x-dead-letter-routing-key": _name, "x-overflow": _none,
    "x-dead-letter-strategy": _none, "x-ttl-applies": _none, "x-expires-if": _none, "x-single-active-consumer":
    lambda value: isinstance(value, bool), "x-expires-dead-letter": lambda value: isinstance(value, bool),
}  # fmt: skip


@pytest.mark.parametrize("key", ARGUMENTS)
def test_t1_l1_d1_arguments_of_queues_in_definitions(key: str) -> None:
    beside = '"x-dead-letter-exchange": "x", ' if key == "x-dead-letter-routing-key" else ""
    for label, value in VALUES.items():
        queue = f'{{"name": "q", "vhost": "/", "arguments": {{"x-queue-type": "quorum", {beside}"{key}": {value}}}}}'
        text = refused(f'{{"queues": [{{"name": "good", "vhost": "/"}}, {queue}]}}')
        if ARGUMENTS[key](json.loads(value)):
            assert text == "", label
        else:
            assert text.startswith("queues[1]") and (key in text or "64 deep" in text), (label, text)


@pytest.mark.parametrize(
    ("section", "item"),
    [
        ("queues", '{"name": "q", "vhost": "/", "arguments": {"of-my-own": %s}}'),
        ("exchanges", '{"name": "e", "vhost": "/", "type": "fanout", "arguments": {"of-my-own": [{"a": %s}]}}'),
        ("bindings", '{"source": "amq.topic", "vhost": "/", "destination": "amq.fanout", '
         '"destination_type": "exchange", "arguments": {"of-my-own": %s}}'),
    ],
)  # fmt: skip
def test_arguments_that_nobody_knows_in_definitions(section: str, item: str) -> None:
    """They are kept; but for what no table of AMQP can hold, which the log can't either."""
    for label, value in VALUES.items():
        text = refused(f'{{"queues": [{{"name": "good", "vhost": "/"}}], "{section}": [{item % value}]}}')
        if label in ("2^63", "-2^64", "10^30"):
            assert f"{section}[0].arguments.of-my-own" in text and "a number from -9223372036854775808 to" in text
        elif "deep" in label:
            assert "64 deep" in text, (label, text)
        else:
            assert text == "", (label, text)


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_no_json_in_definitions(text: str) -> None:
    queue = f'{{"name": "q", "vhost": "/", "arguments": {{"x-expires": {text}}}}}'
    assert refused(f'{{"queues": [{queue}]}}').startswith("not JSON")


@pytest.mark.parametrize("name", ["", "ü" * 128, "amq.mine"])
def test_names_of_queues_in_definitions(name: str) -> None:
    assert refused(json.dumps({"queues": [{"name": name, "vhost": "/"}]})).startswith("queues[0]")
