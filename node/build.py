"""How this MayflyMQ was built: which of its modules run compiled."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from node.version import VERSION

_PACKAGES: Final = ("cluster", "node")


def compiled_modules() -> tuple[str, ...]:
    """Names of the project's modules that run compiled, sorted; empty when all of it is Python source.

    It looks at the folders the running code was imported from, so it tells the installed build and a
    source tree that comes first on the path apart.
    """
    root = Path(__file__).parent.parent
    suffix = EXTENSION_SUFFIXES[0]
    names = set()
    for package in _PACKAGES:
        for library in (root / package).rglob(f"*{suffix}"):
            module = library.relative_to(root).as_posix().removesuffix(suffix).replace("/", ".")
            if "__mypyc" not in module:
                names.add(module.removesuffix(".__init__"))
    return tuple(sorted(names))


def describe_version() -> str:
    """One line for `mayfly --version` and the log."""
    compiled = compiled_modules()
    if compiled:
        return f"{VERSION} (compiled: {len(compiled)} modules)"
    return f"{VERSION} (pure Python: nothing compiled)"
