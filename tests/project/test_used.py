"""The product has no function, method, class or constant that only tests use: what nothing in it uses is listed here,
with a reason. Names are compared, not objects, and a method that shares its name is found nevertheless:

- `self.name` is a use of the own class, of those above and of those below it, and `Class.name` of that class;
- what a method of the same name does is none: it hands on what it was asked, and would be used itself;
- where a field of some object has the name as well, only what is called, or handed on, can be the method.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

UNUSED: Final = {
    "cluster/raft/raw_node.py:RawNode.campaign": "Raft as of etcd, whole: its tests begin elections",
    "cluster/raft/raw_node.py:RawNode.propose_batch": "Raft as of etcd, whole: its tests propose several at once",
    "cluster/raft/recorded_node.py:RecordedNode": "the simulator's members say what they do",
    "cluster/raft/recorded_node.py:RecordedNode.campaign": "as of RawNode",
    "cluster/raft/recorded_node.py:RecordedNode.propose_batch": "as of RawNode",
    "node/duties/catalog_spread.py:CatalogSpread.is_slow": "the simulator's probe asks whom a change need not wait for",
    "node/duties/quiet.py:Quiet.has_told": "the simulator's probe asks whom a change need not wait for",
    "node/shard/commands.py:RETURN": "shards obey this way of SETTLE, and no node gives it: tests do",
}
PLAIN: Final = {"property", "staticmethod", "classmethod", "dataclass", "abstractmethod"}
"""Decorators that don't register what they decorate."""
QUIET_BASES: Final = {
    "ABC", "Enum", "Exception", "Generic", "IntEnum", "NamedTuple", "Protocol", "ValueError", "msgspec.Struct",
}  # fmt: skip
"""Bases from elsewhere that call no method by its name."""


class Uses(ast.NodeVisitor):
    """What is used in some modules."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """That stand alone."""
        self.called: set[str] = set()
        """Attributes that are called or handed on."""
        self.read: set[str] = set()
        """Attributes."""
        self.fields: set[str] = set()
        """Attributes that are set."""
        self.of_class: dict[str, set[str]] = defaultdict(set)
        self.relatives: dict[str, set[str]] = defaultdict(set)
        """Class -> those directly above and below it."""
        self._class: str = ""
        self._methods: tuple[str, ...] = ()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in map(base_name, node.bases):
            if base not in QUIET_BASES:
                self.relatives[node.name].add(base)
                self.relatives[base].add(node.name)
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                self.fields.add(each.target.id)
        outer, self._class = self._class, node.name
        self.generic_visit(node)
        self._class = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._methods
        self._methods = (*outer, node.name) if self._class else outer
        self.generic_visit(node)
        self._methods = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets):
            self._hand_on([node.value])
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._hand_on([node.func, *node.args, *(keyword.value for keyword in node.keywords)])
        self.generic_visit(node)

    def _hand_on(self, what: list[ast.expr]) -> None:
        for each in what:
            if isinstance(each, ast.Attribute) and each.attr not in self._methods and not _of_whom(each):
                self.called.add(each.attr)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.fields.add(node.attr)
        elif whom := _of_whom(node):
            self.of_class[self._class if whom in ("self", "cls") else whom].add(node.attr)
        elif node.attr not in self._methods:
            self.read.add(node.attr)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.names |= {each.name for each in node.names if each.asname not in (None, each.name)}

    def has_method(self, of: str, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether this method of a class is used."""
        name = method.name
        if any(name in self.of_class[each] for each in self._family(of)):
            return True
        return name in self.called or (name in self.read and (name not in self.fields or _is_property(method)))

    def _family(self, name: str) -> set[str]:
        found, left = {name}, [name]
        while left:
            left += [each for each in self.relatives[left.pop()] if each not in found]
            found |= set(left)
        return found


def base_name(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0]


def _of_whom(node: ast.Attribute) -> str:
    """`self`, `cls` or a class, where it is said of whom it is an attribute; "": it is not."""
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    return name if name in ("self", "cls") or (name[:1].isupper() and not name.isupper()) else ""


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    return {ast.unparse(each).partition("(")[0] for each in node.decorator_list}


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "property" in _decorators(node)


def unused_in_class(node: ast.ClassDef, uses: Uses, known: set[str]) -> Iterator[str]:
    """Methods. Those of a class with a base from elsewhere may be called there."""
    if any(name not in known | QUIET_BASES for name in map(base_name, node.bases)):
        return
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or each.name.startswith("__"):
            continue
        if _decorators(each) <= PLAIN and not uses.has_method(node.name, each):
            yield f"{node.name}.{each.name}"


def top_names(node: ast.stmt) -> Iterator[str]:
    """What a statement of a module defines, but for what a decorator registers."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if _decorators(node) <= PLAIN:
            yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for each in ast.walk(target):
                if isinstance(each, ast.Name) and not each.id.startswith("__"):
                    yield each.id


def unused(texts: dict[str, str]) -> set[str]:
    trees = {path: ast.parse(text) for path, text in texts.items()}
    uses = Uses()
    for tree in trees.values():
        uses.visit(tree)
    classes = {
        path: [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)] for path, tree in trees.items()
    }
    known = {each.name for of in classes.values() for each in of}
    found = set()
    for path, tree in trees.items():
        names = {name for node in tree.body for name in top_names(node)}
        found |= {f"{path}:{name}" for name in names - uses.names - uses.read - uses.called}
        found |= {f"{path}:{name}" for each in classes[path] for name in unused_in_class(each, uses, known)}
    return found


def test_everything_in_the_product_is_used_by_it() -> None:
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top in ("cluster", "node")
        for path in (ROOT / top).rglob("*.py")
        if path.parent.name != "rpc"
    }
    assert unused(texts) == set(UNUSED)


def test_the_finding_of_what_is_unused() -> None:
    text = "def a():\n    return b()\ndef b(): ...\nclass C:\n    def d(self): ...\n"
    text += "    @e.command()\n    def f(self): ...\nG = 1\nH = G\n"
    assert unused({"x.py": text}) == {"x.py:a", "x.py:C", "x.py:C.d", "x.py:H"}


def test_a_method_that_shares_its_name_is_found() -> None:
    inner = "class Inner:\n    def size(self): ...\n"
    outer = "class Outer:\n    def size(self):\n        return self.inner.size()\n"
    use = "print(Inner(), Outer())\n"
    assert unused({"x.py": inner + outer + use}) == {"x.py:Inner.size", "x.py:Outer.size"}
    assert not unused({"x.py": inner + outer + use + "Outer().size()\n"})
    # A field has the name, too.
    field = "class Row:\n    size: int\nif Row().size: ...\n"
    assert unused({"x.py": inner + field + "print(Inner())\n"}) == {"x.py:Inner.size"}
    assert not unused({"x.py": inner + field + "print(Inner().size)\n"})
    # Its own class, and those above and below, are the ones that `self` may be.
    other = "class Other(Above):\n    def look(self):\n        return self.size()\nOther().look()\n"
    assert unused({"x.py": inner + other.replace("(Above)", "") + "Inner()\n"}) == {"x.py:Inner.size"}
    assert not unused({"x.py": inner + other.replace("Above", "Inner")})
    # Whoever is a part of something else may be called from there.
    assert not unused({"x.py": inner.replace("Inner", "Inner(asyncio.Protocol)") + "Inner()\n"})
