"""The Docker engine of this machine, and the image under test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
IMAGE: Final = os.environ.get("FAILOVER_IMAGE", "mayfly:test")
DEMANDED: Final = os.environ.get("FAILOVER_DEMAND_ENGINE", "") not in ("", "0")
"""Set by .ci/run: without an engine the tests fail there instead of being skipped."""
_ENGINE_WITHIN_S: Final = 20
_BUILD_WITHIN_S: Final = 1800


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


def make_image() -> None:
    """Build the image of these sources, unless FAILOVER_IMAGE names one that is there. The engine keeps what did not
    change."""
    if "FAILOVER_IMAGE" in os.environ:
        subprocess.run(["docker", "image", "inspect", IMAGE], check=True, capture_output=True)
        return
    done = subprocess.run(
        [str(ROOT / "deploy" / "build-image"), IMAGE],
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_WITHIN_S,
    )
    if done.returncode:
        raise AssertionError(f"the image cannot be built: {(done.stdout + done.stderr)[-4000:]}")


def version_of_image() -> str:
    """What `mayfly --version` says inside."""
    done = subprocess.run(
        ["docker", "run", "--rm", IMAGE, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip().removeprefix("mayfly ")
