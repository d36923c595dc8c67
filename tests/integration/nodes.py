"""A cluster of real processes under test: started, killed, frozen, restarted, asked, and its logs judged.

Every start uses the words of the command that `mayfly up` prints, so tests run what a reader would run: the source
tree or the installed package, whichever these tests were imported next to.
"""

import dataclasses
import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TextIO
from urllib.parse import quote
from urllib.request import urlopen

from mayfly.node.local_nodes import local_cluster
from mayfly.node.local_nodes.local_cluster import (
    ChildEnd,
    LocalCluster,
    NodePlan,
    plan_cluster,
    taken_addresses,
    this_mayfly,
)
from mayfly.node.settings.kinds import Address
from tests.waiting import BOUND_S
from tests.waiting import bounded as bounded  # these two for the many tests that want them with their nodes
from tests.waiting import wait_for as wait_for

START_WITHIN_S: Final = 180.0
PATIENT_SESSIONS: Final[dict[str, object]] = {"session_timeout_ms": 20_000}
"""Settings: consumers of a node that a busy machine lets wait keep their places; a process that has ended is told by
its port."""
BUS_ERROR: Final = (
    "^Fatal Python error: Bus error", "^(Current t|T)hread 0x", "^  ", "^Extension modules: ", "^$",
)  # fmt: skip
"""What is in the log of a node that looked at a page of a map that can't be had."""
# Frames of peers come at most 25 000 above: still below the ports that the system gives to clients.
_FIRST_PORT: Final = 5_700
_LAST_PORT: Final = 6_980
_PORT_STEP: Final = 10
_PRELOAD: Final = "LD_PRELOAD="
_LOG_LINE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) +([\w.]+): ")


def fetch(http_address: Address, path: str) -> tuple[int, dict[str, Any]]:
    """A JSON page of a node, however long a busy machine takes. Raises OSError if that cannot be had."""
    return local_cluster.fetch(http_address, path, BOUND_S)


class Ports:
    """A base port that is ours while this process lives; those 10 000, 15 000 and 20 000 above are free when taken."""

    def __init__(self, nodes: int) -> None:
        folder = Path("/tmp/mayfly-test-ports")
        folder.mkdir(mode=0o777, exist_ok=True)
        candidates = range(_FIRST_PORT, _LAST_PORT, _PORT_STEP)
        start = os.getpid() % len(candidates)
        for number in range(len(candidates)):
            port = candidates[(start + number) % len(candidates)]
            lock = (folder / f"{port}-{os.getuid()}").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            if not taken_addresses(plan_cluster(nodes, port, Path("unused"))):
                self.base = port
                self._lock: TextIO = lock
                return
            lock.close()
        raise AssertionError("no free ports")

    def release(self) -> None:
        """Let others have the port."""
        self._lock.close()


class Nodes:
    """A running cluster. Node numbers are node ids: 1, 2, 3."""

    login: tuple[str, str] = ("guest", "guest")
    """Of a user who may do everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """In order at the end of a good test; at once after a failure, whose text says more than the logs would."""
        if kind is None:
            self.close()
        else:
            self.stop()

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: dict[str, object] | None = None,
        executable: Sequence[str] | None = None,
    ) -> None:
        """Plans the nodes; `settings` hold for all, by key, as in a TOML file. `executable` stands for `mayfly`."""
        self._ports = Ports(count)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.plans = plan_cluster(count, self._ports.base, folder)
        # A test knows which node leads a shard; it would not if the plan followed the load that the test makes.
        self.settings: dict[int, dict[str, object]] = {
            id: {"balance_by_load": False, **(settings or {})} for id in self.ids
        }
        self.expected_errors: list[str] = []
        """Patterns of lines of level ERROR or above that a test provokes."""
        self._frozen: set[int] = set()
        self._words: list[Callable[[int], list[str]]] = []
        self._cluster: LocalCluster = _BehindWords(self.plans, executable or this_mayfly(), self._words)

    def start_behind(self, words: Callable[[int], list[str]], before_others: bool = False) -> None:
        """From its next start on, each node is a command behind `words(id)`, which stand behind or before those given
        earlier. They have to become the node itself, as `env` and `exec` do."""
        self._words.insert(0 if before_others else len(self._words), words)

    # ------------------------------------------------------------------ processes

    @property
    def ids(self) -> range:
        """All node ids."""
        return range(1, len(self.plans) + 1)

    def plan(self, id: int) -> NodePlan:
        """How the node is started."""
        return self.plans[id - 1]

    def configure(self, id: int, **settings: object) -> None:
        """Settings of one node, from its next start on."""
        self.settings[id].update(settings)

    def move_data(self, id: int, folder: Path) -> None:
        """Keep the node's data in another folder, from its next start on."""
        self.plans[id - 1] = dataclasses.replace(self.plan(id), data_dir=folder)

    def start(self, *ids: int) -> None:
        """Start these nodes (all, if none is named), without waiting."""
        for id in ids or self.ids:
            if self.settings[id]:
                file = self.folder / f"node{id}.toml"
                lines = (f"{key} = {json.dumps(_plain(value))}\n" for key, value in self.settings[id].items())
                file.write_text("".join(lines))
                self.plans[id - 1] = dataclasses.replace(self.plan(id), config=file)
            self._cluster.start_node(self.plan(id))

    def serve(self) -> "Nodes":
        """Start all nodes; return when they serve, every group has a leader, and leaders are spread."""
        self.start()
        self.until_serving()
        self.until_balanced()
        return self

    def until_balanced(self) -> None:
        """Return when every group is led by the node that it prefers, as all nodes see it."""

        def balanced() -> bool:
            # With more nodes than replicas the plan changes while some of them are down.
            preferred = {int(row["group"]): next(iter(row["plan"]), -1) for row in self.page(1, "/shards")[1]["shards"]}
            return all(
                {group: row["leader"] for group, row in self.groups(id).items()} == preferred for id in self.ids
            )

        # Where leaders are lost again and again a node waits with the next turn, in the end for a minute each time.
        wait_for(balanced, "leaders where they are preferred", 3 * BOUND_S, every_s=0.05)

    def until_serving(self, within_s: float = START_WITHIN_S) -> None:
        """Return when every node that runs serves clients."""
        self._cluster.plans = self.plans
        self._cluster.wait_until_serving(on_end=_no_end, timeout_s=within_s)

    def pid(self, id: int) -> int:
        """The process id of a node that runs."""
        pid = self._cluster.pid(self.plan(id))
        assert pid is not None, f"node {id} does not run"
        return pid

    def runs(self, id: int) -> bool:
        """Whether the node's process has been started and not seen to end."""
        return self._cluster.pid(self.plan(id)) is not None

    def kill(self, *ids: int) -> float:
        """SIGKILL; the monotonic moment at which the first was killed. Several are killed at the same moment."""
        moment_s = time.monotonic()
        for id in ids:
            os.kill(self.pid(id), signal.SIGKILL)
        for id in ids:
            self._cluster.kill(self.plan(id))
            self._frozen.discard(id)
        return moment_s

    def ends(self) -> list[ChildEnd]:
        """The nodes that have ended, not by `kill` or `stop`, since this was last asked."""
        return self._cluster.ended()

    def ends_by_itself(self, id: int, within_s: float = BOUND_S) -> int:
        """Wait for the node's process to end; its exit code."""
        codes: list[int] = []

        def ended() -> bool:
            codes.extend(end.code for end in self.ends() if end.plan.name == self.plan(id).name)
            return bool(codes)

        wait_for(ended, f"the end of node {id}", within_s)
        return codes[0]

    def freeze(self, id: int) -> float:
        """SIGSTOP; the monotonic moment."""
        os.kill(self.pid(id), signal.SIGSTOP)
        self._frozen.add(id)
        return time.monotonic()

    def stands_still(self, id: int) -> bool:
        """Whether all threads of a process that is being frozen have stopped. One that ends meanwhile has not."""
        tasks = Path(f"/proc/{self.pid(id)}/task").iterdir()
        try:
            return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
        except (FileNotFoundError, ProcessLookupError):
            return False  # A thread has ended meanwhile.

    def thaw(self, id: int) -> None:
        """SIGCONT."""
        os.kill(self.pid(id), signal.SIGCONT)
        self._frozen.discard(id)

    def heal(self) -> None:
        """Thaw and restart what a test left frozen or dead, and wait until all is well."""
        for id in list(self._frozen):
            self.thaw(id)
        missing = [id for id in self.ids if not self.runs(id)]
        if missing:
            self.start(*missing)
            self.until_serving()
        self.until_balanced()
        self.until_well()

    def stop(self) -> None:
        """End all processes."""
        for id in list(self._frozen):
            if self.runs(id):
                self.thaw(id)
        self._cluster.stop()

    def release_ports(self) -> None:
        """Let others have the ports, when the nodes have been stopped for good; `close` does it."""
        self._ports.release()

    def close(self) -> None:
        """End all processes, and judge their logs."""
        early = [end.describe() for end in self.ends()]
        try:
            self.stop()
        finally:
            self.release_ports()
        assert not early, f"nodes ended by themselves: {early}"
        faults = self.log_faults()
        assert not faults, "\n".join(faults)

    # ------------------------------------------------------------------ what nodes say

    def status(self, id: int) -> dict[str, Any]:
        """`/status` of a node."""
        code, status = fetch(self.plan(id).http, "/status")
        assert code == 200, status
        return status

    def page(self, id: int, path: str) -> tuple[int, dict[str, Any]]:
        """A JSON page of a node."""
        return fetch(self.plan(id).http, path)

    def metric(self, id: int, name: str) -> float:
        """The sum of a metric's samples, from `/metrics`."""
        with urlopen(f"http://{self.plan(id).http}/metrics", timeout=BOUND_S) as answer:
            lines = answer.read().decode().splitlines()
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}(\{{| )", line)]
        assert values, f"no metric {name}"
        return sum(values)

    def groups(self, id: int) -> dict[int, dict[str, Any]]:
        """What a node knows of every group, by group."""
        return {int(row["group"]): row for row in self.status(id)["groups"]}

    def leaders(self, id: int) -> dict[int, list[int]]:
        """Node id -> the groups it leads, as a node sees it; 0: groups without a leader."""
        found: dict[int, list[int]] = {}
        for group, row in self.groups(id).items():
            found.setdefault(int(row["leader"]), []).append(group)
        return found

    def leads_nothing(self, victim: int, witness: int) -> bool:
        """Whether the witness knows a leader for every group, none of them the victim."""
        return not {0, victim} & self.leaders(witness).keys()

    def queue(self, id: int, name: str) -> dict[str, Any] | None:
        """What a node knows of a queue of the default vhost; None: of none. This is no use of it (RULES L2)."""
        code, info = fetch(self.plan(id).http, f"/queues/%2F/{quote(name, safe='')}")
        assert code in (200, 404), info
        return info if code == 200 else None

    def until_told(self, id: int) -> None:
        """Wait until the node knows of the catalog what any node knows that runs now. Answers wait for it for
        half a second only (`SPREAD_WITHIN_MS`), which is not enough on a machine that is busy with other things."""
        awake = [each for each in self.ids if self.runs(each) and each not in self._frozen]
        newest = max((self._catalog_applied(each) for each in awake), default=0)

        def is_told() -> bool:
            applied = self._catalog_applied(id)
            return applied < 0 or applied >= newest

        wait_for(is_told, f"node {id} has heard what was answered by others")

    def _catalog_applied(self, id: int) -> int:
        """How far a node has applied the catalog; -1 if it does not say so (yet)."""
        try:
            code, status = self.page(id, "/status")
        except OSError:
            return -1
        rows = status.get("groups", []) if code == 200 else []
        return next((int(row["applied"]) for row in rows if row["group"] == 0), -1)

    def until_nowhere(self, name: str, within_s: float = BOUND_S) -> None:
        """Wait until no running node knows the queue."""
        running = [id for id in self.ids if self.runs(id)]
        wait_for(
            lambda: all(self.queue(id, name) is None for id in running), f"the end of {name} on all nodes", within_s
        )

    def ready(self, id: int, name: str) -> int:
        """Messages ready in a queue, as a node has it; -1 when it has no such queue, or not yet."""
        return int((self.queue(id, name) or {}).get("ready", -1))

    def leader_of(self, name: str, witness: int = 1) -> int:
        """The node that leads the queue's shard now; 0: none."""
        info = self.queue(witness, name)
        return int(info["leader"] or 0) if info else 0

    def planned_leader(self, name: str, witness: int = 1) -> int:
        """The node that is to lead the queue's shard, which is what placement goes by: on a busy machine another one
        may lead it for a while. 0: the witness knows no such queue."""
        return next(iter(self.planned_replicas(name, witness)), 0)

    def planned_replicas(self, name: str, witness: int = 1) -> tuple[int, ...]:
        """The nodes that are to have a replica of the queue's shard, and first the one that is to lead it; none: the
        witness knows no such queue."""
        info = self.queue(witness, name)
        if info is None:
            return ()
        code, answer = fetch(self.plan(witness).http, "/shards")
        assert code == 200, answer
        plans = {int(row["group"]): row["plan"] for row in answer["shards"]}
        return tuple(int(id) for id in plans[int(info["shard"])])

    def agree(self) -> bool:
        """Whether all running nodes know the same leaders, and have applied the same."""
        seen = [self.groups(id) for id in self.ids if self.runs(id)]
        leaders = [{group: row["leader"] for group, row in groups.items()} for groups in seen]
        applied = [{group: row["applied"] for group, row in groups.items()} for groups in seen]
        known = all(0 not in each.values() for each in leaders)
        return known and all(each == leaders[0] for each in leaders) and all(each == applied[0] for each in applied)

    def until_well(self, within_s: float = BOUND_S) -> float:
        """Wait until every running node is ready, and all agree on leaders and on what is applied."""

        def well() -> bool:
            try:
                running = [id for id in self.ids if self.runs(id)]
                return all(self.page(id, "/health/ready")[0] == 200 for id in running) and self.agree()
            except OSError:
                return False

        return wait_for(well, "a cluster that is well", within_s, every_s=0.05)

    def resident_bytes(self, id: int) -> int:
        """Memory of the node's process."""
        pages = int(Path(f"/proc/{self.pid(id)}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    # ------------------------------------------------------------------ logs

    def log_text(self, id: int) -> str:
        """Everything the node has logged."""
        return self.plan(id).log_file.read_text(errors="replace")

    def log_faults(self) -> list[str]:
        """Lines that should not be in any node's log: errors nobody provoked, tracebacks, what no logger wrote."""
        faults = []
        for id in self.ids:
            for line in self.log_text(id).splitlines():
                match = _LOG_LINE.match(line)
                fine = match is not None and match[1] in ("DEBUG", "INFO", "WARNING") and "Traceback" not in line
                if not fine and not any(re.search(pattern, line) for pattern in self.expected_errors):
                    faults.append(f"node {id}: {line}")
        return faults[:40]


class _BehindWords(LocalCluster):
    """Starts each node behind words of its own."""

    def __init__(
        self, plans: list[NodePlan], executable: Sequence[str], words: list[Callable[[int], list[str]]]
    ) -> None:
        """What is put into `words` later counts as well."""
        super().__init__(plans, executable)
        self._mayfly = list(executable)
        self._ids = {plan.name: id for id, plan in enumerate(plans, 1)}
        self._words = words

    def start_node(self, plan: NodePlan) -> int:
        """As its base does."""
        id = self._ids[plan.name]
        self._executable = with_all_libraries([word for words in self._words for word in words(id)] + self._mayfly)
        return super().start_node(plan)


def with_all_libraries(words: list[str]) -> list[str]:
    """Words of a command in which each `env` that loads a library loads those of the others, too: else only the last
    would be loaded."""
    libraries = [word.removeprefix(_PRELOAD) for word in words if word.startswith(_PRELOAD)]
    return [_PRELOAD + ":".join(libraries) if word.startswith(_PRELOAD) else word for word in words]


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _no_end(end: object) -> None:
    raise AssertionError(f"a node ended: {end}")


def disk_bytes(folders: Iterable[Path]) -> int:
    """What the files in the folders take on disk; nodes that run may delete some meanwhile."""
    found = 0
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    found += os.stat(os.path.join(where, name)).st_blocks * 512
    return found
