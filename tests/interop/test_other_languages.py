"""Clients of other languages, each as a program: amqplib, rascal (Node.js), Bunny (Ruby), librabbitmq (C)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import FOLDER, WITHIN_S, Program, dead, fresh, run, url, urls

pytestmark = [pytest.mark.processes]

PROGRAMS: Final = FOLDER / "programs"
NODE_PACKAGES: Final = Path(os.environ.get("INTEROP_NODE_PACKAGES", FOLDER.parents[1] / ".venv" / "node"))


def node_js(program: str) -> list[str | Path]:
    """How a program for Node.js is started; skips where it cannot be."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed (Debian: apt-get install nodejs npm)")
    if not (NODE_PACKAGES / "node_modules").is_dir():
        pytest.skip(f"no packages in {NODE_PACKAGES} (`make interop` installs them)")
    # Packages are found from where a program is.
    copy = NODE_PACKAGES / program
    copy.write_bytes((PROGRAMS / program).read_bytes())
    return ["node", copy]


def ruby() -> list[str | Path]:
    """How the program for Ruby is started; skips where it cannot be."""
    asking = ["ruby", "-e", 'require "bunny"']
    if shutil.which("ruby") is None or subprocess.run(asking, capture_output=True, check=False).returncode:
        pytest.skip("Ruby with Bunny is not installed (Debian: apt-get install ruby-bunny)")
    return ["ruby", PROGRAMS / "bunny_client.rb"]


def ask_for_doubles(nodes: Nodes, name: str, first: int, count: int = 20) -> None:
    """Confirmed numbers into NAME-in, through node 3; returns when all doubles have come into NAME-out."""
    nodes.until_told(3)
    with pika.BlockingConnection(pika.URLParameters(url(nodes, 3))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for number in range(first, first + count):
            channel.basic_publish("", f"{name}-in", b"%d" % number, properties, mandatory=True)
        doubles: set[int] = set()

        def all_came() -> bool:
            while (body := channel.basic_get(f"{name}-out", auto_ack=True)[2]) is not None:
                doubles.add(int(body))
            return {2 * number for number in range(first, first + count)} <= doubles

        wait_for(all_came, "all doubles", WITHIN_S, every_s=0.05)


@contextmanager
def doubling(words: list[str | Path], folder: Path) -> Iterator[None]:
    """A program that doubles numbers from one queue into another."""
    with Program(words, folder) as program:
        program.until_it_prints("ready")
        yield


def through_a_failover(nodes: Nodes, name: str) -> None:
    """Work goes on before, while and after the program's node is dead."""
    ask_for_doubles(nodes, name, 0)
    with dead(nodes, 1):
        ask_for_doubles(nodes, name, 100)
    ask_for_doubles(nodes, name, 200)


def test_amqplib(whole: Nodes, tmp_path: Path) -> None:
    assert "all well" in run([*node_js("amqplib_client.js"), *urls(whole)[:2]], tmp_path)


def test_rascal(whole: Nodes, tmp_path: Path) -> None:
    name = fresh("rascal")
    with doubling([*node_js("rascal_client.js"), name, *urls(whole)], tmp_path):
        ask_for_doubles(whole, name, 0)


@pytest.mark.interop_long
def test_rascal_goes_to_another_node(whole: Nodes, tmp_path: Path) -> None:
    name = fresh("rascal")
    with doubling([*node_js("rascal_client.js"), name, *urls(whole)], tmp_path):
        through_a_failover(whole, name)


def test_bunny(whole: Nodes, tmp_path: Path) -> None:
    assert "all well" in run([*ruby(), "once", fresh("bunny"), *urls(whole)], tmp_path)


@pytest.mark.interop_long
def test_bunny_goes_to_another_node(whole: Nodes, tmp_path: Path) -> None:
    name = fresh("bunny")
    with doubling([*ruby(), "loop", name, *urls(whole)], tmp_path):
        through_a_failover(whole, name)


def test_librabbitmq(whole: Nodes, tmp_path: Path) -> None:
    if shutil.which("cc") is None or not Path("/usr/include/amqp.h").exists():
        pytest.skip("no C compiler or no librabbitmq (Debian: apt-get install gcc libc6-dev librabbitmq-dev)")
    program = tmp_path / "rabbitmq_c_client"
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"]
    run(["cc", *warnings, "-o", program, PROGRAMS / "rabbitmq_c_client.c", "-lrabbitmq"], tmp_path)
    address = whole.plan(2).amqp
    assert "all well" in run([program, address.host, str(address.port), fresh("librabbitmq")], tmp_path)


def test_command_line_tools_of_librabbitmq(whole: Nodes, tmp_path: Path) -> None:
    if shutil.which("amqp-publish") is None:
        pytest.skip("amqp-tools are not installed (Debian: apt-get install amqp-tools)")
    name = fresh("tools")
    one, two = url(whole, 1), url(whole, 2)
    assert name in run(["amqp-declare-queue", "--url", one, "--queue", name, "--durable"], tmp_path)
    for body in ("one", "two"):
        run(["amqp-publish", "--url", one, "--routing-key", name, "--persistent", "--body", body], tmp_path)
    wait_for(lambda: whole.ready(2, name) == 2, "both messages")
    assert run(["amqp-get", "--url", two, "--queue", name], tmp_path) == "one"
    assert run(["amqp-consume", "--url", two, "--queue", name, "--count", "1", "cat"], tmp_path) == "two"
    assert run(["amqp-delete-queue", "--url", two, "--queue", name], tmp_path).strip() == "0"
