"""Salts, nonces and tokens can't be guessed: a node takes nothing random from a generator that has a seed."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FROM_THE_SYSTEM = ("SystemRandom",)


def seeded(source: str) -> Iterator[str]:
    """What a module uses of `random` that is not the system's generator."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            if node.attr not in FROM_THE_SYSTEM:
                yield f"line {node.lineno}: random.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            yield from (f"line {node.lineno}: {it.name}" for it in node.names if it.name not in FROM_THE_SYSTEM)
        elif isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: {it.name} as {it.asname}" for it in node.names if _is_hidden(it))


def _is_hidden(name: ast.alias) -> bool:
    return name.name in ("random", "numpy.random") and name.asname is not None


def test_all_that_is_random_comes_from_the_system() -> None:
    sources = [path for folder in ("cluster", "node", "mayfly") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 100
    faults = [f"{path.relative_to(ROOT)} {fault}" for path in sources for fault in seeded(path.read_text("utf-8"))]
    assert faults == []


def test_a_generator_with_a_seed_is_found() -> None:
    assert list(seeded("import random\nrandom.SystemRandom().random()")) == []
    assert list(seeded("import random\nsalt = random.randbytes(16)")) == ["line 2: random.randbytes"]
    assert list(seeded("from random import Random, SystemRandom")) == ["line 1: Random"]
    assert list(seeded("import random as dice")) == ["line 1: random as dice"]
