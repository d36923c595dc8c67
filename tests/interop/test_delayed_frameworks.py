"""Declarations and publishes of frameworks that delay messages, whose languages are not here, replayed by clients that
are (RULES S1): MassTransit, NServiceBus, Spring AMQP, Symfony Messenger, Laravel."""

import json
import time
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import FOLDER, WITHIN_S, fresh, run, url
from tests.interop.test_other_languages import node_js

pytestmark = [pytest.mark.processes]

FILE: Final = FOLDER / "delayed_frameworks.json"
"""Names begin with `P.`, in place of which each test has something of its own."""


def scenarios(prefix: str) -> list[dict[str, Any]]:
    """Those of the file."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text().replace("P.", f"{prefix}."))
    return found


def declare(channel: Any, scenario: dict[str, Any]) -> None:
    """All that the framework declares."""
    for each in scenario["exchanges"]:
        channel.exchange_declare(each["name"], each["type"], durable=True, arguments=each.get("arguments"))
    for each in scenario["queues"]:
        channel.queue_declare(each["name"], durable=True, arguments=each.get("arguments"))
    for each in scenario["bindings"]:
        channel.queue_bind(each["queue"], each["exchange"], each["key"])
    for each in scenario["exchange_bindings"]:
        channel.exchange_bind(each["destination"], each["source"], each["key"])


def test_s1_by_pika(whole: Nodes) -> None:
    """S1, S3: each arrives once, not early, with its headers."""
    found = scenarios(fresh("pika"))
    with pika.BlockingConnection(pika.URLParameters(url(whole, 2))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        sent_s: dict[str, float] = {}
        for scenario in found:
            # Frameworks declare again whenever they connect.
            declare(channel, scenario)
            declare(channel, scenario)
            publish = scenario["publish"]
            properties = pika.BasicProperties(headers=publish["headers"], delivery_mode=pika.DeliveryMode.Persistent)
            sent_s[scenario["framework"]] = time.monotonic()
            channel.basic_publish(
                publish["exchange"], publish["key"], scenario["framework"].encode(), properties, publish["mandatory"]
            )
        waiting = {scenario["arrives"]["queue"]: scenario for scenario in found}

        def all_came() -> bool:
            for queue, scenario in list(waiting.items()):
                _, properties, body = channel.basic_get(queue, auto_ack=True)
                if body is None:
                    continue
                arrives = scenario["arrives"]
                assert body.decode() == scenario["framework"]
                assert time.monotonic() - sent_s[body.decode()] >= arrives["after_ms"] / 1000
                assert arrives["headers"].items() <= properties.headers.items()
                del waiting[queue]
            return not waiting

        wait_for(all_came, "what was delayed", WITHIN_S, every_s=0.02)
        assert all(channel.basic_get(scenario["arrives"]["queue"])[2] is None for scenario in found)


def test_s1_by_amqplib(whole: Nodes, tmp_path: Path) -> None:
    """S1, S3: the same of Node.js."""
    words = [*node_js("delayed_frameworks.js"), url(whole, 3), FILE, fresh("amqplib")]
    assert "all well" in run(words, tmp_path)
