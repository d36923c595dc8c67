"""The Docker engine of this machine, and the image under test."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.failover.releases import ASKING, Release
from tests.made_wheel import compile_one_group

ROOT: Final = Path(__file__).resolve().parent.parent.parent
IMAGE: Final = os.environ.get("FAILOVER_IMAGE", "mayfly:test")
DEMANDED: Final = os.environ.get("FAILOVER_DEMAND_ENGINE", "") not in ("", "0")
"""Set by .ci/run: without an engine the tests fail there instead of being skipped."""
_ENGINE_WITHIN_S: Final = 60
_STARTS_WITHIN_S: Final = 180
_BUILD_WITHIN_S: Final = 1800
_SOURCES: Final = (
    *("cluster", "mayfly", "node", "deploy", "requirements", "pyproject.toml", "setup.py", "README.md", "LICENSE"),
)


def why_no_engine() -> str:
    """Why containers cannot be tested here; empty when they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "faults are put into containers' networks and disks from outside: that takes Linux and root"
    for command, package in (("docker", "docker.io"), ("nsenter", "util-linux"), ("iptables", "iptables")):
        if shutil.which(command) is None:
            return f"there is no `{command}` (Debian: apt-get install {package})"
    done = subprocess.run(
        ["docker", "info", "--format", "{{json .ServerErrors}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_ENGINE_WITHIN_S,
    )
    if done.returncode or json.loads(done.stdout or "null"):
        return f"no Docker engine answers: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
    try:
        import testcontainers.core  # noqa: F401
    except ImportError:
        return "testcontainers is not installed (pip install --requirement requirements/deploy.txt)"
    return ""


_COMPILED: Final = "import sys, mayfly.node.engine.engine as engine; sys.exit(not engine.__file__.endswith('.so'))"


def make_image(wheel: Path | None = None) -> None:
    """Build the image of these sources, unless FAILOVER_IMAGE names one that is there. The engine keeps what did not
    change: of several processes that want it one builds, and the others get that.

    Given a compiled wheel of these sources, and if it runs on the image's Python, nothing is compiled: the modules of
    the wheel take the place of those of an image that is built uncompiled."""
    if "FAILOVER_IMAGE" in os.environ:
        subprocess.run(["docker", "image", "inspect", IMAGE], check=True, capture_output=True)
        return
    with Path(tempfile.gettempdir(), "mayfly-test-image").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if wheel is None or not _build_around(wheel):
            _build(ROOT, IMAGE, dict(os.environ))


def _build_around(wheel: Path) -> bool:
    """Whether the wheel runs in the image that is built with it; else there is none."""
    uncompiled = _build(ROOT, f"{IMAGE}-uncompiled", {**os.environ, "MAYFLY_PURE": "1"})
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"/opt/mayfly/lib/python{python}/site-packages"
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(Path(folder, "wheel"))
        Path(folder, "Dockerfile").write_text(
            f"FROM {uncompiled}\n"
            "USER root\n"
            f"RUN rm {packages}/mayfly/node/shell/uncompiled.txt\n"
            f"COPY wheel {packages}\n"
            "USER 10001:10001\n"
        )
        words = ["docker", "build", "--tag", f"{IMAGE}-with-wheel", folder]
        environment = {"DOCKER_BUILDKIT": "0", **os.environ}  # as deploy/build-image
        built = subprocess.run(words, capture_output=True, check=False, timeout=_BUILD_WITHIN_S, env=environment)
    if built.returncode:  # it has another Python
        return False
    tried = ["docker", "run", "--rm", "--entrypoint", "python3", f"{IMAGE}-with-wheel", "-P", "-c", _COMPILED]
    if subprocess.run(tried, capture_output=True, check=False, timeout=_STARTS_WITHIN_S).returncode:
        return False
    subprocess.run(["docker", "tag", f"{IMAGE}-with-wheel", IMAGE], check=True, timeout=_STARTS_WITHIN_S)
    return True


def version_of_image(image: str = IMAGE) -> str:
    """What `mayfly --version` says inside."""
    return _said_inside(image, "mayfly", "--version").removeprefix("mayfly ")


def release_of_image(image: str) -> Release:
    """The versions that the release in an image knows."""
    return Release.of(image, _said_inside(image, "python3", "-c", ASKING))


def _said_inside(image: str, *command: str) -> str:
    words = ["docker", "run", "--rm", "--entrypoint", command[0], image, *command[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=_STARTS_WITHIN_S).stdout.strip()


def make_next_image(image: str) -> str:
    """Build an image that is these sources as the next release could be: it speaks one more protocol version and knows
    one more feature level. Uncompiled, for speed."""

    def raised(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + 1}"

    with tempfile.TemporaryDirectory() as folder:
        _copy_sources(Path(folder))
        versions = Path(folder, "cluster", "versions.py")
        pattern = r"^((?:PROTOCOL|LEVEL)_HIGHEST: Final = )(\d+)$"
        text, count = re.subn(pattern, raised, versions.read_text(), flags=re.MULTILINE)
        assert count == 2, f"two versions to raise, {count} found"
        versions.write_text(text)
        return _build(Path(folder), image, {**os.environ, "MAYFLY_PURE": "1"})


def make_image_of_little(image: str) -> str:
    """Build an image whose build stage compiles, as that of a release does, but one group of modules alone: what
    `mayfly --version` says inside."""
    with tempfile.TemporaryDirectory() as folder:
        _copy_sources(Path(folder))
        compile_one_group(Path(folder))
        return version_of_image(_build(Path(folder), image, {**os.environ, "MAYFLY_PURE": ""}))


def _copy_sources(folder: Path) -> None:
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True)
        else:
            shutil.copy(source, folder / name)


def make_image_of(revision: str, image: str) -> str:
    """Build an image of an earlier commit, uncompiled. Raises ValueError where there is no such commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise ValueError(f"git has no sources of {revision!r}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return _build(Path(folder), image, {**os.environ, "MAYFLY_PURE": "1"})


def _build(folder: Path, image: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(folder / "deploy" / "build-image"), image],
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_WITHIN_S,
        env=environment,
    )
    if done.returncode:
        raise AssertionError(f"the image cannot be built: {(done.stdout + done.stderr)[-4000:]}")
    return image
