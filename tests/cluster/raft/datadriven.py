"""Reads the recorded transcripts: blocks of a directive, its input, and the answer it got.

    # a comment
    command key key=value key=(a, b)
    lines of input
    ----
    lines of output, up to an empty line

Where the output itself has empty lines it stands between two pairs of `----`.
"""

import os
import re
from pathlib import Path

ARGUMENT = re.compile(r"([^\s=()]+)(?:=(\([^)]*\)|\S+))?")


class Directive:
    """One command and what it is expected to answer."""

    def __init__(self, line: int, text: str, given: str, expected: str) -> None:
        self.line = line
        self.text = text
        self.given = given
        self.expected = expected
        words = ARGUMENT.findall(text)
        self.command: str = words[0][0]
        self.arguments: list[tuple[str, list[str]]] = [(key, split_values(value)) for key, value in words[1:]]

    def bare(self) -> list[str]:
        """The arguments that have no value."""
        return [key for key, values in self.arguments if not values]

    def values(self, key: str) -> list[str]:
        """All values given for a key."""
        return [value for name, values in self.arguments if name == key for value in values]

    def flag(self, key: str) -> bool:
        return self.values(key) == ["true"]

    def number(self, key: str, default: int = 0) -> int:
        values = self.values(key)
        return int(values[0]) if values else default

    def __repr__(self) -> str:
        return f"line {self.line}: {self.text}"


def split_values(value: str) -> list[str]:
    if not value.startswith("("):
        return [value] if value else []
    return [part.strip() for part in value[1:-1].split(",") if part.strip()]


def read_transcript(path: Path) -> list[Directive]:
    """All directives of a file, in order."""
    lines = path.read_text(encoding="utf-8").split("\n")
    directives = []
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if not line or line.startswith("#"):
            at += 1
            continue
        directive, at = _read_block(lines, at)
        directives.append(directive)
    return directives


def _read_block(lines: list[str], at: int) -> tuple[Directive, int]:
    start = at
    text = lines[at].strip()
    at += 1
    given = []
    while lines[at] != "----":
        given.append(lines[at])
        at += 1
    at += 1
    expected = []
    if at < len(lines) and lines[at] == "----":
        at += 1
        while lines[at : at + 2] != ["----", "----"]:
            expected.append(lines[at])
            at += 1
        at += 2
    else:
        while at < len(lines) and lines[at]:
            expected.append(lines[at])
            at += 1
    return Directive(start + 1, text, "\n".join(given), "\n".join(expected)), at


def transcript_folder() -> Path:
    """Where the transcripts lie, if they do: in `shared` beside the repository, or where the environment says."""
    given = os.environ.get("MAYFLY_RAFT_TRANSCRIPTS")
    if given:
        return Path(given)
    shared = os.environ.get("MAYFLY_SHARED")
    return (Path(shared) if shared else Path(__file__).resolve().parents[4] / "shared") / "raft-transcripts"


def transcripts(part: str) -> list[Path]:
    """The files of one part; none where the folder is missing."""
    return sorted((transcript_folder() / part).glob("*.txt"))
