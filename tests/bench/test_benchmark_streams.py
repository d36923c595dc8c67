"""The benchmark of streams: how lateness is seen from outside, what its client of JetStream says, and what readers are
told of where to begin."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench import streams
from bench.clusters import SHARED, BrokerFailed, Cluster
from bench.comparison import MAYFLY, Results, compare
from bench.load_generator import PROGRAMS, LoadGenerator, command_line, with_due_times, with_stream_offsets
from bench.nats_pipeline import NatsError, NatsPipeline
from bench.stream_deaths import lateness_ms
from bench.streams import ROWS, Sizes, publish, read

CLUSTER = Cluster("a broker", ["amqp://a", "amqp://b"], [1, 2], [])


def test_a_message_is_late_until_the_look_that_no_longer_finds_it() -> None:
    due_s = [10.0, 11.0, 12.0, 13.0]
    assert lateness_ms(due_s, [(10.5, 0), (11.0, 1), (13.5, 3), (14.0, 4)]) == [1000.0, 2500.0, 1500.0, 1000.0]


def test_what_was_gone_before_the_first_look_counts_for_nothing_and_nothing_is_early() -> None:
    assert lateness_ms([1.0, 2.0, 3.0], [(1.5, 1), (1.6, 2), (3.25, 3)]) == [0.0, 250.0]


def test_a_look_that_finds_more_again_counts_nothing_twice() -> None:
    assert lateness_ms([1.0, 2.0], [(0.5, 0), (1.5, 1), (1.6, 0), (2.5, 2)]) == [500.0, 500.0]


@contextmanager
def server(answers: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Says what a NATS server says, then these: one for each publish that comes. Its address, and what it was told."""
    told: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(b'INFO {"headers":true}\r\n')
            subjects = {}
            for line in lines:
                words = line.split()
                if words[0] == b"SUB":
                    subjects[words[2]] = words[1]
                elif words[0] == b"PING":
                    connection.sendall(b"PONG\r\n")
                elif words[0] in (b"PUB", b"HPUB"):
                    payload = lines.read(int(words[-1]) + 2)
                    told.append(line + payload)
                    number = next(key for key, subject in subjects.items() if subject == words[2])
                    body = answers.pop(0)
                    connection.sendall(b"PING\r\nMSG %s %s %d\r\n%s\r\n" % (words[2], number, len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}", told


def test_publishes_to_jetstream_are_counted_by_their_acknowledgements() -> None:
    acks = [b'{"stream":"s","seq":%d}' % number for number in range(1, 6)]
    with server([b'{"config":{}}', *acks]) as (uri, told), NatsPipeline(uri) as client:
        assert client.ask("$JS.API.STREAM.CREATE.s", {"name": "s"}) == {"config": {}}
        assert client.publish_all((client.with_ttl("s", b"body", 7) for _ in range(5)), 2) == 5
    assert told[0].startswith(b"PUB $JS.API.STREAM.CREATE.s ")
    assert all(each.endswith(b"\r\nNATS/1.0\r\nNats-TTL: 7\r\n\r\nbody\r\n") for each in told[1:])


def test_what_jetstream_refuses_ends_the_run() -> None:
    with server([b'{"error":{"code":400}}'] * 2) as (uri, _), NatsPipeline(uri) as client:
        with pytest.raises(NatsError, match="400"):
            client.ask("$JS.API.STREAM.CREATE.s", {})
        with pytest.raises(NatsError, match="refused"):
            client.publish_all([client.with_ttl("s", b"", 1)], 1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_readers_begin_with_the_first_message() -> None:
    source = with_stream_offsets((SHARED / "amqpload.c").read_text())
    assert source.count('"x-stream-offset"') == 1
    with pytest.raises(BrokerFailed, match="0 times"):
        with_stream_offsets("int main(void) { return 0; }")


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared has the load generators")
@pytest.mark.parametrize("program", PROGRAMS.values())
def test_a_load_generator_waits_for_what_is_due_next_once_it_has_published_what_was(program: str) -> None:
    source = (SHARED / f"{program}.c").read_text()
    changed = with_due_times(source)
    loop = changed[changed.index("static void run_producer(") :]
    published, waits = loop.index("publish_one(w,"), loop.index("if (wait < 100000) wait = 100000;")
    assert published < waits < loop.index("wait_io(w, wait)")
    with pytest.raises(BrokerFailed, match="once expected"):
        with_due_times(changed + source)


def test_a_load_for_streams_declares_streams_alone() -> None:
    words = command_line("f", "amqp://u", "1", ["--queue-type", "stream"], strict=False)
    assert (words.count("--queue-type"), "quorum" in words, "--strict" in words) == (1, False, False)


class StandInReader(LoadGenerator):
    """Answers as amqpload does."""

    def __init__(self, **wrong: int) -> None:
        self.wrong = wrong
        self.loads: list[list[str]] = []

    def run(self, cluster: Cluster, load: list[str], strict: bool = True) -> dict[str, Any]:
        self.loads.append(load)
        readers = int(load[load.index("--consumers") + 1]) if "--consumers" in load else 1
        found = {
            "out_of_order": 0, "foreign": 0, "corrupt": 0, "redelivered": 0,
            "duplicates": Sizes(True).read * (readers - 1), "confirmed_s": 1, "consumed_s": 2,
            "broker_cpu_per_100k": 1, "other_cores": 0, "latency_ms": {"p50": 1, "p99": 1},
            "confirm_ms": {"p50": 1, "p99": 1},
        }  # fmt: skip
        return {**found, **self.wrong}


def test_all_rows_are_measured_by_a_part() -> None:
    sizes, results = Sizes(True), Results()
    for part in (publish, read):
        results.add(MAYFLY, part(StandInReader(), CLUSTER, sizes))
    measured = {each.row.figure for each in compare(results, ROWS)}
    assert {row.figure for row in ROWS if row.figure.startswith(("publish", "read"))} == measured
    assert {row.figure.partition(".")[0].rstrip("10") for row in ROWS} == set(streams.PARTS)


@pytest.mark.parametrize("wrong", ["out_of_order", "foreign", "corrupt", "redelivered", "duplicates"])
def test_readers_that_miss_something_fail_the_run(wrong: str) -> None:
    with pytest.raises(BrokerFailed, match=wrong):
        read(StandInReader(**{wrong: 1}), CLUSTER, Sizes(True))
