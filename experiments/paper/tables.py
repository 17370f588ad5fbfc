"""Tables of numbers with errors, of one run or of several seeds of it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.tables import as_markdown as markdown_table
from r1lit.metrics import mean_and_error

Cell = tuple[float, float | None]
"""A number and its standard error; None: not known."""
Table = dict[str, dict[str, Cell]]
"""Row, column, cell; a cell that was not measured is missing."""
Tables = dict[str, Table]
"""By title."""


def combine(runs: Sequence[Tables]) -> Tables:
    """Return the mean over runs, with its standard error over runs; one run is left as it is.

    >>> a, b = ({"safety": {"R1": {"all": (value, 0.1)}}} for value in (0.25, 0.75))
    >>> combine([a, b])["safety"]["R1"]["all"]
    (0.5, 0.25)
    """
    if len(runs) == 1:
        return runs[0]
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for run in runs:
        for title, table in run.items():
            for row, cells in table.items():
                own = found.setdefault(title, {}).setdefault(row, {})
                for column, (value, _) in cells.items():
                    own.setdefault(column, []).append(value)
    return {
        title: {
            row: {column: mean_and_error(values) for column, values in cells.items()}
            for row, cells in table.items()
        }
        for title, table in found.items()
    }


def as_markdown(tables: Tables) -> str:
    """Return each table under its title, mean ± standard error."""
    blocks = []
    for title, table in tables.items():
        columns = list(dict.fromkeys(column for cells in table.values() for column in cells))
        rows = [
            [row, *(_said(cells[column]) if column in cells else "–" for column in columns)]
            for row, cells in table.items()
        ]
        blocks.append(f"**{title}**\n\n{markdown_table(['', *columns], rows)}")
    return "\n\n".join(blocks)


def _said(cell: Cell) -> str:
    value, error = cell
    form = ".3f" if abs(value) < 10 else ".1f" if abs(value) < 100 else ".0f"
    return f"{value:{form}}" if error is None else f"{value:{form}} ± {error:{form}}"
