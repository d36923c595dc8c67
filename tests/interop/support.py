"""What tests of clients share: addresses, programs that run beside the test, a node's death."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.integration.nodes import Nodes, wait_for

FOLDER: Final = Path(__file__).parent
APPLICATIONS: Final = FOLDER / "applications"
NO_PYTHON_CLIENTS: Final = "requirements/interop.txt is not installed (`make interop` installs it)"
WITHIN_S: Final = 180.0
_END_WITHIN_S: Final = 20.0


def url(nodes: Nodes, id: int) -> str:
    """Where a client connects to a node, in the form that all clients take."""
    return f"amqp://guest:guest@{nodes.plan(id).amqp}/%2F"


def urls(nodes: Nodes) -> list[str]:
    """Of all nodes."""
    return [url(nodes, id) for id in nodes.ids]


def fresh(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@contextmanager
def dead(nodes: Nodes, id: int) -> Iterator[None]:
    """The node is killed; afterwards it runs again, and all is well."""
    nodes.kill(id)
    try:
        yield
    finally:
        nodes.start(id)
        nodes.until_serving()
        nodes.heal()


class Program:
    """A client's own process, such as a worker; what it prints is kept."""

    def __init__(self, words: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> None:
        """Starts it. `folder` takes its output."""
        self.output_file = folder / f"{fresh('output')}.txt"
        self.words = [str(word) for word in words]
        with self.output_file.open("wb") as output:
            self._process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is not None:
            error.add_note(f"{' '.join(self.words)} printed:\n{self.output[-6_000:]}")

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.output_file.read_text(errors="replace")

    def until_it_prints(self, text: str, times: int = 1, within_s: float = WITHIN_S) -> None:
        """Return when it has printed the text (so many times); fails if it ends before."""

        def printed() -> bool:
            found = self.output.count(text) >= times
            assert found or self._process.poll() is None, f"{self.words} ended ({self._process.returncode})"
            return found

        wait_for(printed, f"{text!r} from {self.words}", within_s, every_s=0.05)

    def end(self) -> None:
        """SIGTERM to the process, then, for whatever of its session is left, SIGKILL."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_WITHIN_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self, within_s: float = WITHIN_S) -> str:
        """Wait until it ends by itself, with exit code 0; what it printed."""
        code = self._process.wait(within_s)
        assert code == 0, f"{self.words}: exit code {code}\n{self.output[-6_000:]}"
        return self.output


def run(words: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program to its end; what it printed. Fails if its exit code is not 0."""
    with Program(words, folder, environment) as program:
        return program.finish()


def python(*words: str) -> list[str]:
    """A command of a Python package in the environment of the tests."""
    return [sys.executable, "-P", "-m", *words]
