"""Takes the pictures of the page for the documents: `python -m tests.browser.pictures [FOLDER]` (docs/pictures).

Starts three nodes and a browser for it, and some traffic, so that there is something to be seen.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import pika

from mayfly.node.settings.kinds import Address
from tests.browser.browser import Browser
from tests.browser.some_traffic import Traffic
from tests.integration.nodes import Nodes
from tests.waiting import wait_until_s

_ROOT: Final = Path(__file__).resolve().parents[2]
_USER: Final = "admin"
_PER_SECOND: Final = 40
_TRAFFIC_S: Final = 45.0


def main() -> None:
    """Take them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="mayfly-pictures-") as data,
        Nodes(Path(data), 3, {"default_user": _USER, "default_pass": _USER}) as nodes,
        Browser() as browser,
    ):
        nodes.serve()
        amqp = nodes.plan(1).amqp
        with Traffic(amqp, _USER, _USER).here():
            stop = threading.Event()
            flow = threading.Thread(target=_flow, args=(amqp, stop))
            flow.start()
            try:
                _take(browser, f"http://{nodes.plan(1).http}/", folder)
            finally:
                stop.set()
                flow.join()
    for picture in sorted(folder.glob("*.png")):
        print(f"{picture}: {picture.stat().st_size // 1024} KiB")


def _flow(amqp: Address, stop: threading.Event) -> None:
    """Messages come and go, more and less of them."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(_USER, _USER))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("clicks", durable=True, arguments={"x-queue-type": "quorum", "x-message-ttl": 90_000})
        number = 0
        while not stop.wait(1 / _PER_SECOND):
            number += 1
            for _ in range(1 + number // 100 % 4):
                channel.basic_publish("", "clicks", b"click", pika.BasicProperties(delivery_mode=2))
            for _ in range(number // 150 % 4):
                channel.basic_get("clicks", auto_ack=True)


def _take(browser: Browser, address: str, folder: Path) -> None:
    browser.resize(1280, 740)
    browser.open(address)
    browser.write("input[name=name]", _USER)
    browser.write("input[name=password]", _USER)
    browser.click("button", "Log in")
    browser.wait("Overview", "h1")
    began_s = time.monotonic()
    wait_until_s(began_s + _TRAFFIC_S)  # the plots have something to show then
    browser.picture(folder / "overview.png")
    for name, view, theme, size, until in (
        ("queues", "queues", "light", (1440, 640), "suspended"),
        ("queue", "queues/%2F/session.4712", "dark", (1280, 740), "Period"),
        ("shards", "shards", "light", (1280, 740), "follower"),
    ):
        browser.resize(*size)
        browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
        browser.run("location.hash = arguments[0]", f"#/{view}")
        browser.wait(until, "main")
        wait_until_s(time.monotonic() + 5)  # rates are known by then
        browser.picture(folder / f"{name}.png")


if __name__ == "__main__":
    main()
