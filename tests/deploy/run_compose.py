"""`make test-compose`: deploy/compose.yaml with `docker compose`, as docs/operations/install.md has it. Takes root and
an engine.

    python -P tests/deploy/run_compose.py

The file as it is, but for free ports and the image of these sources (FAILOVER_IMAGE: another). Where images can't be
pulled, Prometheus is that of Debian's package and Grafana is left out, with a word about it. Exit code 0: three nodes
become healthy and serve, Prometheus watches them, one that is killed comes back, all stop in order and have their
messages afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

ROOT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT))

from tests.deploy import steps
from tests.deploy.steps import check, run

PROJECT: Final = "mayfly-compose-test"
NODES: Final = ("node1", "node2", "node3")
MADE: Final = f"{PROJECT}-prometheus:debian"
QUEUE: Final = "kept"
LOGIN: Final = ("me", "secret")
PULLED_WITHIN_S: Final = 120
until: Final = partial(steps.until, within_s=180.0)


class Project:
    """The services of the file."""

    def __init__(self, folder: Path, image: str) -> None:
        self._words = ["docker", "compose", "--project-name", PROJECT, "--file"]
        os.environ["MAYFLY_USER"], os.environ["MAYFLY_PASSWORD"] = LOGIN
        text = run(*self._words, str(ROOT / "deploy" / "compose.yaml"), "config", "--format", "json")
        configuration = json.loads(text)
        self.services: dict[str, Any] = configuration["services"]
        for name, service in self.services.items():
            for port in service["ports"]:
                port.pop("published")
            if name in NODES:
                service.pop("build")
                service["image"] = image
        prometheus, grafana = self.services["prometheus"], self.services["grafana"]
        if not pulled(prometheus["image"]):
            print(f"{prometheus['image']} cannot be pulled: it is made of Debian's package", flush=True)
            prometheus["image"] = make_prometheus(folder, image)
        if not pulled(grafana["image"]):
            print(f"{grafana['image']} cannot be pulled: NOT TESTED", flush=True)
            del self.services["grafana"]
        file = folder / "compose.json"
        file.write_text(json.dumps(configuration))
        self._words.append(str(file))

    def compose(self, *words: str) -> str:
        """What `docker compose` says."""
        return run(*self._words, *words)

    def address(self, service: str, port: int) -> str:
        """Where a port of a service is found on this machine."""
        return self.compose("port", service, str(port))

    def state(self, service: str) -> dict[str, Any]:
        """Of its container, as the engine has it."""
        container = self.compose("ps", "--all", "--quiet", service)
        state: dict[str, Any] = json.loads(run("docker", "inspect", "--format", "{{json .State}}", container))
        return state

    def is_healthy(self, service: str) -> bool:
        """Whether its health check has gone well."""
        status: str = self.state(service)["Health"]["Status"]
        return status == "healthy"

    def page(self, service: str, port: int, path: str) -> Any:
        """A JSON page; None if there is none."""
        try:
            with urlopen(f"http://{self.address(service, port)}{path}", timeout=5) as page:
                return json.load(page)
        except (OSError, ValueError):
            return None


def main() -> None:
    """Start the file, go through it, remove it."""
    from tests.failover.engine import IMAGE, make_image, why_no_engine

    reason = why_no_engine()
    if reason:
        sys.exit(f"no containers on this machine: {reason}")
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("there is no `docker compose` (Debian 13: apt-get install docker-compose)")
    print(done.stdout.strip(), flush=True)
    print("building the image ...", flush=True)
    make_image()
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name), IMAGE)
        try:
            project.compose("up", "--detach", "--quiet-pull")
            becomes_healthy_and_serves(project)
            is_watched(project)
            comes_back_after_a_kill(project)
            stops_in_order_and_keeps_all(project)
        except AssertionError:
            print(project.compose("logs", "--tail", "30"), file=sys.stderr)
            raise
        finally:
            project.compose("down", "--volumes", "--timeout", "30")


def becomes_healthy_and_serves(project: Project) -> None:
    """What one node confirms, another has; with the user of the environment."""
    for name in NODES:
        until(partial(project.is_healthy, name), f"health of {name}")
    with connection(project, "node1") as client:
        channel = client.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        channel.basic_publish("", QUEUE, b"x" * 1000)
    check(ready(project, "node3") == 1, "node 3 has what was published to node 1")


def is_watched(project: Project) -> None:
    """Three nodes under their names; and the dashboard, where Grafana can be had."""

    def targets() -> set[str]:
        page = project.page("prometheus", 9090, "/api/v1/targets") or {"data": {"activeTargets": []}}
        return {each["labels"]["instance"] for each in page["data"]["activeTargets"] if each["health"] == "up"}

    until(lambda: targets() == {f"{name}:15672" for name in NODES}, "three nodes that Prometheus watches")
    until(lambda: project.page("prometheus", 9090, "/api/v1/rules")["data"]["groups"], "rules of alerts")
    if "grafana" in project.services:
        until(lambda: project.page("grafana", 3000, "/api/dashboards/uid/mayfly"), "the dashboard in Grafana")
        path = "/api/datasources/proxy/uid/prometheus/api/v1/query?query=mayfly_raft_leader"
        page = project.page("grafana", 3000, path)
        check(bool(page and page["data"]["result"]), "Grafana gets answers of Prometheus")


def comes_back_after_a_kill(project: Project) -> None:
    """SIGKILL of the program, and not by the engine, which would take it for a wish."""
    before = project.state("node2")["Pid"]
    os.kill(before, signal.SIGKILL)
    until(lambda: project.state("node2")["Pid"] not in (0, before), "a new process of node 2")
    until(lambda: project.page("node2", 15672, "/status") is not None, "node 2 that answers")


def stops_in_order_and_keeps_all(project: Project) -> None:
    """`docker compose stop`, then `up` again on the same volumes."""
    project.compose("stop", *NODES)
    check({project.state(name)["ExitCode"] for name in NODES} == {0}, "all nodes have stopped in order")
    project.compose("up", "--detach")
    until(lambda: ready(project, "node2") == 1, "what was published before")


def connection(project: Project, service: str) -> Any:
    """Of a client."""
    import pika

    host, port = project.address(service, 5672).split(":")
    credentials = pika.PlainCredentials(*LOGIN)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), credentials=credentials))


def ready(project: Project, service: str) -> int:
    """Messages in the queue, asked at a node; -1 if it does not answer yet."""
    from pika.exceptions import AMQPError

    try:
        with connection(project, service) as client:
            count: int = client.channel().queue_declare(QUEUE, passive=True).method.message_count
            return count
    except (AMQPError, OSError):
        return -1


def pulled(image: str) -> bool:
    """Whether the image is there, or came."""
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0:
        return True
    words = ["timeout", str(PULLED_WITHIN_S), "docker", "pull", "--quiet", image]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def make_prometheus(folder: Path, base: str) -> str:
    """An image with the program of Debian's package `prometheus`, started as that of its project is."""
    program = shutil.which("prometheus")
    if program is None:
        sys.exit("there is no `prometheus` (Debian: apt-get install prometheus)")
    context = folder / "prometheus"
    context.mkdir()
    shutil.copy(program, context / "prometheus")
    lines = [
        f"FROM {base}", "USER 0", "COPY prometheus /bin/prometheus", "RUN install -d -o 65534 /prometheus",
        "USER 65534", "WORKDIR /prometheus", 'ENTRYPOINT ["/bin/prometheus"]',
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]', "HEALTHCHECK NONE",
    ]
    (context / "Dockerfile").write_text("\n".join(lines))
    run("docker", "build", "--quiet", "--tag", MADE, str(context))
    return MADE


if __name__ == "__main__":
    main()
