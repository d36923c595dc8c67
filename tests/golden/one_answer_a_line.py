"""How recorded answers are written: one to a line, so that a difference between two recordings is a line, too."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def keep(answers: Mapping[str, Any], file: Path, write: bool) -> None:
    """Write them into the file, or only print them."""
    lines = [f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if write:
        file.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def keep_what_is_asked_for(record: Callable[[int], Mapping[str, Any]], file: Path) -> None:
    """Of a program that is given the port of a broker: record its answers, and with --write put them into the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    keep(record(options.port), file, options.write)
