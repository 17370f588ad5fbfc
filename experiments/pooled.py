"""One statement from several studies: each study's difference over seeds, and their mean.

A study counts once, whatever its number of seeds: its mean difference is one number, and the
interval is Student's t over these numbers. Weights by a study's own variance are not used, because
two or three seeds do not know it. Studies that share a base or a world are not independent, which
no interval says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.optimize import brentq

from experiments.launch import command_line, reported
from experiments.page import RAW, write_into
from experiments.study import HERE
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    Measure,
    as_markdown,
    by_seed,
    ends,
    seed_cells,
    values_of,
    with_interval,
)
from r1lit.files import Record, read_records
from r1lit.metrics import mean
from r1lit.metrics.seeds import Shift, paired_shift


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides of a study's committed rows.

    Args:
        study: its name, a folder of `experiments`.
        key: of a row, that names its side.
        ours: the value of ``key`` of one side.
        others: that of the side it is compared with.
        value: pass@1, or what else a row says; a row without it is left out.
        tokens: of a response at the end; None where rows do not say.
        form: of the value.
    """

    study: str
    key: str
    ours: str
    others: str
    value: Measure
    tokens: Measure | None = None
    form: str = ".3f"

    def sides(self) -> tuple[dict[int, Record], dict[int, Record]]:
        """Return the committed rows of either side that have the value, by seed.

        Raises:
            ValueError: if a side has none.
        """
        path = HERE / self.study / RAW
        records = read_records(path)
        found = []
        for side in (self.ours, self.others):
            rows = [r for r in records if r.get(self.key) == side]
            own = {r["seed"]: r for r in rows if self.value(r) is not None}
            if rows and not own:
                raise ValueError(f"{path}: no row of {self.key} {side!r} has the value compared")
            if not own:
                known = ", ".join(dict.fromkeys(str(r.get(self.key)) for r in records))
                raise ValueError(f"{path}: no row has {self.key} {side!r}; it has {known}")
            found.append(own)
        return found[0], found[1]

    def shift(self) -> Shift:
        """Return ours less others by the rule of every page."""
        ours, others = (list(side.values()) for side in self.sides())
        shift = by_seed(ours, others, self.value)
        assert shift is not None, f"{self.study} has too few seeds"
        return shift

    def row(self) -> list[str]:
        """Return the cells of text: the study, seeds, both means, and the responses' tokens."""
        sides = self.sides()
        cells = [f"[{self.study}](../{self.study}/README.md): `{self.ours}` less `{self.others}`"]
        cells.append(str(len(sides[0])))
        cells.append(" − ".join(_mean_cell(own, self.value, self.form) for own in sides))
        if self.tokens is None:
            return [*cells, "–"]
        return [*cells, " − ".join(_mean_cell(own, self.tokens, ".0f") for own in sides)]


def _mean_cell(runs: Mapping[int, Record], value: Measure, form: str) -> str:
    measured = values_of(runs.values(), value)
    return f"{mean(measured):{form}}" if measured else "–"


def other_measures(
    comparisons: Sequence[Comparison], measures: Mapping[str, tuple[str, str]]
) -> str:
    """Return the table of further numbers of the last evaluation, and of what they differ by.

    Args:
        comparisons: whose rows have whole evaluations.
        measures: by name the key of an evaluation and the format.
    """
    tables = []
    for name, (key, form) in measures.items():
        value = ends(key)[1]
        own = [replace(comparison, value=value, form=form) for comparison in comparisons]
        cells = seed_cells([comparison.shift() for comparison in own], form)
        rows = [[*c.row()[:3], *tested] for c, tested in zip(own, cells, strict=True)]
        tables.append(as_markdown(["study", "n seeds", name, *OVER_SEEDS], rows))
    return "\n\n".join(tables)


def over_studies(shifts: Sequence[Shift]) -> Shift:
    """Return the mean of the studies' differences, Student's t over studies."""
    return paired_shift([shift.mean for shift in shifts])


def overturned_by(shifts: Sequence[Shift]) -> tuple[float, float | None]:
    """Return what one further study must find for the mean to be 0, and for its interval to hold 0.

    Below the second number the interval over all studies holds 0; None if it does so even where
    the further study finds the mean of the others.
    """
    means = [shift.mean for shift in shifts]
    zero, middle = -sum(means), mean(means)

    def low(further: float) -> float:
        found = paired_shift([*means, further])
        return found.low if middle > 0 else -found.high

    return zero, float(brentq(low, zero, middle)) if low(middle) > 0 else None


def as_table(comparisons: Sequence[Comparison]) -> str:
    """Return the Markdown: a row a study, then the mean of all and what would overturn it."""
    shifts = [comparison.shift() for comparison in comparisons]
    rows = [
        [*comparison.row(), *cells]
        for comparison, cells in zip(comparisons, seed_cells(shifts), strict=True)
    ]
    headings = ["study", "n seeds", "pass@1", "tokens per response", *OVER_SEEDS]
    return "\n\n".join([as_markdown(headings, rows), RULE, _pooled(comparisons, shifts)])


def _pooled(comparisons: Sequence[Comparison], shifts: Sequence[Shift]) -> str:
    """Return the sentences on all studies together."""
    whole = over_studies(shifts)
    without = [
        f"{comparison.study} {with_interval(over_studies([*shifts[:i], *shifts[i + 1 :]]))}"
        for i, comparison in enumerate(comparisons)
    ]
    more = whole.seeds_to_settle()
    settled = (
        f"{more} more studies like these would settle it in four of five cases"
        if more
        else "the interval excludes 0"
    )
    zero, unclear = overturned_by(shifts)
    overturning = "the interval holds 0, also with one further study that finds the mean."
    if unclear is not None and whole.p_value < 0.05:
        overturning = f"with a further study that finds less than {unclear:+.3f}, it holds 0."
    elif unclear is not None:
        overturning = (
            "the interval holds 0 already; with a further study that finds the mean it would not,"
            f" with one that finds less than {unclear:+.3f} it still would."
        )
    return (
        f"**All {len(shifts)} studies, each counted once:** {with_interval(whole)}, 95 % interval"
        f" over studies (Student's t), p {whole.p_value:.2g}; {settled}.\n\n"
        f"Without one of them: {'; '.join(without)}.\n\n"
        f"**What would overturn it:** {overturning} One that finds {zero:+.3f} brings the mean"
        f" itself to 0. So many studies can see a mean of {whole.detectable():.3f} or more."
    )


@reported("experiments")
def make_page(name: str, about: str | None, report: Callable[[], str], args: Sequence[str]) -> int:
    """Fill in a study's README from the committed rows and print it; return the exit status."""
    parser = command_line(f"experiments {name}", about)
    parser.add_argument("--readme", type=Path, default=HERE / name, help="the folder of README.md")
    folder = parser.parse_args(args).readme
    table = report()
    write_into(folder / "README.md", table)
    print(table)
    return 0
