"""The same messages, with the same TTLs, in streams of nats-server and of MayflyMQ: what is there after each second, in
which order, and which markers came (RULES J2 to J4, NATS ADR-43).

    pip install nats-py       # into an environment that has MayflyMQ's tests, too
    PYTHONPATH=. python tests/bench/jetstream_ttls.py [--write docs/measurements/jetstream-ttls.md]

nats-server is that of `bench.newer_peers`, one node; so is MayflyMQ. Exit code 1: something differs that `REASONS` does
not know.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import nats
import pika
import pika.exceptions

from bench.jetstream_cluster import Jetstream
from bench.marked_page import write_figures
from bench.newer_peers import newer_peers
from mayfly.node.version import VERSION
from tests.integration.nodes import Nodes
from tests.integration.operators import ask

PROGRAM: Final = "tests/bench/jetstream_ttls.py"
SECONDS: Final = 16
LOOK_AT_MS: Final = 600
"""After each full second: nothing is due near then, and a tick of either has passed."""
MAX_AGE_S: Final = 12
MARKER_S: Final = 3
PREFIX: Final = "ttl."
DELETED_AT_S: Final = 5
PURGED_AT_S: Final = 6


class Said(NamedTuple):
    """A message: its body, its key, and what it says of its TTL."""

    body: str
    key: str
    ttl: str | None


MESSAGES: Final = (
    Said("seconds", "a", "5"),
    Said("duration", "b", "7s"),
    Said("long duration", "c", "1h1m"),
    Said("fraction", "d", "5.2s"),
    Said("never", "e", "never"),
    Said("no TTL", "f", None),
    Said("below the markers'", "g", "1"),
    Said("first of a key", "h", "4"),
    Said("last of a key", "h", "8"),
    Said("to delete", "i", None),
    Said("first to purge", "j", None),
    Said("last to purge", "j", "1h"),
    Said("zero", "k", "0"),
    Said("zero seconds", "l", "0s"),
    Said("negative", "m", "-1"),
    Said("half a second", "n", "500ms"),
    Said("no duration", "o", "soon"),
    Said("empty", "p", ""),
    Said("number with a fraction", "q", "5.5"),
    Said("capitals", "r", "NEVER"),
    Said("eleven years", "s", "100000h"),
    Said("blanks", "t", " 5"),
)
STREAMS: Final = (
    "honours", "mirror that honours", "mirror that does not", "source that honours", "source that does not",
)
NAMES: Final = {name: "S" + str(number) for number, name in enumerate(STREAMS)}
ADMIN: Final = (
    "redeclare with the opt-in", "redeclare without the opt-in", "marker TTL of half a second",
    "marker TTL of a mirror", "marker TTL without the opt-in", "a TTL after that",
)

REASONS: Final = {
    "zero": "RULES J2: 0 is ignored, as in ADR-43 at first; by now that refuses it",
    "zero seconds": "the same",
    "eleven years": "RULES J2: above ten years it is refused, as all times are here",
    "Remove": "RULES J3: what is deleted leaves a marker, as ADR-43 has it; nats-server has not built that (it says so "
    "there)",
    "Purge": "RULES J3: the same of a key that is purged",
    "empty": "no duration, as any text that is none; nats-server takes it for no header",
    "a TTL after that": "RULES J2: who wants the opt-in says so; nats-server sets it by itself with a TTL of markers",
    "blanks": "headers of NATS lose blanks on their way; in AMQP they are part of a value, and of no duration",
}


class Found(NamedTuple):
    """What is in a stream, in its order: a body, or of a marker its reason and key."""

    body: str
    key: str
    reason: str
    ttl: str

    def shown(self) -> str:
        """For the page."""
        return f"{self.reason} of {self.key}" if self.reason else self.body


class Outcome(NamedTuple):
    """What one of the two has made of it."""

    published: dict[str, bool]
    """By body: whether it was taken."""
    seconds: list[dict[str, list[Found]]]
    """After each second, by stream."""
    admin: dict[str, bool]
    """What of `ADMIN` was taken."""


def wait_until(began_s: float, second: float) -> None:
    """Until so many seconds after the beginning."""
    time.sleep(max(0.0, began_s + second - time.monotonic()))


# ---------------------------------------------------------------------------------------------------- nats-server


async def in_jetstream(uri: str) -> Outcome:
    """The whole run there, by the JSON of its API."""
    client = await nats.connect(uri)

    async def api(what: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await client.request(f"$JS.API.{what}", json.dumps(content or {}).encode(), timeout=10)
        told: dict[str, Any] = json.loads(answer.data)
        return told

    def config(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "storage": "file", "num_replicas": 1, "retention": "limits", **more}

    nanoseconds = 1_000_000_000
    honours, mirrored, kept, gathered, stored = (NAMES[name] for name in STREAMS)
    first = config(
        honours, subjects=[f"{PREFIX}>"], allow_msg_ttl=True, subject_delete_marker_ttl=MARKER_S * nanoseconds,
        max_age=MAX_AGE_S * nanoseconds, allow_rollup_hdrs=True,
    )  # fmt: skip
    for made in (
        first,
        config(mirrored, mirror={"name": honours}, allow_msg_ttl=True),
        config(kept, mirror={"name": honours}),
        config(gathered, sources=[{"name": honours}], allow_msg_ttl=True),
        config(stored, sources=[{"name": honours}]),
    ):
        told = await api(f"STREAM.CREATE.{made['name']}", made)
        assert "error" not in told, told
    published = {}
    began_s = time.monotonic()
    for said in MESSAGES:
        headers = None if said.ttl is None else {"Nats-TTL": said.ttl}
        answer = await client.request(PREFIX + said.key, said.body.encode(), timeout=10, headers=headers)
        published[said.body] = "error" not in json.loads(answer.data)

    async def content(name: str) -> list[Found]:
        state = (await api(f"STREAM.INFO.{name}"))["state"]
        found = []
        for number in range(state["first_seq"], state["last_seq"] + 1):
            told = await api(f"STREAM.MSG.GET.{name}", {"seq": number})
            if "message" in told:
                found.append(_of_jetstream(told["message"]))
        return found

    seconds = []
    for second in range(SECONDS):
        await asyncio.to_thread(wait_until, began_s, second + LOOK_AT_MS / 1000)
        seconds.append({name: await content(NAMES[name]) for name in STREAMS})
        if second == DELETED_AT_S - 1:
            await api(f"STREAM.MSG.DELETE.{honours}", {"seq": _place(MESSAGES, published, "to delete") + 1})
        elif second == PURGED_AT_S - 1:
            await api(f"STREAM.PURGE.{honours}", {"filter": PREFIX + "j"})
    answers = [
        await api(f"STREAM.UPDATE.{gathered}", config(gathered, sources=[{"name": honours}], allow_msg_ttl=True)),
        await api(f"STREAM.UPDATE.{honours}", {**first, "allow_msg_ttl": False, "subject_delete_marker_ttl": 0}),
        await api("STREAM.CREATE.half", config("half", subjects=["half"], subject_delete_marker_ttl=nanoseconds // 2)),
        await api(
            "STREAM.CREATE.marks",
            config("marks", mirror={"name": honours}, subject_delete_marker_ttl=nanoseconds, allow_msg_ttl=True),
        ),
        await api(
            "STREAM.CREATE.bare",
            config("bare", subjects=["bare"], subject_delete_marker_ttl=nanoseconds, allow_rollup_hdrs=True),
        ),
        json.loads((await client.request("bare", b"", timeout=10, headers={"Nats-TTL": "5"})).data),
    ]
    await client.close()
    return Outcome(published, seconds, {name: "error" not in each for name, each in zip(ADMIN, answers, strict=True)})


def _of_jetstream(message: dict[str, Any]) -> Found:
    from base64 import b64decode

    lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    return Found(
        b64decode(message.get("data", "")).decode(), message["subject"].removeprefix(PREFIX),
        headers.get("Nats-Marker-Reason", ""), headers.get("Nats-TTL", ""),
    )  # fmt: skip


def _place(messages: tuple[Said, ...], published: dict[str, bool], body: str) -> int:
    """The offset of a message, of those that were taken."""
    taken = [said.body for said in messages if published[said.body]]
    return taken.index(body)


# ---------------------------------------------------------------------------------------------------- MayflyMQ


def in_mayfly(nodes: Nodes) -> Outcome:
    """The whole run here, by AMQP; deletes and purges by HTTP."""
    address = nodes.plan(1).amqp
    connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("ttl", "topic", durable=True)
    honours, mirrored, kept, gathered, stored = (NAMES[name] for name in STREAMS)
    stream = {"x-queue-type": "stream"}
    allows = {**stream, "x-allow-msg-ttl": True}
    first = {**allows, "x-delete-marker-ttl": MARKER_S, "x-max-age": f"{MAX_AGE_S}s"}
    for name, arguments in (
        (honours, first),
        (mirrored, {**allows, "x-mirror": honours}),
        (kept, {**stream, "x-mirror": honours}),
        (gathered, {**allows, "x-sources": [honours]}),
        (stored, {**stream, "x-sources": [honours]}),
    ):
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_bind(honours, "ttl", "#")

    def taken(exchange: str, key: str, body: str, ttl: str | None) -> bool:
        headers: dict[str, Any] = {} if ttl is None else {"Nats-TTL": ttl}
        try:
            channel.basic_publish(exchange, key, body.encode(), pika.BasicProperties(headers=headers), mandatory=True)
        except pika.exceptions.NackError:
            return False
        return True

    published = {}
    began_s = time.monotonic()
    for said in MESSAGES:
        published[said.body] = taken("ttl", PREFIX + said.key, said.body, said.ttl)

    def content(name: str) -> list[Found]:
        count = channel.queue_declare(name, durable=True, passive=True).method.message_count
        reading = connection.channel()
        reading.basic_qos(prefetch_count=1000)
        found: list[Found] = []
        if count:
            start = {"x-stream-offset": "first"}
            for method, properties, body in reading.consume(name, arguments=start, inactivity_timeout=0.2):
                if method is None:
                    break
                headers = properties.headers
                reason = headers.get("x-marker-reason", "")
                key = method.routing_key.removeprefix(PREFIX)
                found.append(Found(body.decode(), key, reason, str(headers.get("Nats-TTL", ""))))
                if len(found) == count:
                    break
        reading.close()
        return found

    path = f"mayfly/queues/%2F/{honours}/stream"
    seconds = []
    for second in range(SECONDS):
        wait_until(began_s, second + LOOK_AT_MS / 1000)
        seconds.append({name: content(NAMES[name]) for name in STREAMS})
        if second == DELETED_AT_S - 1:
            assert ask(nodes, 1, "DELETE", f"{path}/messages/{_place(MESSAGES, published, 'to delete')}")[0] == 204
        elif second == PURGED_AT_S - 1:
            assert ask(nodes, 1, "DELETE", f"{path}/keys?key={quote(PREFIX + 'j')}")[0] == 200

    def declared(name: str, arguments: dict[str, Any]) -> bool:
        trying = connection.channel()
        try:
            trying.queue_declare(name, durable=True, arguments=arguments)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        trying.close()
        return True

    without = {name: value for name, value in first.items() if name != "x-allow-msg-ttl"}
    answers = [
        declared(gathered, {**allows, "x-sources": [honours]}),
        declared(honours, without),
        declared("half", {**stream, "x-delete-marker-ttl": "500ms"}),
        declared("marks", {**allows, "x-mirror": honours, "x-delete-marker-ttl": 1}),
        declared("bare", {**stream, "x-delete-marker-ttl": 1}),
        taken("", "bare", "", "5"),
    ]
    connection.close()
    return Outcome(published, seconds, dict(zip(ADMIN, answers, strict=True)))


# ---------------------------------------------------------------------------------------------------- comparison


def compare(theirs: Outcome, ours: Outcome) -> tuple[list[str], list[str]]:
    """The differences, one for each thing that differs, with its reason; and those without one."""
    found: dict[str, str] = {}

    def differs(what: str, text: str) -> None:
        found.setdefault(what, text)

    for said in MESSAGES:
        there, here = theirs.published[said.body], ours.published[said.body]
        if there != here:
            verbs = {True: "taken", False: "refused"}
            differs(said.body, f"`Nats-TTL` {_quoted(said.ttl)}: there {verbs[there]}, here {verbs[here]}")
    for name in ADMIN:
        if theirs.admin[name] != ours.admin[name]:
            differs(name, f"{name}: taken {'there' if theirs.admin[name] else 'here'} alone")
    alike = {said.body for said in MESSAGES if theirs.published[said.body] == ours.published[said.body]}
    known = {"Remove", "Purge"}
    for second, (there_all, here_all) in enumerate(zip(theirs.seconds, ours.seconds, strict=True)):
        for stream in STREAMS:
            theirs_now, ours_now = (
                [each for each in of[stream] if _counts(each, alike)] for of in (there_all, here_all)
            )
            for each in (*theirs_now, *ours_now):
                if each.reason in known and (each in theirs_now) != (each in ours_now):
                    side = "there" if each in theirs_now else "here"
                    differs(each.reason, f"a marker `{each.reason}`: {side} alone")
            left, right = ([_told(each) for each in of if each.reason not in known] for of in (theirs_now, ours_now))
            if left != right:
                lost, more = sorted(set(left) - set(right)), sorted(set(right) - set(left))
                differs(
                    f"{stream} at {second}",
                    f"'{stream}' after {second + 1} s: there alone {lost}, here alone {more}" if lost or more
                    else f"'{stream}' after {second + 1} s: another order: {left}, {right}",
                )  # fmt: skip
    texts = [f"{text}. {REASONS.get(what, '') or '**no reason known**'}" for what, text in found.items()]
    return texts, [text for what, text in found.items() if not REASONS.get(what)]


def _counts(found: Found, alike: set[str]) -> bool:
    """Whether both have taken what it is, or what it is a marker of."""
    bodies = {said.body for said in MESSAGES if said.key == found.key}
    return bodies <= alike


def _told(found: Found) -> tuple[str, str, str]:
    return (found.shown(), found.key, found.ttl)


def _quoted(ttl: str | None) -> str:
    return "none" if ttl is None else f'`"{ttl}"`'


def page(theirs: Outcome, ours: Outcome, versions: str, differences: list[str]) -> str:
    """The figures, in Markdown."""
    alone = STREAMS[0]
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {versions}, one node each. Age {MAX_AGE_S} s, markers {MARKER_S} s; a message "
        f"is deleted after {DELETED_AT_S} s, a key purged after {PURGED_AT_S} s.",
        "",
        "| `Nats-TTL` | JetStream | MayflyMQ |",
        "|---|---|---|",
    ]
    verb = {True: "taken", False: "refused"}
    lines += [
        f"| {_quoted(said.ttl)} | {verb[theirs.published[said.body]]} | "
        f"{verb[ours.published[said.body]]} |"
        for said in MESSAGES
    ]
    lines += [f"| {name} | {verb[theirs.admin[name]]} | {verb[ours.admin[name]]} |" for name in ADMIN]
    lines += [
        "", f"What is in the stream with age, opt-in and markers ('{alone}'), in its order:", "",
        "| after | JetStream | MayflyMQ |", "|---|---|---|",
    ]  # fmt: skip
    for second in range(SECONDS):
        there, here = (", ".join(each.shown() for each in of.seconds[second][alone]) for of in (theirs, ours))
        lines.append(f"| {second + 1} s | {there} | {'the same' if here == there else here} |")
    looks = SECONDS * len(STREAMS)
    lines += ["", f"{looks} looks at {len(STREAMS)} streams, mirrors and sources among them. Differences:", ""]
    lines += [f"- {text}" for text in differences] or ["- none"]
    return "\n".join(lines)


def main() -> None:
    """Run both, one after the other, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    arguments = parser.parse_args()
    root = newer_peers()
    if root is None:
        sys.exit("no nats-server: see bench/newer_peers.py")
    peer = Jetstream("JetStream", root, "always")
    with peer.single_node() as cluster:
        theirs = asyncio.run(in_jetstream(cluster.uris[0]))
    with tempfile.TemporaryDirectory() as folder, Nodes(Path(folder) / "nodes", 1) as nodes:
        nodes.serve()
        ours = in_mayfly(nodes)
    differences, unknown = compare(theirs, ours)
    text = page(theirs, ours, f"nats-server {peer.version()}, mayfly {VERSION}", differences)
    print(text)
    if arguments.write is not None:
        write_figures(arguments.write, PROGRAM, text.split("\n"))
    if unknown:
        sys.exit(f"{len(unknown)} differences without a reason")


if __name__ == "__main__":
    main()
