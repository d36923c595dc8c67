"""A page of which a part, between two marks, is written by a program."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

END: Final = "<!-- end of figures -->"


def begin_mark(program: str) -> str:
    """The line after which the program's part begins."""
    return f"<!-- figures: written by {program} -->"


def replaced(text: str, program: str, lines: Sequence[str]) -> str:
    """The text with other lines between the program's marks. Raises ValueError if there are no marks."""
    begin = begin_mark(program)
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"no place for figures: {begin} ... {END}")
    return before + "\n".join([begin, "", *lines, "", END]) + after


def write_figures(page: Path, program: str, lines: Sequence[str]) -> None:
    """Put the figures in their place. Raises ValueError if the page has none."""
    try:
        page.write_text(replaced(page.read_text(), program, lines))
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from None
