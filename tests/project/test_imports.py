"""Which folder is pure, and which may import which. One table says both; no module is named by itself.

A pure folder takes input and returns output: no sockets, disks, clocks, asyncio, threads or randomness. A folder of
tests' worlds is pure but for chance, which comes from a seed. All else is a shell.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

PURE, SEEDED, SHELL = "pure", "seeded", "shell"


class Folder(NamedTuple):
    """What a folder is, and which other folders it may import; what it says holds for the folders below it, unless they
    have a row of their own."""

    kind: str
    imports: tuple[str, ...] = ()


_CONSTANTS: Final = ("cluster", "node")
"""The files beside the folders: limits, versions, kinds. Everybody in the product may import those below him."""

FOLDERS: Final[dict[str, Folder]] = {
    "cluster": Folder(PURE),
    "cluster/raft": Folder(PURE),
    "cluster/log": Folder(PURE, ("cluster/raft",)),
    "cluster/group": Folder(PURE, ("cluster/log", "cluster/raft")),
    "cluster/host": Folder(PURE, ("cluster/group", "cluster/log", "cluster/raft")),
    "cluster/store": Folder(SHELL, ("cluster/log", "cluster/raft")),
    "cluster/rpc": Folder(SHELL),
    "cluster/transport": Folder(SHELL, ("cluster/host", "cluster/log", "cluster/raft", "cluster/rpc")),
    "node": Folder(PURE),
    "node/amqp": Folder(PURE),
    "node/shard": Folder(PURE, ("cluster/group", "node/shard/snapshot")),
    "node/shard/snapshot": Folder(PURE, ("node/shard",)),
    "node/catalog": Folder(PURE, ("cluster/group", "cluster/host", "node/amqp", "node/shard")),
    "node/oauth": Folder(PURE, ("node/catalog",)),
    "node/dead_letter": Folder(PURE, ("node/amqp", "node/catalog", "node/shard")),
    "node/recurrence": Folder(PURE, ("node/amqp", "node/shard")),
    "node/upstream": Folder(PURE, ("node/amqp",)),
    "node/broker": Folder(
        PURE,
        (
            "node/amqp", "node/broker/operations", "node/catalog", "node/dead_letter", "node/oauth", "node/recurrence",
            "node/shard",
        ),
    ),
    "node/broker/operations": Folder(PURE, ("node/amqp", "node/broker", "node/catalog", "node/shard")),
    "node/duties": Folder(
        PURE,
        (
            *("cluster/group", "cluster/host", "node/amqp", "node/catalog", "node/dead_letter", "node/recurrence"),
            *("node/shard", "node/upstream"),
        ),
    ),
    "node/transient": Folder(PURE, ("cluster/group", "node/broker", "node/catalog", "node/duties", "node/shard")),
    "node/membership": Folder(PURE, ("cluster/host", "node/catalog")),
    "node/engine": Folder(
        PURE,
        (
            *("cluster/group", "cluster/host", "cluster/log", "cluster/raft"),
            *("node/amqp", "node/broker", "node/catalog", "node/dead_letter", "node/duties", "node/membership"),
            *("node/shard", "node/transient"),
        ),
    ),
    "node/settings": Folder(SHELL, ("node/broker", "node/oauth")),
    "node/operating/ports": Folder(PURE, ("node/catalog", "node/shard")),
    "node/operating/views": Folder(
        PURE,
        (
            *("cluster/group", "node/amqp", "node/broker", "node/catalog", "node/dead_letter", "node/duties"),
            *("node/engine", "node/operating/ports", "node/recurrence", "node/shard"),
        ),
    ),
    "node/operating/definitions": Folder(PURE, ("node/catalog", "node/operating/views")),
    "node/operating": Folder(
        SHELL,
        (
            *("node/amqp", "node/broker", "node/catalog", "node/engine", "node/operating/definitions"),
            *("node/oauth", "node/operating/ports", "node/operating/views", "node/shard"),
        ),
    ),
    "node/http": Folder(
        SHELL,
        ("node/broker", "node/catalog", "node/oauth", "node/operating/ports", "node/settings", "node/shard"),
    ),
    "node/shell": Folder(
        SHELL,
        (
            *("cluster/group", "cluster/host", "cluster/log", "cluster/raft", "cluster/store", "cluster/transport"),
            *("node/amqp", "node/broker", "node/catalog", "node/duties", "node/engine", "node/http"),
            *("node/membership", "node/oauth", "node/operating", "node/operating/definitions", "node/operating/ports"),
            *("node/operating/views", "node/settings", "node/upstream"),
        ),
    ),
    "node/local_nodes": Folder(SHELL, ("cluster/store", "node/settings", "node/shell")),
    "node/demonstration": Folder(SHELL, ("node/local_nodes", "node/settings", "node/shell")),
    "node/command_line": Folder(
        SHELL,
        (
            *("cluster/log", "cluster/store", "node/demonstration", "node/local_nodes", "node/operating/ports"),
            *("node/settings", "node/shard", "node/shell"),
        ),
    ),
    "mayfly": Folder(SHELL, ("node/command_line",)),
    "simulation": Folder(SEEDED),
    "simulation/outsider/judging": Folder(PURE),
}
"""The product's folders, those below first, and at the end the worlds for tests, which may import anything pure."""

CIRCLES: Final = {
    frozenset({"node/broker", "node/broker/operations"}),
    frozenset({"node/shard", "node/shard/snapshot"}),
}
"""Of folders that import each other. A folder with one inside it: one file of the outer folder hands over to the inner
(methods, `handlers.py`; restoring, `shard.py`), whose files work on the outer one's objects."""

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
IN_MEMORY: Final = frozenset({"io.BytesIO"})
"""Of such modules, but no input or output."""
IMPURE_CALLS: Final = frozenset({"datetime.now", "datetime.utcnow", "datetime.today", "date.today"})
IMPURE_BUILTINS: Final = frozenset({"open", "input", "print", "breakpoint"})
# Programs beside the worlds: they read arguments, print, and share the work between processes.
PROGRAMS: Final = frozenset({"__main__.py", "runner.py", "soak.py", "totals.py", "with_installed.py"})


class Import(NamedTuple):
    """One imported module, in a file and line."""

    module: str
    where: str


class Module(NamedTuple):
    """A file of the tree."""

    path: Path
    folder: str
    """The row of the table that it belongs to."""
    tree: ast.Module
    imports: tuple[Import, ...]


def folder_of(path: str) -> str:
    """The row for a file, or for a module as a path: that of the nearest folder around it."""
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in FOLDERS:
            return "/".join(parts[:length])
    raise LookupError(path)


@functools.cache
def modules() -> list[Module]:
    paths = [
        path
        for top in sorted({folder.split("/")[0] for folder in FOLDERS})
        for path in sorted((ROOT / top).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(("mayfly/node/", "mayfly/cluster/"))
    ]
    read = []
    for path in paths:
        tree = ast.parse(path.read_text(), str(path))
        read.append(Module(path, folder_of(path.parent.relative_to(ROOT).as_posix()), tree, (*imports(path, tree),)))
    return read


def imports(path: Path, tree: ast.Module) -> Iterator[Import]:
    """Every import, wherever it stands, in annotations alone, too; of `from package import module` the module, where it
    is one."""
    for node in ast.walk(tree):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, where) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}: a relative import"
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in IN_MEMORY:
                    continue
                yield Import(inner if is_a_module(inner) else node.module, where)


@functools.cache
def is_a_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def own(module: str) -> str:
    """A module of the tree as a path below its root; "" for a foreign one."""
    name = module.removeprefix("mayfly.").replace(".", "/")
    return name if name.split("/")[0] in ("cluster", "node", "mayfly", "simulation") else ""


def own_imports() -> Iterator[tuple[Module, str, str]]:
    """What each file imports of the tree: the file, the module as a path, and where it says so."""
    for module in modules():
        for name, where in module.imports:
            if own(name):
                yield module, own(name), where


def impure_calls(path: Path, tree: ast.Module) -> Iterator[str]:
    # A method or function of the module's own with such a name is not the builtin.
    own_names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            builtin = isinstance(node.func, ast.Name) and called in IMPURE_BUILTINS - own_names
            if builtin or called.removeprefix("datetime.") in IMPURE_CALLS:
                yield f"{path.relative_to(ROOT)}:{node.lineno} calls {called}"


def test_pure_folders_have_no_input_output_clock_or_chance_of_their_own() -> None:
    """DESIGN, "Pure cores, thin shells"; C1: the same log gives the same state."""
    faults = []
    for module in modules():
        kind = FOLDERS[module.folder].kind
        if kind == SHELL or (kind == SEEDED and module.path.name in PROGRAMS):
            continue
        allowed = {"random"} if kind == SEEDED else set()
        faults += [
            f"{where} imports {name}"
            for name, where in module.imports
            if name.split(".")[0] in IMPURE_MODULES - allowed
        ]
        if kind == PURE:
            faults += impure_calls(module.path, module.tree)
    assert not faults, "\n".join(faults)


def test_folders_import_what_the_table_says() -> None:
    """And all that the table says: a permission that nobody needs would hide the next fault."""
    faults, needed = [], set()
    for module, name, where in own_imports():
        here, there = module.folder, folder_of(name)
        if here == there or FOLDERS[here].kind == SEEDED:
            continue
        needed.add((here, there))
        below = there == "mayfly" or (there in _CONSTANTS and here.startswith((there, "node", "mayfly")))
        if not below and there not in FOLDERS[here].imports:
            faults.append(f"{where} imports {name}")
    assert not faults, "\n".join(faults)
    said = {(here, there) for here, row in FOLDERS.items() for there in row.imports}
    assert said <= needed, f"nobody needs {sorted(said - needed)}"


def test_pure_folders_import_no_shell() -> None:
    wrong = [
        f"{here} imports {there}"
        for here, row in FOLDERS.items()
        for there in row.imports
        if row.kind == PURE and FOLDERS[there].kind != PURE
    ]
    assert not wrong, "\n".join(wrong)
    faults = [
        f"{where} imports {name}"
        for module, name, where in own_imports()
        if FOLDERS[module.folder].kind == SEEDED and FOLDERS[folder_of(name)].kind == SHELL
    ]
    assert not faults, "\n".join(faults)


def test_no_folder_imports_one_that_imports_it() -> None:
    arrows = {here: set(row.imports) for here, row in FOLDERS.items()}
    assert circles(arrows) == CIRCLES


def test_no_file_imports_one_that_imports_it() -> None:
    """For annotations neither."""
    arrows: dict[str, set[str]] = {}
    for module, name, _ in own_imports():
        here = module.path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__")
        arrows.setdefault(here, set()).add(name)
    found = circles(arrows)
    assert not found, "\n".join(str(sorted(circle)) for circle in found)


def circles(arrows: dict[str, set[str]]) -> set[frozenset[str]]:
    """The greatest sets of places from each of which an arrow's way leads to each (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(place: str) -> None:
        index[place] = low[place] = len(index)
        stack.append(place)
        for there in arrows.get(place, ()):
            if there not in index:
                visit(there)
                low[place] = min(low[place], low[there])
            elif there in stack:
                low[place] = min(low[place], index[there])
        if low[place] == index[place]:
            start = stack.index(place)
            circle = stack[start:]
            del stack[start:]
            if len(circle) > 1:
                found.add(frozenset(circle))

    for place in list(arrows):
        if place not in index:
            visit(place)
    return found


def test_the_finding_of_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {frozenset("bc")}
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()


def test_expressions_of_users_are_searched_by_one_module() -> None:
    """Python's `re` can't be interrupted; it is for our own patterns (settings, files, the command line)."""
    may = ("node/settings", "node/command_line", "node/local_nodes")
    faults = [
        f"{where} imports {name}: see node.catalog.expressions"
        for module in modules()
        if module.folder.startswith("node") and module.folder not in may
        for name, where in module.imports
        if name.split(".")[0] in ("re", "regex", "re2", "fnmatch")
    ]
    assert not faults, "\n".join(faults)


def test_amqp_is_not_known_below_the_node() -> None:
    faults = [
        f"{where} imports {name}"
        for module in modules()
        if module.folder.startswith("cluster")
        for name, where in module.imports
        if name.split(".")[0] == "pamqp"
    ]
    assert not faults, "\n".join(faults)


def test_consensus_is_used_through_its_face_alone() -> None:
    """What is behind `RawNode` changes with the core alone. Tests of `cluster/raft` look at it, no product does."""
    exported = names_exported(ROOT / "cluster/raft/__init__.py")
    faults = [
        f"{module.path.relative_to(ROOT)}:{fault}"
        for module in modules()
        if module.folder != "cluster/raft"
        for fault in looks_behind_raw_node(module.tree, exported)
    ]
    assert not faults, "\n".join(faults)


def names_exported(package: Path) -> set[str]:
    for node in ast.parse(package.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise LookupError(package)


def looks_behind_raw_node(tree: ast.Module, exported: set[str]) -> Iterator[str]:
    """Imports of more than the package exports, and attributes of what a `RawNode` keeps to itself."""
    package = "mayfly.cluster.raft"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"{node.lineno} imports {alias.name}" for alias in node.names if alias.name.startswith(package))
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (f"{node.lineno} imports {alias.name}" for alias in node.names if alias.name not in exported)
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
            yield f"{node.lineno} imports {node.module}"
        elif isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr == "raft"):
            holder = ast.unparse(node.value).split(".")[-1]
            if holder in ("raw", "_raw"):
                yield f"{node.lineno} uses {ast.unparse(node)}"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from mayfly.cluster.raft import RawNode", False),
        ("from mayfly.cluster.raft import step", True),
        ("from mayfly.cluster.raft.messages import Entry", True),
        ("import mayfly.cluster.raft.raft", True),
        ("group.raw.leads", False),
        ("frame.raft.append(message)", False),
        ("group.raw.raft.term", True),
        ("raft = raw.raft", True),
        ("group.raw._raft", True),
        ("member.raw._known_term", True),
    ],
)
def test_the_reading_of_what_is_behind_raw_node(source: str, fault: bool) -> None:
    assert bool([*looks_behind_raw_node(ast.parse(source), {"RawNode"})]) == fault


def test_every_folder_has_a_row_and_every_row_a_folder() -> None:
    """A folder without one would count as a part of the folder around it."""
    there = {
        path.parent.relative_to(ROOT).as_posix()
        for module in modules()
        for path in (module.path,)
        if not path.relative_to(ROOT).as_posix().startswith("simulation/")
    }
    assert there == {folder for folder in FOLDERS if not folder.startswith("simulation")}


def test_beside_the_folders_are_only_constants() -> None:
    for top in _CONSTANTS:
        beside = {path.name for path in (ROOT / top).glob("*.py")}
        assert beside <= {
            *("__init__.py", "content_header.py", "limits.py", "notice_kinds.py", "numbers.py", "version.py"),
            "versions.py",
        }


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
