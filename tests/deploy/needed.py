"""What tests of this folder need and a machine may lack: they are skipped then, or fail where that is demanded."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any

import pytest


def is_demanded() -> bool:
    """DEPLOY_DEMAND_TOOLS, set by .ci/run: what is missing is a failure there."""
    return os.environ.get("DEPLOY_DEMAND_TOOLS", "") not in ("", "0")


def module(name: str, what: str) -> Any:
    """The module, from requirements/deploy.txt; without it whoever asks is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        _missing(f"{what} is not installed (pip install --requirement requirements/deploy.txt): {error}")


def program(name: str, package: str) -> None:
    """Goes on if there is such a program; without it whoever asks is skipped."""
    if shutil.which(name) is None:
        _missing(f"{name} is not installed (Debian: apt-get install {package})")


def _missing(text: str) -> None:
    if is_demanded():
        pytest.fail(f"demanded (DEPLOY_DEMAND_TOOLS): {text}", pytrace=False)
    pytest.skip(text, allow_module_level=True)
