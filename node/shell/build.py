"""How this MayflyMQ was built: which of its modules run compiled."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import mayfly
from mayfly.node.version import VERSION

_NOTE: Final = Path(__file__).with_name("uncompiled.txt")
"""Written by the build (setup.py)."""
_FAILED: Final = "compiling failed:"


def compiled_modules() -> tuple[str, ...]:
    """Names of the project's modules that run compiled, sorted; empty when all of it is Python source.

    It looks at the folders the running code was imported from, so it tells the installed build and a
    source tree that comes first on the path apart.
    """
    root = Path(mayfly.__file__).resolve().parent.parent
    suffix = EXTENSION_SUFFIXES[0]
    names = set()
    for library in (root / "mayfly").rglob(f"*{suffix}"):
        module = library.relative_to(root).as_posix().removesuffix(suffix).replace("/", ".")
        if "__mypyc" not in module:
            names.add(module.removesuffix(".__init__"))
    return tuple(sorted(names))


def why_not_compiled() -> str:
    """What the build said of why it compiled nothing; "" if it did, or there was none."""
    try:
        return "" if compiled_modules() else _NOTE.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def failed_to_compile() -> bool:
    """Whether nothing is compiled though there was a C compiler, and nobody wanted it so."""
    return why_not_compiled().startswith(_FAILED)


def describe_version() -> str:
    """One line for `mayfly --version` and the log."""
    compiled = compiled_modules()
    if compiled:
        return f"{VERSION} (compiled: {len(compiled)} modules)"
    return f"{VERSION} (pure Python: {why_not_compiled() or 'nothing compiled'})"
