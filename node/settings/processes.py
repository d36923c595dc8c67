"""Several nodes of a cluster as processes of one host, from one set of settings: what differs from process to process.

Process 1 is the node that the settings describe. Every further one joins the cluster through it, on ports above its
own and in a folder inside its data folder. AMQP clients have one address for all of them: the kernel spreads
connections over the processes that listen there (SO_REUSEPORT). All arithmetic with ports is here.
"""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any, Final

from mayfly.node.settings.kinds import LARGEST_PORT, Address
from mayfly.node.settings.node_settings import (
    MOST_PROCESSES,
    NodeSettings,
    Problem,
    SettingsError,
    hosts_meet,
    is_any_host,
    show,
)

PORTS_OF_A_PROCESS: Final = {"peer_address": 1, "frames_address": 1, "http_address": 1, "aiomonitor_port": 3}
"""The settings with ports of which each process has its own, and how many: process n has those of process n - 1 and so
many more."""

_LOOPBACK: Final = "127.0.0.1"


def folder_of(number: int) -> str:
    """The folder of a further process inside the data folder, which is that of process 1."""
    return f"process{number}"


def settings_of_process(settings: NodeSettings, number: int) -> dict[str, Any]:
    """By key, what process `number`, from 1, of these settings has other than they say."""
    own: dict[str, Any] = {"processes": 1, "amqp_reuse_port": True}
    if settings.memory_limit_percent:
        own["memory_limit_percent"] = max(1, settings.memory_limit_percent // settings.processes)
    if number == 1:
        return own
    for key, each in _ports_in_use(settings):
        if getattr(settings, key) is not None:
            own[key] = _moved(getattr(settings, key), (number - 1) * each)
    if settings.advertised_peer_address is not None:
        steps = (number - 1) * PORTS_OF_A_PROCESS["peer_address"]
        own["advertised_peer_address"] = _moved(settings.advertised_peer_address, steps)
    own["name"] = f"{settings.name}-{number}" if settings.name else ""
    own["data_dir"] = settings.data_dir / folder_of(number)
    own["seeds"] = ()
    own["join"] = settings.reachable_peer_address
    return own


SHARDS_OF_A_PROCESS: Final = 4
"""So many shards at least are founded for each of the processes whose number was chosen: leads can be evened out."""


def choose_processes(settings: NodeSettings, given: Collection[str], cores: int, found: int) -> dict[str, int]:
    """What `processes = auto` means, by key. `given`: the settings that a user has said, which stay as they are;
    `cores`: how many the processes may use together; `found`: of how many processes there is data here."""
    processes = min(MOST_PROCESSES, max(cores, found, 1))
    chosen = {"processes": processes}
    if processes > 1 and not settings.seeds and settings.join is None:
        # On one machine more copies outlive nothing that one does not, and each is written to the same disk.
        if "replication_factor" not in given:
            chosen["replication_factor"] = 1
        if "shards" not in given:
            chosen["shards"] = max(settings.shards, SHARDS_OF_A_PROCESS * processes)
    return chosen


def check_processes(settings: NodeSettings) -> None:
    """Raises SettingsError if these settings, good for one node, can't be those of all their processes."""
    problems = [
        str(Problem(key, show(key, getattr(settings, key)), f"with processes = {settings.processes}", expected))
        for key, expected in _contradictions(settings)
    ]
    if problems:
        raise SettingsError(problems)
    for number in range(1, settings.processes + 1):
        try:
            dataclasses.replace(settings, **settings_of_process(settings, number))
        except SettingsError as error:
            raise SettingsError([f"process {number}: {problem}" for problem in error.problems]) from None


def _contradictions(settings: NodeSettings) -> Iterator[tuple[str, str]]:
    """(key, what would be right) of every setting that several processes can't share."""
    for key in ("peer_address", "http_address"):
        if getattr(settings, key).port == 0:
            yield key, "a port other than 0, because every process takes one of its own from there on"
    shared = settings.amqp_tls_address
    if shared is not None and shared.port == 0:
        yield "amqp_tls_address", "a port other than 0, because all processes listen there"
    if settings.http_tls_address is not None:
        yield "http_tls_address", "nothing, because every process would listen there: run them as nodes of their own"
    if is_any_host(settings.reachable_peer_address.host):
        yield "advertised_peer_address", "an address at which the processes and other nodes can connect to process 1"
    if settings.name and len(f"{settings.name}-{settings.processes}") > 63:
        yield "name", f"a shorter name: the processes are called {settings.name}-2 and so on"
    taken = [("amqp_address", settings.amqp_address.host, _ports(settings.amqp_address.port, 1))]
    if shared is not None:
        taken.append(("amqp_tls_address", shared.host, _ports(shared.port, 1)))
    for key, each in _ports_in_use(settings):
        value: Address | int = settings.frames_listen_address if key == "frames_address" else getattr(settings, key)
        host, first = (value.host, value.port) if isinstance(value, Address) else (_LOOPBACK, value)
        ports = _ports(first, each * settings.processes)
        if first and ports[-1] > LARGEST_PORT:
            yield key, f"a port up to {LARGEST_PORT - len(ports) + 1}: {len(ports)} are needed from there on"
        for other, its_host, its in taken:
            if first and its[0] and hosts_meet(host, its_host) and ports[0] <= its[-1] and its[0] <= ports[-1]:
                yield key, f"ports other than those of {other}: {len(ports)} are needed ({_range(ports)})"
        taken.append((key, host, ports))


def _ports_in_use(settings: NodeSettings) -> Iterator[tuple[str, int]]:
    unused = set() if settings.aiomonitor else {"aiomonitor_port"}
    if settings.frames_listen_address.port == 0:
        unused.add("frames_address")  # Any will do: the other nodes are told.
    yield from ((key, each) for key, each in PORTS_OF_A_PROCESS.items() if key not in unused)


def _moved(value: Address | int, ports: int) -> Address | int:
    return Address(value.host, value.port + ports) if isinstance(value, Address) else value + ports


def _ports(first: int, count: int) -> range:
    return range(first, first + count)


def _range(ports: range) -> str:
    return f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else str(ports[0])
