"""How long what comes back waits in quorum queues with delayed retries, recorded of RabbitMQ 4.3.6 (RULES S5).

    python -m tests.golden.delayed_retries PORT            what a broker does, on standard output
    python -m tests.golden.delayed_retries PORT --write    the same, into the recording that ours is held against

A port of 127.0.0.1, user guest. Takes a minute.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import pika

RECORDING: Final = Path(__file__).parent / "delayed-retries-rabbitmq-4.3.6.json"
TYPES: Final = ("all", "failed", "returned")
LEAST_MS: Final = 300
GREATEST_MS: Final = 800
REJECT: Final = "reject"
NACK: Final = "nack"
LADDERS: Final = ((REJECT, REJECT, REJECT, REJECT, NACK), (NACK, NACK, REJECT, NACK, REJECT))
"""What is done with each delivery of one message; all with requeue."""
ROUNDED_MS: Final = 100
ROUNDS: Final = 3
_PATIENCE_S: Final = 30.0


def arguments(retry_type: str) -> dict[str, object]:
    """Of a queue whose returns of this type wait."""
    return {
        "x-queue-type": "quorum", "x-delayed-retry-type": retry_type, "x-delayed-retry-min": LEAST_MS,
        "x-delayed-retry-max": GREATEST_MS,
    }  # fmt: skip


def key(retry_type: str, ladder: tuple[str, ...]) -> str:
    """The name of a ladder in the recording."""
    return f"{retry_type}: {' '.join(ladder)}"


def climb(port: int, retry_type: str, ladder: tuple[str, ...]) -> list[int]:
    """For how many ms the message waits after each of these answers, to the nearest 100."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    channel = connection.channel()
    channel.confirm_delivery()
    queue = f"delayed retries of type {retry_type}"
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True, arguments=arguments(retry_type))
    channel.basic_publish("", queue, b"m")
    waited_ms: list[int] = []
    sent_s = 0.0
    steps = list(ladder)
    for method, _, _ in channel.consume(queue, inactivity_timeout=_PATIENCE_S):
        assert method is not None, f"no delivery after {waited_ms}"
        if sent_s:
            waited_ms.append(round((time.monotonic() - sent_s) * 1000 / ROUNDED_MS) * ROUNDED_MS)
        if not steps:
            channel.basic_ack(method.delivery_tag)
            break
        sent_s = time.monotonic()
        if steps.pop(0) == REJECT:
            channel.basic_reject(method.delivery_tag, requeue=True)
        else:
            channel.basic_nack(method.delivery_tag, requeue=True)
    channel.cancel()
    channel.queue_delete(queue)
    connection.close()
    return waited_ms


def record(port: int) -> dict[str, list[int]]:
    """All ladders, of each type: the shortest wait of each step, as a busy machine makes some longer."""
    found = {}
    for each in TYPES:
        for ladder in LADDERS:
            climbs = [climb(port, each, ladder) for _ in range(ROUNDS)]
            found[key(each, ladder)] = [min(waits) for waits in zip(*climbs, strict=True)]
    return found


def main() -> None:
    """See the module's text."""
    rows = [f"{json.dumps(name)}: {json.dumps(waits)}" for name, waits in record(int(sys.argv[1])).items()]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    if "--write" in sys.argv:
        RECORDING.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
