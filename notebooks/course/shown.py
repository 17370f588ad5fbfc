"""Tables of the course's notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from IPython.display import Markdown, display


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Display a table; floats have three decimals, and columns after the first are on the right."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *map(cells, rows)]
    display(Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines)))


def cells(row: Sequence[object]) -> list[str]:
    """Return the cells of a row as text.

    >>> cells(["a", 2, 0.25])
    ['a', '2', '0.250']
    """
    return [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
