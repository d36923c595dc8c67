"""`make test-systemd`: the unit under a real systemd, the first process of a container. Takes root and an engine.

    python -P tests/deploy/run_systemd.py

The container is made of Debian's packages and /opt/mayfly of the image of these sources (FAILOVER_IMAGE: of another).
Exit code 0: the unit starts, serves without any right, drains at a stop, comes back after SIGKILL, reads keys that are
root's as docs/operations/install.md has it, and stays down with 78.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT))

from tests.deploy import steps
from tests.deploy.steps import check

UNIT: Final = ROOT / "deploy" / "mayfly.service"
MADE: Final = "mayfly-systemd:test"
PACKAGES: Final = "systemd,systemd-sysv,dbus,python3,ca-certificates,procps"
docker: Final = partial(steps.run, "docker")
until: Final = partial(steps.until, within_s=60.0)
PAGE: Final = (
    "import sys, urllib.request as u; print(u.urlopen('http://127.0.0.1:15672' + sys.argv[1]).read().decode())"
)
CLIENT: Final = (
    "import socket, struct; s = socket.create_connection(('127.0.0.1', 5672)); s.sendall(b'AMQP\\0\\0\\x09\\x01')\n"
    "def frame(kind, channel, body): s.sendall(struct.pack('>BHI', kind, channel, len(body)) + body + b'\\xce')\n"
    "def read():\n"
    " kind, channel, size = struct.unpack('>BHI', s.recv(7, socket.MSG_WAITALL))\n"
    " return s.recv(size + 1, socket.MSG_WAITALL)[:-1]\n"
    "read(); frame(1, 0, bytes.fromhex('000a000b00000000') + b'\\x05PLAIN' + struct.pack('>I', 12)\n"
    "      + b'\\0guest\\0guest' + b'\\x05en_US');\n"
    "tune = read(); frame(1, 0, bytes.fromhex('000a001f') + tune[4:10] + b'\\0\\0')\n"
    "frame(1, 0, bytes.fromhex('000a0028') + b'\\x01/\\0\\0'); read(); print('open', flush=True); closed = read()\n"
    "print(*struct.unpack('>HHH', closed[:6]), closed[7:7 + closed[6]].decode())\n"
    "frame(1, 0, bytes.fromhex('000a0033'))\n"
)
"""A client of the standard library alone: it connects, waits until it is told to go, and says what it was told."""


HANDSHAKE: Final = (
    "import socket, ssl; made = ssl.create_default_context(cafile='/etc/mayfly/ca.pem')\n"
    "made.wrap_socket(socket.create_connection(('127.0.0.1', 5672)), server_hostname='localhost'); print('TLS')"
)


class Container:
    """A machine with systemd."""

    def __init__(self) -> None:
        # All rights that this machine has to give; systemd takes them away from the unit.
        words = ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined"]
        words += ["--security-opt", "apparmor=unconfined", "--cgroupns", "host", "--tty"]
        words += ["--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--tmpfs", "/run", "--tmpfs", "/run/lock"]
        self.id = docker("run", "--detach", *words, MADE)

    def run(self, *command: str) -> str:
        """What a command says in it; its exit code does not matter."""
        done = subprocess.run(["docker", "exec", self.id, *command], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def page(self, path: str) -> str:
        """An HTTP page of the node; "" if there is none."""
        return self.run("python3", "-c", PAGE, path)

    def shown(self, name: str) -> str:
        """A property of the unit."""
        return self.run("systemctl", "show", "mayfly", "--property", name, "--value")

    def log(self) -> str:
        """What the unit has said."""
        return self.run("journalctl", "--unit", "mayfly", "--no-pager", "--output", "cat")


def main() -> None:
    """Make the machine, go through it, remove it."""
    from tests.failover.engine import IMAGE, make_image, why_no_engine

    reason = why_no_engine()
    if reason:
        sys.exit(f"no systemd in a container on this machine: {reason}")
    if shutil.which("mmdebstrap") is None:
        sys.exit("there is no `mmdebstrap` (Debian: apt-get install mmdebstrap)")
    print("building the image ...", flush=True)
    make_image()
    make(IMAGE)
    machine = Container()
    try:
        until(lambda: machine.run("systemctl", "is-system-running") in ("running", "degraded"), "systemd")
        # As on a machine of its own: in a container systemd leaves mounts private, and credentials never arrive.
        machine.run("mount", "--make-shared", "/run")
        starts_and_serves(machine)
        drains_at_a_stop(machine)
        comes_back_after_a_kill(machine)
        reads_keys_of_root(machine)
        stays_down_where_it_must_not_go_on(machine)
        print(machine.run("systemd-analyze", "security", "--no-pager", "mayfly").splitlines()[-1])
    except AssertionError:
        print(machine.log()[-4000:], file=sys.stderr)
        raise
    finally:
        docker("rm", "--force", "--volumes", machine.id)


def starts_and_serves(machine: Container) -> None:
    """`systemctl start`; none of the rights that it does not need."""
    machine.run("systemctl", "start", "mayfly")
    until(lambda: machine.page("/health/ready"), "a node that serves")
    status = machine.run("cat", f"/proc/{machine.shown('MainPID')}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    check(int(fields["CapEff"], 16) == 0 and int(fields["CapBnd"], 16) == 0, "no capabilities")
    check(fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", "no new privileges, system calls filtered")
    check(fields["Uid"].split()[0] not in ("", "0"), "not root")
    check(machine.run("stat", "-c", "%a", "/var/lib/private/mayfly") == "750", "its data is not for others")


def drains_at_a_stop(machine: Container) -> None:
    """`systemctl stop` is SIGTERM: a client is told to go, and the unit has ended well."""
    words = ["docker", "exec", machine.id, "python3", "-c", CLIENT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        check(client.stdout.readline() == "open\n", "a client is connected")
        machine.run("systemctl", "stop", "mayfly")
        told = client.stdout.read()
    check(told.startswith("10 50 320 CONNECTION_FORCED"), f"the client was told to go: {told.strip()}")
    check((machine.shown("Result"), machine.shown("ExecMainStatus")) == ("success", "0"), "stopped in order")
    machine.run("systemctl", "restart", "mayfly")
    until(lambda: machine.page("/health/ready"), "a node that serves after a restart")


def comes_back_after_a_kill(machine: Container) -> None:
    """SIGKILL: systemd starts it again, with its data."""
    before = machine.shown("MainPID")
    machine.run("systemctl", "kill", "--signal=KILL", "mayfly")
    until(lambda: machine.shown("MainPID") not in ("0", before) and machine.page("/health/ready"), "a new process")
    check(machine.shown("NRestarts") == "1", "started again once")


def reads_keys_of_root(machine: Container) -> None:
    """The drop-in of docs/operations/install.md: systemd copies files that the unit's user cannot read."""
    machine.run("sh", "-c", "mv /etc/mayfly/tls.conf /etc/systemd/system/mayfly.service.d/ && systemctl daemon-reload")
    machine.run("systemctl", "restart", "mayfly")
    until(lambda: machine.page("/health/ready"), "a node that serves with TLS")
    check(machine.run("stat", "-c", "%U %a", "/etc/mayfly/tls.key") == "root 600", "the key is root's alone")
    check(machine.run("python3", "-c", HANDSHAKE) == "TLS", "the AMQP port speaks TLS")
    machine.run("sh", "-c", "rm /etc/systemd/system/mayfly.service.d/tls.conf && systemctl daemon-reload")


def stays_down_where_it_must_not_go_on(machine: Container) -> None:
    """Settings that contradict the data: 78, and no further start."""
    machine.run("sh", "-c", "echo 'shards = 3' >>/etc/mayfly/mayfly.toml")
    machine.run("systemctl", "restart", "mayfly")
    until(lambda: machine.shown("ActiveState") == "failed", "an end with 78")
    check(machine.shown("ExecMainStatus") == "78" and machine.shown("NRestarts") == "0", "78, not started again")


def make(image: str) -> None:
    """A Debian with systemd, the program and the unit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = folder / "root.tar"
        for command in (
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(packages)],
            ["docker", "import", str(packages), f"{MADE}-base"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        made = docker("create", image)
        docker("cp", "--quiet", f"{made}:/opt/mayfly", str(folder / "mayfly"))
        docker("rm", "--volumes", made)
        packages.unlink()
        (folder / "mayfly.service").write_text(UNIT.read_text())
        (folder / "mayfly.toml").write_text('name = "one"\n')
        make_tls(folder)
        lines = [
            f"FROM {MADE}-base", "COPY mayfly /opt/mayfly", "COPY mayfly.service /etc/systemd/system/",
            "COPY mayfly.toml tls.crt tls.key tls.conf ca.pem /etc/mayfly/", "RUN chmod 600 /etc/mayfly/tls.key",
            "RUN mkdir /etc/systemd/system/mayfly.service.d", "STOPSIGNAL SIGRTMIN+3", 'CMD ["/lib/systemd/systemd"]',
        ]
        (folder / "Dockerfile").write_text("\n".join(lines))
        docker("build", "--quiet", "--tag", MADE, str(folder))


def make_tls(folder: Path) -> None:
    """A certificate, and the drop-in of docs/operations/install.md."""
    from mayfly.node.command_line.certificate_authority import issue, make_authority

    make_authority(folder / "authority", "test", 10)
    certificate, key = issue(folder / "authority", ["localhost"], 10, False)
    shutil.copy(certificate, folder / "tls.crt")
    shutil.copy(key, folder / "tls.key")
    shutil.copy(folder / "authority" / "ca.pem", folder)
    page = (ROOT / "docs" / "operations" / "install.md").read_text()
    text = page.split("`systemctl edit mayfly`,\n\n")[1].split("\n\n")[0]
    (folder / "tls.conf").write_text("\n".join(line.strip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    main()
