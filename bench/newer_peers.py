"""The root folder with today's RabbitMQ and nats-server, which `newer-peers` of ../shared/bench makes."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.clusters import SHARED

ROOT_FOLDER: Final = Path("/tmp/sid")
"""Where the scripts of ../shared/bench look for it."""
_MADE_WITHIN_S: Final = 900


def newer_peers() -> Path | None:
    """The folder, made first if there is none; None where that can't be done, which takes root and mmdebstrap."""
    script = SHARED / "newer-peers"
    if not script.exists():
        return None
    if not (ROOT_FOLDER / "usr/sbin/rabbitmq-server").exists():
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            return None
        print(f"making {ROOT_FOLDER} with today's RabbitMQ and nats-server", flush=True)
        subprocess.run(["bash", str(script)], check=False, timeout=_MADE_WITHIN_S, capture_output=True)
    return ROOT_FOLDER if (ROOT_FOLDER / "usr/sbin/rabbitmq-server").exists() else None


def package_version(root: Path | None, package: str) -> str:
    """Of a Debian package, here or under a root folder."""
    folder = ["--admindir", str(root / "var/lib/dpkg")] if root is not None else []
    query = ["dpkg-query", *folder, "--show", "--showformat", "${Version}", package]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "of unknown version"
