"""Hosts in network namespaces of this process's own, on one switch; any direction between two of them can be cut, and
on a switch in user space lose and delay single packets.

Linux, root, `ip` (iproute2) and `iptables`: `why_impossible` says which of them is missing. The switch stands in a
namespace of its own, so that no packet filter of the machine gets in between; this machine is linked to it as well and
reaches every host, whatever is cut between the hosts.

Packets are lost, delayed, repeated and reordered by a switch of our own (`soft_switch.py`, which takes /dev/net/tun):
it needs no `netem` in the kernel.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

_LOCKS: Final = Path("/tmp/mayfly-test-networks")
_MOST_NETWORKS: Final = 250
_OWN_HOST: Final = 254
_TUN: Final = Path("/dev/net/tun")
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADERS: Final = 0x0002 | 0x1000


class NetworkError(Exception):
    """A command that sets up the network failed; the text has its words."""


def why_impossible(soft: bool = False) -> str:
    """Why this machine can have no such network; empty when it can. `soft`: with a switch in user space."""
    if sys.platform != "linux":
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces take root"
    for command, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(command) is None:
            return f"there is no `{command}` (Debian: apt-get install {package})"
    try:
        Network(1, soft).close()
    except NetworkError as error:
        return str(error)
    return ""


class Network:
    """Hosts 1, 2, ... on one switch."""

    def __init__(self, hosts: int, soft: bool = False) -> None:
        """Raises NetworkError, and leaves nothing behind, if that can't be had. `soft`: single packets can be
        disturbed, by a switch in user space."""
        self._number, self._lock = _free_number()
        self._soft = soft
        self._soft_switch: subprocess.Popen[str] | None = None
        self._hosts = range(1, hosts + 1)
        self._outside = f"mayfly{self._number}"
        self._switch = f"{self._outside}-switch"
        try:
            self._remove()  # what a run that was killed has left under this number
            self._build()
        except BaseException:
            self.close()
            raise

    def address(self, host: int) -> str:
        """The host's address."""
        return f"198.19.{self._number}.{host}"

    def inside(self, host: int) -> list[str]:
        """The words before a command that is to run on the host."""
        return ["ip", "netns", "exec", self._name(host)]

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that the one sends reaches the other."""
        _run(*self.inside(receiver), "iptables", "-w", "-A", "INPUT", "-s", self.address(sender), "-j", "DROP")

    def disturb(
        self,
        sender: int,
        receiver: int,
        loss: float = 0.0,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        repeats: float = 0.0,
    ) -> None:
        """From now on such a share of the packets that the one sends to the other is lost, each comes later by the
        delay and a random part of the jitter, and such a share comes twice. On a soft network alone."""
        self._command(f"{sender} {receiver} {loss} {delay_ms} {jitter_ms} {repeats}")

    def heal(self) -> None:
        """Nothing is cut or disturbed any more."""
        if self._soft:
            self._command("heal")
        for host in self._hosts:
            _run(*self.inside(host), "iptables", "-w", "-F", "INPUT")

    def close(self) -> None:
        """Remove the hosts; processes that still run there keep running without a network."""
        self._remove()
        self._lock.close()

    def _name(self, host: int) -> str:
        return f"{self._outside}-{host}"

    def _command(self, line: str) -> None:
        switch = self._soft_switch
        assert switch is not None and switch.stdin is not None and switch.stdout is not None
        switch.stdin.write(f"{line}\n")
        switch.stdin.flush()
        if switch.stdout.readline() != "done\n":
            raise NetworkError(f"the switch did not take {line!r}")

    def _build(self) -> None:
        if self._soft:
            self._build_soft()
            return
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "switch", "up")
        _run("ip", "link", "add", self._outside, "type", "veth", "peer", "name", "outside", "netns", self._switch)
        self._plug("outside")
        _run("ip", "address", "add", f"{self.address(_OWN_HOST)}/24", "dev", self._outside)
        _run("ip", "link", "set", self._outside, "up")
        for host in self._hosts:
            name, port = self._name(host), f"port{host}"
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._switch)
            self._plug(port)
            _run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run(*self.inside(host), "iptables", "-w", "-S", "INPUT")

    def _build_soft(self) -> None:
        ports: list[int] = []
        try:
            ports.append(_tap(self._outside))
            _run("ip", "address", "add", f"{self.address(_OWN_HOST)}/24", "dev", self._outside)
            _run("ip", "link", "set", self._outside, "up")
            for host in self._hosts:
                name, device = self._name(host), f"{self._outside}p{host}"
                _run("ip", "netns", "add", name)
                _run("ip", "-n", name, "link", "set", "lo", "up")
                ports.append(_tap(device))
                _run("ip", "link", "set", device, "netns", name)
                _run("ip", "-n", name, "link", "set", device, "name", "eth0")
                _run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
                _run("ip", "-n", name, "link", "set", "eth0", "up")
                _run(*self.inside(host), "iptables", "-w", "-S", "INPUT")
            self._soft_switch = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("soft_switch.py")), *map(str, ports)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=ports,
            )  # fmt: skip
            self._command("heal")
        finally:
            for port in ports:
                os.close(port)

    def _plug(self, port: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")

    def _remove(self) -> None:
        if self._soft_switch is not None:
            self._soft_switch.communicate()  # the end of its input is its end, and that of the devices
            self._soft_switch = None
        for name in [self._switch, *self._left_hosts()]:
            with contextlib.suppress(NetworkError):
                _run("ip", "netns", "delete", name)
        with contextlib.suppress(NetworkError):
            _run("ip", "link", "delete", self._outside)

    def _left_hosts(self) -> Sequence[str]:
        folder = Path("/run/netns")
        return [path.name for path in folder.glob(f"{self._outside}-*")] if folder.is_dir() else []


def _free_number() -> tuple[int, TextIO]:
    """A number that is ours while the lock is open, and names a subnet of 198.19.0.0/16 (meant for tests, RFC 2544)."""
    _LOCKS.mkdir(mode=0o777, exist_ok=True)
    for step in range(_MOST_NETWORKS):
        number = 1 + (os.getpid() + step) % _MOST_NETWORKS
        lock = (_LOCKS / str(number)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return number, lock
    raise NetworkError(f"all {_MOST_NETWORKS} networks for tests are in use")


def _tap(name: str) -> int:
    """A new TAP device, which is there while its descriptor is open. Raises NetworkError."""
    try:
        descriptor = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkError(f"no device for a switch in user space: {error}") from error
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADERS))
    except OSError as error:
        os.close(descriptor)
        raise NetworkError(f"no TAP device {name}: {error}") from error
    return descriptor


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"`{' '.join(words)}`: {(done.stderr or done.stdout).strip()}")
