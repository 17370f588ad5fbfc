"""Replies side by side in a terminal, while they are generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

SHARE_OF_A_ROW = 6
"""Lines of the terminal that the frame of the columns takes."""


class Columns:
    """A column for each speaker. While replies come, the last lines of each are shown.

    On exit the whole replies are printed, so that they can be scrolled to.

    Args:
        console: a terminal.
        names: of the columns.
    """

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self.console, self.names = console, names
        self.texts = [Text(overflow="fold") for _ in names]
        self.notes = ["" for _ in names]
        self._live = Live(
            get_renderable=lambda: self.table(self._height()),
            console=console,
            transient=True,
            refresh_per_second=12,
        )

    def __enter__(self) -> Columns:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        self.console.print(self.table(None))

    def write(self, index: int) -> Callable[[str, bool], None]:
        """Return a function that adds a piece of text to a column; thinking is dim."""

        def add(text: str, thinks: bool) -> None:
            self.texts[index].append(text, "dim" if thinks else None)

        return add

    def end(self, index: int, note: str) -> None:
        """Write a line below a column."""
        self.notes[index] = note

    def table(self, height: int | None) -> Table:
        """Return the columns, with the last ``height`` lines of each if it is given."""
        table = Table(expand=True, show_lines=True)
        width = max(8, (self.console.width - 1) // len(self.names) - 3)
        for name in self.names:
            table.add_column(Text(name), ratio=1, overflow="fold")
        table.add_row(*(self._tail(text, width, height) for text in self.texts))
        if any(self.notes):
            table.add_row(*(Text(note, "cyan") for note in self.notes))
        return table

    def _height(self) -> int:
        return max(3, self.console.height - SHARE_OF_A_ROW - 2)

    def _tail(self, text: Text, width: int, height: int | None) -> Text:
        if height is None:
            return text
        lines = text.wrap(self.console, width)
        return Text("\n").join(lines[-height:])
