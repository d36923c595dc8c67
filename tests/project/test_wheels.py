"""Wheels: one with the compiled modules where a C compiler works, else one that fits every Python; both work."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("cluster", "node", "setup.py", "pyproject.toml", "README.md", "LICENSE")

USE = """
from pamqp.commands import Confirm

from node.build import describe_version
from tests.broker.three_brokers import ThreeBrokers

brokers = ThreeBrokers()
client = brokers.nodes[1].client()
client.send(1, Confirm.Select())
client.declare("q")
client.publish(1, "q", b"body")
brokers.run_until(lambda: client.acks())
assert client.get("q").body == b"body"
print(describe_version())
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what a wheel is made of, without what earlier builds left."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(source: Path, **environment: str) -> Path:
    """Make a wheel there; its path."""
    dist = source / "dist"
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-index",
         "--no-build-isolation", "--wheel-dir", dist, "."],
        cwd=source,
        env={key: value for key, value in os.environ.items() if key != "MAYFLY_PURE"} | environment,
        check=True,
    )
    (wheel,) = dist.glob("*.whl")
    return wheel


def use(wheel: Path, folder: Path) -> str:
    """Install a wheel into a folder and try it there: what it says of itself after a publish through three nodes."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index",
         "--target", folder, wheel],
        check=True,
    )
    # The installed packages come first; of the source tree only the tests are taken.
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    told = [
        subprocess.run(
            [sys.executable, "-P", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
        ).stdout
        for arguments in (["-m", "node", "--version"], ["-c", USE])
    ]
    assert told[1].strip() in told[0]
    return told[1].strip()


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"MAYFLY_PURE": "1"}, {"CC": "false"}, {"CC": "no-such-compiler"}])
def test_without_a_compiler_a_wheel_fits_every_python(
    source: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    wheel = build(source, **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "pure Python" in use(wheel, tmp_path / "installed")


@pytest.mark.slow
def test_with_a_compiler_a_wheel_has_the_compiled_modules(source: Path, tmp_path: Path) -> None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("there is no C compiler, or no headers of Python")
    wheel = build(source)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-{python}-{python}-{platform}.whl")
    assert "compiled:" in use(wheel, tmp_path / "installed")
