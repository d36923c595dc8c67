"""A cluster of containers on the Docker engine of this machine, with the face of `tests.integration.nodes.Nodes`.

Each node has an address of its own in a network of ours; clients reach it from this machine, as from outside. Its data
is in a folder here; the last node's is on a small file system in memory, which can be filled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from docker.errors import APIError
from docker.types import EndpointConfig, IPAMConfig, IPAMPool
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network as DockerNetwork

from mayfly.node.local_nodes.local_cluster import LocalCluster, NodePlan
from mayfly.node.settings.kinds import Address
from tests.failover.engine import IMAGE, release_of_image
from tests.integration.nodes import Nodes, wait_for
from tests.reliability.chaos import LOGIN
from tests.reliability.network import Network, NetworkError

NODES: Final = 3
PAUSE_TRIES: Final = 5
REPLICAS: Final = 3
"""Of each shard, by default."""
SMALL_DISK_BYTES: Final = 256 * 1024 * 1024
FREE_LIMIT_BYTES: Final = 48 * 1024 * 1024
STOP_WITHIN_S: Final = 120
REPLACED_WITHIN_S: Final = 180.0
_API_VERSION: Final = "1.41"
_USER: Final = 10001
_PEER_PORT: Final = 25672
_NETWORKS: Final = range(1, 250)
_LEVEL_LIMIT: Final = "MAYFLY_FEATURE_LEVEL_LIMIT"
_OPEN_PAGES: Final = "MAYFLY_HTTP_OPEN_PAGES"
_LEVEL_OF_OPEN_PAGES: Final = 5
"""The feature level that came with the release that knows the setting."""


class ContainerNetwork(Network):
    """The network of the containers. Cuts are made in their namespaces; hosts are numbered as nodes are."""

    def __init__(self) -> None:
        """Raises NetworkError if no subnet is free."""
        for step in _NETWORKS:
            # 198.18.0.0/15 is meant for tests (RFC 2544); tests.reliability.network takes its upper half.
            self._prefix = f"198.18.{_NETWORKS[(os.getpid() + step) % len(_NETWORKS)]}"
            pool = IPAMPool(subnet=f"{self._prefix}.0/24", gateway=f"{self._prefix}.254")
            network = DockerNetwork(docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool])})
            try:
                self.docker = network.create()
            except APIError:
                continue
            self._containers: dict[int, Container] = {}
            return
        raise NetworkError("no subnet of 198.18.0.0/16 is free")

    def address(self, host: int) -> str:
        return f"{self._prefix}.{10 + host}"

    def endpoint(self, host: int) -> Mapping[str, Any]:
        """How the container is connected."""
        config = EndpointConfig(_API_VERSION, aliases=[f"node{host}"], ipv4_address=self.address(host))
        return {self.docker.name: config}

    def plug(self, host: int, container: Container) -> None:
        """The host is this container from now on."""
        self._containers[host] = container

    def inside(self, host: int) -> list[str]:
        return ["nsenter", "--net", "--target", str(self._containers[host].pid)]

    def cut(self, sender: int, receiver: int) -> None:
        command = ["iptables", "-w", "-A", "INPUT", "-s", self.address(sender), "-j", "DROP"]
        subprocess.run([*self.inside(receiver), *command], check=True, capture_output=True)

    def heal(self) -> None:
        for host in self._containers:
            subprocess.run([*self.inside(host), "iptables", "-w", "-F", "INPUT"], check=True, capture_output=True)

    def disconnect(self, host: int) -> None:
        """Take the container out of the network: its interface is gone."""
        self.docker._unwrap_network.disconnect(self._containers[host].name)

    def connect(self, host: int) -> None:
        """Put it back, under its address."""
        self.docker._unwrap_network.connect(
            self._containers[host].name, aliases=[f"node{host}"], ipv4_address=self.address(host)
        )

    def close(self) -> None:
        with contextlib.suppress(APIError):
            self.docker.remove()


class Container:
    """One container, with the face of a child process. It can be started again after it ended."""

    def __init__(
        self, image: str, plan: NodePlan, host: int, network: ContainerNetwork, environment: Mapping[str, str]
    ) -> None:
        self.name = f"{network.docker.name[:8]}-{plan.name}"
        self._plan = plan
        made = DockerContainer(image).with_name(self.name)
        for key, value in environment.items():
            made.with_env(key, value)
        made.with_volume_mapping(str(plan.data_dir), "/var/lib/mayfly", "rw")
        made.with_kwargs(
            hostname=plan.name,
            read_only=True,
            cap_drop=["ALL"],
            network=network.docker.name,
            networking_config=network.endpoint(host),
            healthcheck={"test": ["NONE"]},
        )
        self._testcontainer = made
        made.start()
        self.docker: Any = made.get_wrapped_container()

    @property
    def pid(self) -> int:
        """Of its first process, as this machine numbers processes."""
        self.docker.reload()
        return int(self.docker.attrs["State"]["Pid"])

    def start_again(self) -> None:
        """Start what has ended."""
        self.docker.start()

    def poll(self) -> int | None:
        """None while it runs, else the exit code; negative if a signal killed it, as far as that can be told."""
        self.docker.reload()
        state = self.docker.attrs["State"]
        if state["Running"] or state["Paused"]:
            return None
        code = int(state["ExitCode"])
        return -(code - 128) if code > 128 else code

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        with contextlib.suppress(APIError):
            self.docker.kill("SIGKILL")

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        with contextlib.suppress(APIError):
            self.docker.kill("SIGTERM")

    def wait(self) -> int:
        """Until it has ended; the exit code as in `poll`."""
        self.docker.wait(timeout=STOP_WITHIN_S)
        code = self.poll()
        assert code is not None
        return code

    def log(self) -> str:
        """What it has logged, over all its starts."""
        return str(self.docker.logs().decode(errors="replace"))

    def remove(self) -> None:
        """It is no more; what it has logged is kept in the plan's log file."""
        with self._plan.log_file.open("a") as file:
            file.write(self.log())
        self.docker.remove(force=True, v=True)


class _ContainerCluster(LocalCluster):
    """Starts each node as a container, or again in the one it had."""

    def __init__(self, plans: list[NodePlan], network: ContainerNetwork, image: str) -> None:
        super().__init__(plans)
        self.images = {plan.name: image for plan in plans}
        self.containers: dict[str, Container] = {}
        self.environment: dict[str, dict[str, str]] = {plan.name: {} for plan in plans}
        self._hosts = {plan.name: host for host, plan in enumerate(plans, 1)}
        self._network = network

    def start_node(self, plan: NodePlan) -> int:
        container = self.containers.get(plan.name)
        if container is None:
            host = self._hosts[plan.name]
            container = Container(self.images[plan.name], plan, host, self._network, self.environment[plan.name])
            self.containers[plan.name] = container
            self._network.plug(host, container)
        else:
            container.start_again()
        self._children[plan.name] = container  # type: ignore[assignment]  # it has the face of one
        return container.pid


def _pages_of(image: str) -> dict[str, str]:
    """What lets tests look at a node from outside; earlier releases show that to all, and don't know the setting."""
    return {_OPEN_PAGES: "all"} if release_of_image(image).levels.knows(_LEVEL_OF_OPEN_PAGES) else {}


class ContainerNodes(Nodes):
    """Nodes as containers. Node numbers are places; a node that replaces another has its place, under another id."""

    login = LOGIN
    _cluster: _ContainerCluster

    def __init__(
        self,
        folder: Path,
        network: ContainerNetwork,
        settings: Mapping[str, str],
        image: str = IMAGE,
        count: int = NODES,
    ) -> None:
        super().__init__(folder, count)
        self.network = network
        self.plans = [
            dataclasses.replace(
                plan,
                amqp=Address(network.address(id), 5672),
                http=Address(network.address(id), 15672),
                peer=Address(plan.name, _PEER_PORT),
                seeds=tuple(Address(f"node{other}", _PEER_PORT) for other in self.ids),
            )
            for id, plan in enumerate(self.plans, 1)
        ]
        self._cluster = _ContainerCluster(self.plans, network, image)
        self._place_of = {id: id for id in self.ids}
        for plan in self.plans:
            self._make_folder(plan.data_dir)
            self._cluster.environment[plan.name] = {
                "MAYFLY_DEFAULT_USER": LOGIN[0],
                "MAYFLY_DEFAULT_PASS": LOGIN[1],
                "MAYFLY_NAME": plan.name,
                "MAYFLY_ADVERTISED_PEER_ADDRESS": str(plan.peer),
                "MAYFLY_SEEDS": ",".join(map(str, plan.seeds)),
                "MAYFLY_DISK_FREE_LIMIT_BYTES": str(FREE_LIMIT_BYTES),
                **_pages_of(image),
                **settings,
            }
        self._small_disk = self.plans[-1].data_dir
        command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES},uid={_USER},gid={_USER},mode=0750"]
        subprocess.run([*command, "mayfly-test", str(self._small_disk)], check=True, capture_output=True)

    @staticmethod
    def _make_folder(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, _USER, _USER)

    @property
    def with_small_disk(self) -> int:
        """The node whose disk can be filled."""
        return len(self.plans)

    def start(self, *ids: int) -> None:
        for id in ids or self.ids:
            self._cluster.start_node(self.plan(id))

    def kill(self, *ids: int) -> float:
        moment_s = time.monotonic()
        for id in ids:
            self.container(id).kill()
        for id in ids:
            self._cluster.kill(self.plan(id))
            self._frozen.discard(id)
        return moment_s

    def freeze(self, id: int) -> float:
        """`docker pause`, more than once if need be: on a busy machine the kernel may not stop all tasks in time."""
        for tries_left in reversed(range(PAUSE_TRIES)):
            try:
                self.container(id).docker.pause()
                break
            except APIError as error:
                if not tries_left or "unable to freeze" not in str(error):
                    raise
        self._frozen.add(id)
        return time.monotonic()

    def thaw(self, id: int) -> None:
        self.container(id).docker.unpause()
        self._frozen.discard(id)

    def container(self, id: int) -> Container:
        """The node's container."""
        return self._cluster.containers[self.plan(id).name]

    def stop_politely(self, id: int) -> int:
        """`docker stop`; the exit code."""
        container = self.container(id)
        container.docker.stop(timeout=STOP_WITHIN_S)
        self._cluster._children.pop(self.plan(id).name)
        code = container.poll()
        assert code is not None
        return code

    def leader_of(self, name: str, witness: int = 1) -> int:
        return self._place_of.get(super().leader_of(name, witness), 0)

    def planned_replicas(self, name: str, witness: int = 1) -> tuple[int, ...]:
        return tuple(self._place_of.get(id, 0) for id in super().planned_replicas(name, witness))

    def log_text(self, id: int) -> str:
        plan = self.plan(id)
        earlier = plan.log_file.read_text() if plan.log_file.exists() else ""
        container = self._cluster.containers.get(plan.name)
        return earlier + (container.log() if container is not None else "")

    def change_image(self, id: int, image: str, level_limit: int = 0) -> None:
        """A node that does not run gets another container: the same data, another release. `level_limit` is its
        `feature_level_limit`; at 0 it gets none, as earlier releases don't know it."""
        name = self.plan(id).name
        self._cluster.containers.pop(name).remove()
        self._cluster.images[name] = image
        for variable in (_LEVEL_LIMIT, _OPEN_PAGES):
            self._cluster.environment[name].pop(variable, None)
        self._cluster.environment[name] |= _pages_of(image)
        if level_limit:
            self._cluster.environment[name][_LEVEL_LIMIT] = str(level_limit)

    def refused_start(self, id: int) -> tuple[int, str]:
        """Start a node that will not go on; its exit code, and what that start has logged."""
        self.start(id)
        code = self.container(id).wait()
        self._cluster._children.pop(self.plan(id).name)
        return code, self.container(id).log()

    def level(self, witness: int) -> int:
        """The cluster's feature level as a node shows it; 1 where it knows of none."""
        return int(self.page(witness, "/cluster/members")[1].get("level", 1))

    def wipe(self, id: int) -> None:
        """Delete what a node that does not run has stored, and its container."""
        self._cluster.containers.pop(self.plan(id).name).remove()
        for item in self.plan(id).data_dir.iterdir():
            shutil.rmtree(item) if item.is_dir() else item.unlink()

    def until_replaced(self, id: int, witness: int) -> None:
        """A wiped node was started again: wait until it votes as a new member, and its old self is gone."""
        name = self.plan(id).name
        wait_for(lambda: self._serves(id), f"a new {name} that serves", REPLACED_WITHIN_S, every_s=0.2)
        wait_for(lambda: self._settled(witness), f"a vote for the new {name}", REPLACED_WITHIN_S, every_s=0.2)
        self._place_of = {row["id"]: self._number_of(name) for name, row in self._members(witness).items()}

    def _serves(self, id: int) -> bool:
        code = self.container(id).poll()
        assert code is None, f"the new {self.plan(id).name} has ended with {code}: {self.log_text(id)[-2000:]}"
        try:
            return self.page(id, "/health/ready")[0] == HTTPStatus.OK
        except OSError:
            return False

    def _number_of(self, name: str) -> int:
        return next(id for id in self.ids if self.plan(id).name == name)

    def _members(self, witness: int) -> dict[str, dict[str, Any]]:
        rows = self.page(witness, "/cluster/members")[1]["members"]
        return {row["name"]: row for row in rows if row["state"] != "removed"}

    def _settled(self, witness: int) -> bool:
        try:
            rows, members = self.page(witness, "/shards")[1]["shards"], self._members(witness)
        except OSError:
            return False
        voting = min(REPLICAS, len(self.plans))
        return len(members) == len(self.plans) and all(
            set(row["voters"]) == set(row["plan"]) and len(row["plan"]) == voting and not row["changing"]
            for row in rows
        )

    # ------------------------------------------------------------------ disks

    def fill_disk(self) -> None:
        """Take the last byte of the small disk."""
        with (self._small_disk / "ballast").open("wb", buffering=0) as ballast:
            for size in (1024 * 1024, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(size))

    def free_disk(self) -> None:
        """Give back what was taken."""
        (self._small_disk / "ballast").unlink()

    @contextlib.contextmanager
    def slow_disk(self, id: int, writes_per_s: int) -> Iterator[None]:
        """Within it, the node's device takes so many writes a second from its container. Raises OSError where the
        kernel has no such limit."""
        container_id = self.container(id).docker.id
        device = _whole_disk_of(self.plan(id).data_dir)
        old = Path("/sys/fs/cgroup/blkio/docker") / container_id / "blkio.throttle.write_iops_device"
        new = next(Path("/sys/fs/cgroup").glob(f"**/*{container_id}*/io.max"), None)
        file = old if old.exists() else new
        if file is None:
            raise OSError("no blkio.throttle.write_iops_device and no io.max for containers")
        limit, none = (f"{writes_per_s}", "0") if file is old else (f"wiops={writes_per_s}", "wiops=max")
        file.write_text(f"{device} {limit}")
        try:
            yield
        finally:
            file.write_text(f"{device} {none}")

    def close(self) -> None:
        """Remove everything, whatever state it is in. Logs stay in the folder."""
        self._ports.release()
        for container in self._cluster.containers.values():
            container.kill()
            container.remove()
        self._cluster.containers.clear()
        subprocess.run(["umount", str(self._small_disk)], check=False, capture_output=True)


def _whole_disk_of(folder: Path) -> str:
    """major:minor of the disk that holds the folder: limits are a disk's, not a partition's."""
    number = os.stat(folder).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    if Path(f"/sys/dev/block/{name}/partition").exists():
        return (Path(f"/sys/dev/block/{name}").resolve().parent / "dev").read_text().strip()
    return name
