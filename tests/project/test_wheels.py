"""Wheels: one with the compiled modules where a C compiler works, else one that fits every Python; both work."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from mayfly.node.local_nodes.exit_codes import REFUSED
from mayfly.node.version import VERSION
from tests.made_wheel import compile_one_group, made_wheel

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("cluster", "mayfly", "node", "setup.py", "pyproject.toml", "README.md", "LICENSE")

USE = """
from pamqp.commands import Confirm

from mayfly.node.shell.build import describe_version
from tests.node.broker.three_brokers import ThreeBrokers

brokers = ThreeBrokers()
client = brokers.nodes[1].client()
client.send(1, Confirm.Select())
client.declare("q")
client.publish(1, "q", b"body")
brokers.run_until(lambda: client.acks())
assert client.get("q").body == b"body"
print(describe_version())
"""

LOOKS_THROUGH = """#!/bin/sh
case "$*" in
*" -c build/mypyc/__native_"*)
    CC "$@" -fsyntax-only || exit
    while [ "$1" != -o ]; do shift; done
    exec CC -x c -fPIC -c /dev/null -o "$2" ;;
esac
exec CC "$@" -O0
"""
"""A C compiler that makes nothing of what mypyc has translated, if it is C."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what a wheel is made of, without what earlier builds left."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(source: Path, environment: dict[str, str] | None = None, isolated: bool = False) -> Path:
    """Make a wheel there; its path."""
    dist = source / "dist"
    here = [] if isolated else ["--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", *here, "--verbose",
         "--wheel-dir", dist, "."],
        cwd=source,
        env={key: value for key, value in os.environ.items() if key not in ("MAYFLY_PURE", "PYTHONPATH")}
        | (environment or {}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (wheel,) = dist.glob("*.whl")
    told = "Nothing is compiled: this build is three times as slow" in done.stdout + done.stderr
    assert told == wheel.name.endswith("-py3-none-any.whl")
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
        for arguments in (["-m", "mayfly", "--version"], ["-c", USE])
    ]
    assert told[1].strip() in told[0]
    return told[1].strip()


def has_compiler() -> bool:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def warns(installed: Path) -> bool:
    """Whether a node from there says at its start that it should have been compiled."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from mayfly.node.shell import build; print(build.failed_to_compile())"],
        env=os.environ | {"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"MAYFLY_PURE": "1"}, "pure Python: MAYFLY_PURE was set)"),
        ({"CC": "false"}, "pure Python: compiling failed: the C compiler did not do it ("),
        ({"CC": "no-such-compiler"}, "pure Python: there was no C compiler (no-such-compiler))"),
    ],
)
def test_without_a_compiler_a_wheel_fits_every_python_and_says_why(
    source: Path, tmp_path: Path, environment: dict[str, str], says: str
) -> None:
    compile_one_group(source)
    wheel = build(source, environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert says in use(wheel, tmp_path / "installed")
    assert warns(tmp_path / "installed") == ("compiling failed" in says)


@pytest.mark.slow
def test_it_lives_beside_packages_that_are_called_like_its_folders(source: Path, tmp_path: Path) -> None:
    """The index has distributions `cluster` and `node`, projects have folders of these names, and neither side notices
    the other. No simulator and no test is in the wheel."""
    wheel = build(source, {"MAYFLY_PURE": "1"})
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        tops = {name.split("/")[0] for name in names}
        page = {name for name in names if name.startswith("mayfly/node/http/page/")}
    assert tops == {"mayfly", f"mayflymq-{VERSION}.dist-info"}
    assert page == {f"mayfly/{path.relative_to(ROOT)}" for path in (ROOT / "node/http/page").rglob("*.*")}
    installed, project = tmp_path / "installed", tmp_path / "project"
    foreign = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--target", installed,
         "cluster", "node"],
        capture_output=True, text=True,
    )  # fmt: skip
    if foreign.returncode and "No matching distribution found" in foreign.stderr:
        pytest.skip("no package index is reachable")
    assert not foreign.returncode, foreign.stderr
    before = {path: path.read_bytes() for path in installed.rglob("*.py")}
    assert before
    use(wheel, installed)
    assert {path: path.read_bytes() for path in before} == before
    for name in ("node", "cluster"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise SystemExit('this is the package of the project')")
    # As the command does it, without -P: the folder of the project comes first on the path.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(project), str(installed)))}
    told = subprocess.run(
        [sys.executable, "-m", "mayfly", "node", "--data-dir", "data", "--tick-ms", "0"],
        cwd=project, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (told.returncode, "tick_ms" in told.stderr) == (REFUSED, True), told.stderr


@pytest.mark.slow
def test_a_module_that_mypyc_refuses_is_named_by_the_version(source: Path, tmp_path: Path) -> None:
    if not has_compiler():
        pytest.skip("there is no C compiler, or no headers of Python")
    with (source / "node" / "limits.py").open("a") as module:
        module.write("\nWRONG: int = 'not a number'\n")
    said = use(build(source), tmp_path / "installed")
    assert "compiling failed: mypyc did not translate the modules (mayfly/node/limits.py:" in said
    assert "Incompatible types in assignment" in said
    assert warns(tmp_path / "installed")


@pytest.mark.slow
def test_a_plain_install_in_isolation_is_compiled(source: Path, tmp_path: Path) -> None:
    """With nothing but what `[build-system] requires` names, as `pip install .` builds it. All is translated, and the C
    of it looked through: to make code of that takes most of the time, and needs nothing more of what is installed."""
    if not has_compiler():
        pytest.skip("there is no C compiler, or no headers of Python")
    compiler = tmp_path / "cc"
    compiler.write_text(LOOKS_THROUGH.replace("CC", os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"))
    compiler.chmod(0o755)
    try:
        wheel = build(source, {"CC": str(compiler)}, isolated=True)
    except subprocess.CalledProcessError as error:
        if "No matching distribution found" in error.stderr:
            pytest.skip("no package index is reachable")
        raise
    with zipfile.ZipFile(wheel) as content:
        compiled = {name.split(".")[0] for name in content.namelist() if name.endswith(".so")}
        assert "mayfly/node/shell/uncompiled.txt" not in content.namelist()
    for module in ("cluster/raft/raw_node", "cluster/group/group", "node/amqp/connection", "node/shard/shard",
                   "node/engine/engine"):
        assert f"mayfly/{module}" in compiled


@pytest.mark.slow
def test_with_a_compiler_a_wheel_has_the_compiled_modules(source: Path, tmp_path: Path) -> None:
    """The one that `make` has installed, if it is of these sources: optimising once more takes minutes."""
    if not has_compiler():
        pytest.skip("there is no C compiler, or no headers of Python")
    wheel = made_wheel() or build(source)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-{python}-{python}-{platform}.whl")
    assert "compiled:" in use(wheel, tmp_path / "installed")


def test_the_wheel_that_make_has_made_is_taken_if_it_is_of_these_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    modules = {"mayfly/__init__.py": "1", "mayfly/cluster/raft/raft.py": "2", "mayfly/node/limits.py": "3"}
    for name, text in modules.items():
        path = tmp_path / (name if name.count("/") == 1 else name.removeprefix("mayfly/"))
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for name in ("setup.py", "pyproject.toml"):
        (tmp_path / name).touch()
    monkeypatch.setattr("tests.made_wheel.ROOT", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    (tmp_path / "venv" / "wheels").mkdir(parents=True)

    def found(inside: dict[str, str], tag: str) -> bool:
        wheel = tmp_path / "venv" / "wheels" / f"mayflymq-{VERSION}-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as content:
            for name, text in (inside | {"mayfly/node/limits.so": ""}).items():
                content.writestr(name, text)
        taken = made_wheel()
        assert taken in (wheel, None)
        os.utime(tmp_path / "setup.py", (wheel.stat().st_mtime + 1,) * 2)
        assert made_wheel() is None, "built in another way"
        os.utime(tmp_path / "setup.py", (0, 0))
        wheel.unlink()
        return taken is not None

    assert made_wheel() is None
    assert found(modules, f"{python}-{python}-{platform}")
    assert not found(modules, "py3-none-any")
    assert not found(modules, f"cp300-cp300-{platform}")
    assert not found(modules | {"mayfly/node/limits.py": "4"}, f"{python}-{python}-{platform}")
    assert not found(modules | {"mayfly/node/gone.py": ""}, f"{python}-{python}-{platform}")
    del modules["mayfly/__init__.py"]
    assert not found(modules, f"{python}-{python}-{platform}")
