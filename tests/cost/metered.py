"""Counts the steps of code: a copy of some packages that says what it does, the same number on every machine.

A *step* is a function entered, a turn of a loop or of a comprehension, and, for what is done in C, each element that a
call looks at or copies: `sorted(queues)` costs as many as there are queues, `deque.remove` as many as are in it. What
is not counted: moving pointers in memory (`list.insert` costs a sixty-fourth of the list), packing and unpacking of
octets, and searching in text.

The copy is made of the source, whether the package itself is compiled or not, and nobody else sees it.
"""

from __future__ import annotations

import ast
import bisect
import heapq
import importlib
import importlib.abc
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_POINTERS_MOVED_IN_A_STEP: Final = 64
_SIZED: Final = (list, tuple, dict, set, frozenset, deque)
_VALUES: Final[type] = type({}.values())
_COUNTED: Final = frozenset((*_SIZED, _VALUES, type({}.keys()), type({}.items())))
_LOOKS_AT_ALL: Final[frozenset[object]] = frozenset(
    (list, tuple, dict, set, frozenset, deque, sorted, sum, min, max, any, all, heapq.heapify)
)
_COPIES_ARGUMENTS: Final = frozenset(("extend", "update", "join", "fromkeys", "extendleft"))
_LOOKS_AT_ITSELF: Final = frozenset(("remove", "index", "count", "copy", "sort", "reverse"))
_GOES_DOWN: Final[frozenset[object]] = frozenset(
    (heapq.heappush, heapq.heappop, heapq.heapreplace, bisect.insort, bisect.bisect_left, bisect.bisect_right)
)
_FREE: Final = frozenset(("super", "isinstance", "len", "range", "Struct", "cast", "TypeVar"))


def _imported_from() -> list[Path]:
    spec = importlib.util.find_spec("mayfly")
    return [] if spec is None else [Path(place).parent for place in spec.submodule_search_locations or ()]


_PLACES: Final = (*_imported_from(), _REPOSITORY)


def source(*parts: str) -> Path:
    """A file or folder of the source: of the packages that are imported, where they have their source with them."""
    for place in _PLACES:
        path = place.joinpath(*parts)
        if path.exists():
            return path
    return _REPOSITORY.joinpath(*parts)


class Meter:
    """How many steps were made since it was set to 0."""

    def __init__(self) -> None:
        self.steps = 0

    # What the copy calls

    def tick(self) -> None:
        """A function is entered, or a loop takes a turn."""
        self.steps += 1

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """The elements that a comprehension goes through."""
        for item in items:
            self.steps += 1
            yield item

    def whole(self, value: Any) -> Any:
        """Something that is copied, added or searched as a whole."""
        if type(value) in _COUNTED:
            self.steps += len(value)
        return value

    def searched(self, value: Any) -> Any:
        """Something that is asked whether it has an element."""
        return self.whole(value) if type(value) in (list, tuple, deque, _VALUES) else value

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """A call. What it looks at is counted before: it may be gone afterwards."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, _SIZED):
            self._method(owner, function.__name__, arguments)
        elif function in _LOOKS_AT_ALL:
            for argument in arguments:
                self.whole(argument)
        elif function in _GOES_DOWN:
            size = len(arguments[0])
            self.steps += size.bit_length()
            if function is bisect.insort:
                self.steps += size // _POINTERS_MOVED_IN_A_STEP
        return function(*arguments, **named)

    def _method(self, owner: Any, name: str, arguments: tuple[Any, ...]) -> None:
        if name in _LOOKS_AT_ITSELF:
            self.whole(owner)
        elif name in _COPIES_ARGUMENTS:
            for argument in arguments:
                self.whole(argument)
        elif name in ("insert", "pop") and arguments and isinstance(owner, list):
            self.steps += len(owner) // _POINTERS_MOVED_IN_A_STEP
        elif name == "insert" and isinstance(owner, deque):
            self.steps += len(owner)


class _Counting(ast.NodeTransformer):
    """Puts the meter's calls into a module."""

    def _use(self, name: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name("__meter__", ast.Load()), name, ast.Load()), list(arguments), [])

    def _tick(self) -> ast.stmt:
        return ast.Expr(self._use("tick"))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Not its decorators and annotations."""
        node.body = [self.visit(each) for each in node.body]
        documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        node.body.insert(1 if documented else 0, self._tick())
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Only methods: fields and their defaults are made once."""
        node.body = [self.visit(each) if isinstance(each, ast.FunctionDef) else each for each in node.body]
        return node

    def _visit_loop(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, self._tick())
        return node

    def visit_For(self, node: ast.For) -> Any:
        """A loop over something."""
        return self._visit_loop(node)

    def visit_While(self, node: ast.While) -> Any:
        """Any other loop."""
        return self._visit_loop(node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        node.iter = self._use("each", node.iter)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Name) and function.id in _FREE:
            return node
        made = self._use("call", function, *node.args)
        made.keywords = node.keywords
        return made

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            return self._use("whole", node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self._use("whole", node) if isinstance(node.op, ast.Add | ast.BitOr) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        node.value = self._use("whole", node.value)
        return node

    def visit_Starred(self, node: ast.Starred) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._use("whole", node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            node.comparators[0] = self._use("searched", node.comparators[0])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Not the annotation."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, path: Path, meter: Meter | None) -> None:
        self._path = path
        self._meter = meter

    def get_source(self, fullname: str) -> str:
        return self._path.read_text(encoding="utf-8")

    def is_package(self, fullname: str) -> bool:
        return self._path.name == "__init__.py"

    def get_code(self, fullname: str) -> CodeType:
        tree: ast.Module = ast.parse(self.get_source(fullname))
        if self._meter is not None:
            tree = _Counting().visit(tree)
        return compile(ast.fix_missing_locations(tree), str(self._path), "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__meter__"] = self._meter
        exec(self.get_code(module.__name__), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, packages: tuple[str, ...], beside: tuple[str, ...], meter: Meter) -> None:
        self._packages = packages
        self._beside = beside
        self._meter = meter

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        is_metered = _is_in(fullname, self._packages)
        if not (is_metered or _is_in(fullname, self._beside)):
            return None
        *parents, name = fullname.split(".")
        place = source(*parents, name) if source(*parents, name).is_dir() else source(*parents, f"{name}.py")
        file = place / "__init__.py" if place.is_dir() else place
        if not file.exists():
            return None
        loader = _Loader(file, self._meter if is_metered else None)
        spec = importlib.util.spec_from_loader(fullname, loader, origin=str(file))
        if spec is not None and place.is_dir():
            spec.submodule_search_locations = [str(place)]
        return spec


def _is_in(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


class MeteredCopy:
    """The packages once more, with a meter in them; those ``beside`` them once more as they are, to use the copy."""

    def __init__(self, *packages: str, beside: tuple[str, ...] = ()) -> None:
        self.meter = Meter()
        self._modules: dict[str, ModuleType] = {}
        self._packages = (*packages, *beside)
        self._finder = _Finder(packages, beside, self.meter)

    def module(self, name: str) -> Any:
        """A module of the copy."""
        known = {each: module for each, module in sys.modules.items() if _is_in(each, self._packages)}
        for each in known:
            del sys.modules[each]
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self._finder)
        try:
            return importlib.import_module(name)
        finally:
            sys.meta_path.remove(self._finder)
            for each in [each for each in sys.modules if _is_in(each, self._packages)]:
                self._modules[each] = sys.modules.pop(each)
            sys.modules.update(known)
            for each, module in known.items():
                parent, _, child = each.rpartition(".")
                if parent in sys.modules:
                    setattr(sys.modules[parent], child, module)

    def cost(self, act: Callable[[], object]) -> int:
        """The steps that something takes. It has to come to the copy: what is measured elsewhere costs nothing."""
        self.meter.steps = 0
        act()
        assert self.meter.steps, f"nothing of {', '.join(self._packages)} was called"
        return self.meter.steps
