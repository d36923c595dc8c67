"""Which package may import what. A module is pure (input in, output out) unless it is listed as a shell."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = ("cluster", "node")

# The modules with sockets, disks, clocks and processes: the shells. All else in the two packages is pure.
# A name stands for the module and all below it.
SHELLS: Final = (
    "cluster.log.folder",
    "cluster.log.layouts",
    "cluster.log.last_commit",
    "cluster.log.lmdb_file",
    "cluster.log.lmdb_room",
    "cluster.log.direct_writes",
    "cluster.log.lmdb_store",
    "cluster.log.lmdb_tables",
    "cluster.log.map_pages",
    "cluster.log.salvage",
    "cluster.log.write_ahead_files",
    "cluster.log.write_ahead_store",
    "cluster.rpc",
    "cluster.transport",
    "node.__main__",
    "node.acceptor",
    "node.arrival",
    "node.build",
    "node.catalog_at_start",
    "node.certificates_watch",
    "node.command_line",
    "node.data_copy",
    "node.demonstration",
    "node.drive",
    "node.engine_assembly",
    "node.http",
    "node.listener",
    "node.log_writer",
    "node.membership_shell",
    "node.node_view",
    "node.open_files",
    "node.operating.access",
    "node.operating.clients",
    "node.operating.current_replicas",
    "node.operating.definitions_office",
    "node.operating.management",
    "node.operating.operator",
    "node.operating.operator_login",
    "node.operating.status",
    "node.own_token",
    "node.peer_protection",
    "node.private_files",
    "node.process",
    "node.process_clock",
    "node.process_memory",
    "node.resource_watch",
    "node.restoring",
    "node.settings",
    "node.simulation.__main__",
    "node.store_opening",
    "node.simulation.lease_edges.__main__",
    "node.simulation.soak",
)
# Worlds for tests: pure but for random numbers, which come from a seed.
SEEDED: Final = ("cluster.simulator", "node.simulation")

# What a pure module may not import: input, output, time, chance and threads of its own.
IMPURE_MODULES: Final = frozenset(
    {
        *(
            "asyncio",
            "aiohttp",
            "concurrent",
            "grpc",
            "http",
            "io",
            "lmdb",
            "multiprocessing",
            "os",
            "pathlib",
        ),
        *("queue", "random", "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl"),
        *("socketserver", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "uvloop"),
    }
)
# And what it may not call, though the module is fine: where the clock, the environment or the disk hides.
IMPURE_CALLS: Final = frozenset({"datetime.now", "datetime.utcnow", "datetime.today", "date.today"})
IMPURE_BUILTINS: Final = frozenset({"open", "input", "print", "breakpoint"})
# What the Raft core may import of the project: itself.
RAFT: Final = "cluster.raft"


class Import(NamedTuple):
    """One imported module, in a file and line."""

    module: str
    where: str


def below(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(module_name(path), path, ast.parse(path.read_text(), str(path))) for path in paths]


def imports(path: Path, tree: ast.Module) -> Iterator[Import]:
    """Every import, wherever it stands; of `from package import module` the module, where it is one."""
    for node in ast.walk(tree):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, where) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}: a relative import"
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (ROOT / inner.replace(".", "/")).with_suffix(".py").exists()
                is_package = (ROOT / inner.replace(".", "/") / "__init__.py").exists()
                yield Import(inner if is_module or is_package else node.module, where)


def impure_calls(path: Path, tree: ast.Module) -> Iterator[str]:
    # A method or function of the module's own with such a name is not the builtin.
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            builtin = isinstance(node.func, ast.Name) and called in IMPURE_BUILTINS - own
            if builtin or called.removeprefix("datetime.") in IMPURE_CALLS:
                yield f"{path.relative_to(ROOT)}:{node.lineno} calls {called}"


def is_shell(module: str) -> bool:
    return below(module, SHELLS)


def test_pure_modules_have_no_input_output_clock_or_chance_of_their_own() -> None:
    """DESIGN, "Pure cores, thin shells"; C1: the same log gives the same state."""
    faults = []
    for module, path, tree in modules():
        if is_shell(module):
            continue
        allowed = {"random"} if below(module, SEEDED) else set()
        faults += [
            f"{where} imports {name}"
            for name, where in imports(path, tree)
            if name.split(".")[0] in IMPURE_MODULES - allowed
        ]
        if not below(module, SEEDED):
            faults += impure_calls(path, tree)
    assert not faults, "\n".join(faults)


def test_pure_modules_import_no_shell() -> None:
    faults = [
        f"{where} imports {name}"
        for module, path, tree in modules()
        if not is_shell(module)
        for name, where in imports(path, tree)
        if is_shell(name)
    ]
    assert not faults, "\n".join(faults)


def test_expressions_of_users_are_searched_by_one_module() -> None:
    """Python's `re` can't be interrupted; it is for our own patterns (settings, files, the command line)."""
    faults = [
        f"{where} imports {name}: see node.catalog.expressions"
        for module, path, tree in modules()
        if below(module, ("node",)) and not below(module, ("node.settings", "node.command_line"))
        for name, where in imports(path, tree)
        if below(name, ("re", "regex", "re2", "fnmatch"))
    ]
    assert not faults, "\n".join(faults)


def test_cluster_knows_nothing_of_node() -> None:
    faults = [
        f"{where} imports {name}"
        for module, path, tree in modules()
        if below(module, ("cluster",))
        for name, where in imports(path, tree)
        if below(name, ("node", "pamqp"))
    ]
    assert not faults, "\n".join(faults)


def test_the_raft_core_stands_alone() -> None:
    faults = [
        f"{where} imports {name}"
        for module, path, tree in modules()
        if below(module, (RAFT,))
        for name, where in imports(path, tree)
        if below(name, PACKAGES) and not below(name, (RAFT,))
    ]
    assert not faults, "\n".join(faults)


def test_the_product_does_not_import_its_simulators() -> None:
    faults = [
        f"{where} imports {name}"
        for module, path, tree in modules()
        if not below(module, SEEDED)
        for name, where in imports(path, tree)
        if below(name, SEEDED)
    ]
    assert not faults, "\n".join(faults)


def test_listed_shells_exist() -> None:
    """A name that is no longer there would excuse the next module that is called so."""
    known = {module for module, _, _ in modules()}
    assert [name for name in SHELLS if name not in known and not (ROOT / name.replace(".", "/")).is_dir()] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import time", True),
        ("import os.path", True),
        ("from random import randint", True),
        ("def f():\n    import socket", True),
        ("from datetime import datetime", False),
        ("import struct", False),
    ],
)
def test_the_reading_of_imports(source: str, fault: bool) -> None:
    found = {name.split(".")[0] for name, _ in imports(ROOT / "x.py", ast.parse(source))}
    assert bool(found & IMPURE_MODULES) == fault


def test_the_reading_of_calls() -> None:
    source = "a = datetime.datetime.now(UTC)\nb = open('x')\nc = self.open('x')\nd = datetime.fromtimestamp(0)\n"
    assert [fault.split()[-1] for fault in impure_calls(ROOT / "x.py", ast.parse(source))] == [
        "datetime.datetime.now",
        "open",
    ]
