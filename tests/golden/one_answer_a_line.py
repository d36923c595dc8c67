"""How recorded answers are written: one to a line, so that a difference between two recordings is a line, too."""

import json
from collections.abc import Mapping
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
