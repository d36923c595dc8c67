"""What the repository promises about itself: its two commands, its build, what may not stand in its files."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

import mayfly
from mayfly.node.shell.build import compiled_modules
from mayfly.node.version import VERSION

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Hosts and options of package registries: which one is used is for each machine to say.
REGISTRY: Final = re.compile(r"pypi\.org|pythonhosted\.org|index-url|find-links|trusted-host", re.IGNORECASE)


# Not "somewhere below": the installed packages are below it too, in .venv.
IS_SOURCE_TREE: Final = Path(mayfly.__file__).resolve().parent.parent == ROOT


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def hot_modules() -> set[str]:
    paths: set[Path] = set()
    for pattern in [pattern for group in project()["tool"]["mayfly"]["compiled"].values() for pattern in group]:
        paths |= {path.relative_to(ROOT) for path in ROOT.glob(pattern)}
    return {".".join(path.with_suffix("").parts) for path in paths if path.name != "__init__.py"}


def dry_run(*arguments: str) -> str:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout


def test_the_commands_of_the_readme_are_there() -> None:
    readme = (ROOT / "README.md").read_text()
    for target in ("run", "test"):
        assert f"make {target}" in readme
        assert dry_run(target)
    assert "mayfly demo" in dry_run("run")
    assert "--once" in dry_run("run", "ONCE=1")
    assert "--once" not in dry_run("run")


def test_make_test_checks_everything() -> None:
    commands = dry_run("test")
    for command in ("ruff check", "mypy", "pytest"):
        assert command in commands


def test_ci_runs_the_tests_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test THOROUGH=1")


def test_the_licence_is_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert project()["project"]["license"] == "Apache-2.0"


def test_no_registry_is_named_in_any_file() -> None:
    here = Path(__file__)
    named = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked_files()
        if path != here and path.stat().st_size < 1_000_000
        if (match := REGISTRY.search(path.read_text(errors="replace")))
    ]
    assert not named, "\n".join(named)


INSTALLS: Final = re.compile(r"(?:\b(?:pip3?|pipx|uv|conda|mamba)\b[^;&|]*?\b(?:install|add)|\buvx)\b([^;&|]*)")
BY_NAME: Final = re.compile(r"mayfly(\[.*\])?([=<>~!@].*)?")


def takes_it_by_name(text: str) -> list[str]:
    """Commands in a text that install a package of our name from an index. The one that is there is a stranger's."""
    return [
        command[0]
        for line in text.splitlines()
        for command in INSTALLS.finditer(line)
        if any(BY_NAME.fullmatch(word.strip("'\"`.,:()")) for word in command[1].split())
    ]


def test_no_text_tells_to_install_a_stranger_s_package() -> None:
    for bad in ("pip install mayfly", "pip install 'mayfly[demo]'", 'pip install -U "mayfly>=1"', "uvx mayfly demo",
                "python -m pip install --upgrade pika mayfly.", "pipx install mayfly", "uv pip install mayfly[demo]"):
        assert takes_it_by_name(bad), bad
    for good in ("pip install .", "pip install dist/mayfly-*.whl", "/opt/mayfly/bin/pip install 'pika>=1.3'",
                 "pip install ./mayfly", "pip install -r /opt/mayfly/lock.txt"):
        assert not takes_it_by_name(good), good
    here = Path(__file__).resolve()
    told = {
        str(path.relative_to(ROOT)): commands
        for path in tracked_files()
        if path != here and path.stat().st_size < 1_000_000
        if (commands := takes_it_by_name(path.read_text(errors="replace")))
    }
    assert not told


VERSION_LINE: Final = re.compile(
    r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)( ; [^#]*?)?(?: +--hash=sha256:[0-9a-f]{64})+", re.ASCII
)


def locked(*names: str) -> dict[str, str]:
    """Versions by package, of these files of requirements. Every one has hashes of its files."""
    versions: dict[str, str] = {}
    for name in names:
        text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            included = re.fullmatch(r"--requirement (\w+)\.txt", line)
            if included:
                versions |= locked(included[1])
                continue
            match = VERSION_LINE.fullmatch(line)
            assert match, f"requirements/{name}.txt: {line[:80]} has no hashes: `make lock` writes them"
            versions[_normal(match[1])] = match[2]
    return versions


def test_the_lock_has_exact_versions_with_hashes_of_all_that_is_needed() -> None:
    versions = locked("lock", "charts")
    metadata = project()["project"]
    needed = [
        *metadata["dependencies"],
        *(part for extra in metadata["optional-dependencies"].values() for part in extra),
    ]
    for requirement in needed:
        name = _normal(re.split(r"[ ;<>=!\[]", requirement)[0])
        assert name == "mayflymq" or name in versions, requirement
    assert locked("interop") and locked("deploy")


def test_an_image_takes_all_that_the_product_needs_and_no_more() -> None:
    """What requirements/runtime.txt names is what is reached from the dependencies."""
    from importlib.metadata import PackageNotFoundError, requires

    reached: set[str] = set()
    open_ends = [str(each) for each in project()["project"]["dependencies"]]
    while open_ends:
        requirement = Requirement(open_ends.pop())
        name = _normal(requirement.name)
        if name in reached or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        reached.add(name)
        try:
            open_ends += requires(name) or []
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
    # What older Pythons and other systems need besides may be there, too.
    assert reached <= set(locked("runtime"))
    assert set(locked("runtime")) - reached <= {"typing-extensions", "uvloop"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_compiled_file_is_in_the_source_tree() -> None:
    stray = [path for package in ("cluster", "node") for path in (ROOT / package).rglob("*.so")]
    assert stray == []


def test_no_secret_or_editor_leftover_is_tracked() -> None:
    suffixes = {".so", ".pyc", ".orig", ".rej", ".swp", ".log", ".mdb"}
    assert [path for path in tracked_files() if path.suffix in suffixes] == []


def test_the_installed_version_is_this_one() -> None:
    from importlib.metadata import PackageNotFoundError, version

    if IS_SOURCE_TREE:
        pytest.skip("this is the source tree")
    try:
        assert version("mayflymq") == VERSION
    except PackageNotFoundError:
        pytest.fail("mayfly is not installed")


def test_with_a_compiler_the_installed_modules_are_compiled() -> None:
    """A hot module that mypyc refuses would make the install fall back to Python, and nobody would see.

    `.venv/bin/pip install --verbose --no-build-isolation .` says why it did.
    """
    if IS_SOURCE_TREE:
        assert compiled_modules() == ()
        return
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    if os.environ.get("MAYFLY_PURE", "") not in ("", "0") or not shutil.which(compiler) or not headers:
        assert compiled_modules() == ()
    else:
        assert set(compiled_modules()) == hot_modules()


def test_the_tests_do_not_mix_two_builds() -> None:
    """`mayfly.cluster` and `mayfly.node` come from the same place: installed, or the source tree."""
    import mayfly.cluster
    import mayfly.node

    assert Path(mayfly.cluster.__file__ or "").parent.parent == Path(mayfly.node.__file__ or "").parent.parent


def test_the_command_is_installed_beside_python() -> None:
    if IS_SOURCE_TREE:
        pytest.skip("this is the source tree")
    script = Path(sys.executable).parent / "mayfly"
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert VERSION in shown


IN_CAPITALS: Final = re.compile(
    "ADR|AMQP|API|BCC|CPU|CRC|DLQ|DLX|ETA|EXTERNAL|HTTP|IANA|JSON|JWK|LMDB|NAME|PCRE|PEM|PSS|RPC|RULES|SASL|SHA|"
    "SIG(CONT|KILL|STOP|TERM)|SO_REUSEPORT|TCP|TLS|TTL|UTC|UTF"
)
"""Words that tables may have outside of code."""


def placeholders(text: str) -> list[str]:
    """Words in capitals in the cells of tables that mean nothing: somebody was to put something in their place."""
    found = []
    for line in text.splitlines():
        if line.startswith("|"):
            found += re.findall(r"\b[A-Z][A-Z_]{2,}\b", re.sub(r"`[^`]*`|\]\([^)]*\)", "", line))
    return [word for word in found if not IN_CAPITALS.fullmatch(word)]


def test_no_cell_of_a_table_waits_for_its_words() -> None:
    """A word in capitals that is meant goes into `IN_CAPITALS`."""
    assert placeholders("| MayflyMQ | OURS: 3 | TODO | `PUT /x` | TTL |\nTBD") == ["OURS", "TODO"]
    pages = {path: placeholders(path.read_text()) for path in tracked_files() if path.suffix == ".md"}
    assert not {str(path.relative_to(ROOT)): words for path, words in pages.items() if words}
