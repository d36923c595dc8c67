"""The sources that specifications have to refuse are broken where they say, as soon as the product changes there."""

from importlib import import_module
from pkgutil import iter_modules

from tests import specifications
from tests.bugs.bug import ROOT, Bug


def broken_sources() -> dict[tuple[str, str], Bug]:
    """All bugs in the tables of this package, by path and name."""
    found: dict[tuple[str, str], Bug] = {}
    for module in iter_modules(specifications.__path__):
        if not module.name.startswith("test_"):
            for table in vars(import_module(f"{specifications.__name__}.{module.name}")).values():
                for row in table if isinstance(table, list | tuple) else ():
                    bug = getattr(row, "bug", row)
                    if isinstance(bug, Bug):
                        found[bug.path, bug.name] = bug
    return found


def test_the_place_of_each_broken_source_is_there() -> None:
    bugs = broken_sources()
    assert len(bugs) > 100
    for bug in bugs.values():
        text = (ROOT / bug.path).read_text(encoding="utf-8")
        assert bug.in_text(text) != text, f"{bug} changes nothing"
