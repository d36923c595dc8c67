"""Libraries in C in front of a process's calls (LD_PRELOAD): Linux and a C compiler."""

import shutil
import subprocess
import sys
from pathlib import Path


def why_impossible(what: str) -> str:
    """Why they can't be had on this machine, of which `what` says what they do; empty when they can."""
    if not sys.platform.startswith("linux"):
        return f"{what} with Linux's LD_PRELOAD, this is {sys.platform}"
    if _compiler() is None:
        return f"there is no C compiler: {what} by a library made for it (Debian: apt-get install gcc)"
    return ""


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build_library(source: Path, folder: Path) -> Path:
    """The library, made in a folder that is there."""
    compiler = _compiler()
    assert compiler is not None
    library = folder / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library
