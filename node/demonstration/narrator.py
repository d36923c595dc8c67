"""Says what happens, with the time at which it happens, and keeps account of the promises."""

import time
from datetime import datetime
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Promise(NamedTuple):
    """Something that was promised, whether it was kept, what was measured, and whether that was within a time that a
    machine which is not busy allows."""

    text: str
    kept: bool
    measured: str
    in_time: bool = True


class Narrator:
    """Prints lines with local time in milliseconds; in colour on a terminal, plain elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        plain = Console(highlight=False)
        self.console = console or (plain if plain.is_terminal else Console(highlight=False, width=120))
        self.promises: list[Promise] = []
        self._started_s = time.monotonic()

    def scene(self, title: str) -> None:
        """Begin a part of the story."""
        self.console.print()
        self._line(Text(title, style="bold"))

    def say(self, text: str) -> None:
        """Tell what just happened."""
        self._line(Text(text))

    def promise(self, text: str, kept: bool, measured: str, in_time: bool = True) -> None:
        """Tell whether a promise was kept, and note it for the summary."""
        promise = Promise(text, kept, measured, in_time)
        self.promises.append(promise)
        self._line(Text.assemble(_verdict(promise), f"  {text}: {measured}"))

    @property
    def all_kept(self) -> bool:
        """Whether anything was promised and nothing was broken, or late."""
        return bool(self.promises) and all(promise.kept and promise.in_time for promise in self.promises)

    def summary(self) -> None:
        """A table of all promises."""
        table = Table(box=box.SIMPLE, title="What was promised, and what was measured", title_justify="left")
        table.add_column("")
        table.add_column("promise")
        table.add_column("measured")
        for promise in self.promises:
            table.add_row(_verdict(promise), Text(promise.text), Text(promise.measured))
        self.console.print()
        self.console.print(table)
        broken = sum(not promise.kept for promise in self.promises)
        late = sum(promise.kept and not promise.in_time for promise in self.promises)
        took = f"{time.monotonic() - self._started_s:.0f} s"
        if broken or late:
            self._line(
                Text(f"{broken} of {len(self.promises)} promises broken, {late} late, in {took}.", style="bold red")
            )
        else:
            self._line(Text(f"All {len(self.promises)} promises kept, in {took}.", style="bold green"))

    def _line(self, text: Text) -> None:
        clock = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
        self.console.print(Text.assemble((clock, "cyan"), "  ", text), soft_wrap=True)


def _verdict(promise: Promise) -> Text:
    if not promise.kept:
        return Text("BROKEN", style="bold red")
    return Text("kept", style="green") if promise.in_time else Text("LATE", style="bold yellow")
