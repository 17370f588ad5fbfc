"""Cells and Markdown tables: means over seeds with their errors, and variants compared in pairs.

Two tests answer two questions. `all_pairs` is over seeds: would training anew, under other seeds,
show the difference again? `paired_table` is over problems too: would other problems show it, from
these very runs? A difference is worth a sentence when it stands on both legs. Every comparison of
trainings has the cells of `seed_cells`, under the headings `OVER_SEEDS` and above `RULE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from experiments.sweep import score_of
from r1lit.callbacks.keys import CONS_AT
from r1lit.files import Record
from r1lit.metrics import Difference, mean, mean_and_error, paired_difference
from r1lit.metrics.seeds import MOST_SEEDS, POWER, Shift, holm, paired_shift, shift_over_seeds

Measure = Callable[[Record], float | None]
"""A number of an evaluation or of a run, None where it was not measured."""
Column = tuple[str, Measure | Sequence[Measure], str]
"""A heading, what is read of a run (several numbers stand as a → b), and the format."""
SHOWN_PAIRS = 30
"""How many rows a table of all pairs has, those of the smallest p first."""
Shares = dict[str, float] | None
"""Of a run: by problem the share of right responses (`experiments.sweep.shares_of`)."""


def as_markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], num_text: int = 1) -> str:
    """Return a Markdown table: ``num_text`` columns of text, then numbers (right-aligned)."""
    alignment = "---|" * num_text + "---:|" * (len(headings) - num_text)
    head = " | ".join(headings).lstrip()  # an empty first heading is one space wide
    return "\n".join([f"| {head} |", f"|{alignment}", *(f"| {' | '.join(row)} |" for row in rows)])


def table_by(
    key: str,
    records: Sequence[Record],
    columns: Sequence[Column],
    first: str | None = None,
    num_text: int = 1,
) -> str:
    """Return the Markdown table: a row for each value of ``key``, mean ± standard error over runs.

    ``first`` is the heading of the first column, if not ``key``.
    """
    rows = [
        [str(name), str(len(own)), *cells_of(own, columns)]
        for name, own in group_by(key, records).items()
    ]
    headings = [key if first is None else first, "n seeds", *(column[0] for column in columns)]
    return as_markdown(headings, rows, num_text)


def cells_of(runs: Sequence[Record], columns: Sequence[Column]) -> list[str]:
    """Return the cells of the runs: of a column with several numbers a → b.

    So may its format be, ``mean .2f → .2f``, if it is not the same for all.
    """
    cells = []
    for _, values, form in columns:
        several = (values,) if callable(values) else values
        forms = form.split(" → ") * (1 if "→" in form else len(several))
        numbers = ([value(run) for run in runs] for value in several)
        cells.append(" → ".join(map(mean_cell, numbers, forms)))
    return cells


def group_by(key: str, results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the results by variant, arm or the like, in the order of their first appearance."""
    groups: dict[str, list[Record]] = {}
    for result in results:
        groups.setdefault(result[key], []).append(result)
    return groups


def means_by_problem(
    responses: Sequence[Record], value: Callable[[Record], float]
) -> dict[str, float]:
    """Return the mean of a number over each problem's responses, by uid, in their order."""
    return {
        uid: mean([value(response) for response in own])
        for uid, own in group_by("uid", responses).items()
    }


def mean_cell(values: Sequence[float | None], form: str) -> str:
    """Return mean ± standard error as a table shows it; those that are None or NaN do not count.

    With ``mean`` before the format there is no error.
    """
    present = [value for value in values if value is not None and not math.isnan(value)]
    if not present:
        return "–"
    average, error = mean_and_error(present)
    alone, form = form.startswith("mean "), form.removeprefix("mean ")
    return f"{average:{form}}" if error is None or alone else f"{average:{form}} ± {error:{form}}"


def number(*keys: str) -> Measure:
    """Return what reads a number of an evaluation; of nested ones, the outermost key comes first.

    >>> number("rewards", "process")({"rewards": {"process": 0.5}}), number("loss")({})
    (0.5, None)
    """
    *outer, last = keys

    def read(evaluation: Record) -> float | None:
        inner: Record | None = evaluation
        for key in outer:
            inner = (inner or {}).get(key)
        return (inner or {}).get(last)

    return read


def ends(*keys: str) -> tuple[Measure, Measure]:
    """Return what reads a number of a run's first and of its last evaluation."""
    return at_ends(number(*keys))


def at_ends(value: Measure) -> tuple[Measure, Measure]:
    """Return what reads a value of a run's first and of its last evaluation."""
    first, last = (lambda run, at=at: value(run["evaluations"][at]) for at in (0, -1))
    return first, last


def cons_at_most(evaluation: Record) -> float | None:
    """Return cons@k for the largest k of an evaluation."""
    ks = [int(key.removeprefix(CONS_AT)) for key in evaluation if key.startswith(CONS_AT)]
    return evaluation[f"{CONS_AT}{max(ks)}"] if ks else None


def is_measured(results: Sequence[Record], value: Measure) -> bool:
    """Return whether any evaluation of a run has a value."""
    return any(value(e) is not None for r in results for e in r["evaluations"])


def difference_cells(found: Difference | Shift, corrected: float, form: str = ".3f") -> list[str]:
    """Return the cells of a difference: with its 95 % interval, its p, and p after correction."""
    return [with_interval(found, f"+{form}"), f"{found.p_value:.2g}", f"{corrected:.2g}"]


def with_interval(found: Difference | Shift, form: str = "+.3f") -> str:
    """Return a difference with its 95 % interval."""
    return f"{found.mean:{form}} ({found.low:{form}} to {found.high:{form}})"


DIFFERENCE = ("difference, 95 % interval", "p", "p, Holm")
"""The headings of these cells."""
OVER_SEEDS = (*DIFFERENCE, "seen", "sign wrong", "more seeds")
"""The headings of `seed_cells`."""
RULE = (
    "Intervals are 95 % over seeds (Student's t): paired by seed where both sides have the same"
    " seeds, Welch's where not. A difference is *clear* if p is below 0.05 after Holm's correction"
    f" for the table. *Seen*: the smallest true difference that so many seeds find at p < 0.05 in"
    f" {100 * POWER:.0f} of 100 studies. *Sign wrong*: the probability that the true difference has"
    " the other sign (p / 2, flat prior). *More seeds*: how many more would find the measured"
    " difference so often, if it is the true one; 0: p is below 0.05 already."
)
"""The rule of every comparison of trainings, printed below its table."""


def tested_cells(found: Sequence[Difference | Shift | None], form: str = ".3f") -> list[list[str]]:
    """Return the cells of each difference, p after Holm's correction for all of them.

    Dashes stand for those that are None.
    """
    corrected = iter(holm([difference.p_value for difference in found if difference]))
    return [difference_cells(one, next(corrected), form) if one else ["–"] * 3 for one in found]


def seed_cells(found: Sequence[Shift | None], form: str = ".3f") -> list[list[str]]:
    """Return `tested_cells` of differences over seeds, and what so many seeds can tell.

    These are the difference that they can see, the probability that the sign is wrong, and how many
    more would settle it.
    """
    planned = [["–"] * 3 if one is None else planned_cells(one, form) for one in found]
    return [cells + own for cells, own in zip(tested_cells(found, form), planned, strict=True)]


def planned_cells(found: Shift, form: str = ".3f") -> list[str]:
    """Return what so many seeds can tell: *seen*, *sign wrong* and *more seeds* of `RULE`."""
    wrong = found.p_wrong_sign
    return [
        f"{found.detectable():{form}}",
        f"{wrong:.2g}" if wrong >= 0.001 else "< 0.001",
        more_seeds(found),
    ]


def more_seeds(found: Shift) -> str:
    """Return how many more seeds would settle a difference, as a table shows it."""
    more = found.seeds_to_settle()
    return f"> {MOST_SEEDS:,}" if more is None else str(more)


def seed_table(
    found: Sequence[tuple[Sequence[str], Shift | None]], first: Sequence[str], form: str = ".3f"
) -> str:
    """Return the Markdown table of differences over seeds, with the rule; nothing of no rows.

    Args:
        found: by row its cells of text, and the difference.
        first: the headings of the text.
        form: of the differences.
    """
    if not found:
        return ""
    cells = seed_cells([shift for _, shift in found], form)
    rows = [[*names, *own] for (names, _), own in zip(found, cells, strict=True)]
    return f"{as_markdown([*first, *OVER_SEEDS], rows, num_text=len(first))}\n\n{RULE}"


def by_seed(ours: Sequence[Record], others: Sequence[Record], value: Measure) -> Shift | None:
    """Return a number of our runs less that of others, by the rule (`shift_over_seeds`)."""
    ours_S, others_S = (
        {run["seed"]: number for run in side if (number := value(run)) is not None}
        for side in (ours, others)
    )
    return shift_over_seeds(ours_S, others_S)


def values_of(runs: Iterable[Record], value: Measure) -> list[float]:
    """Return a number of each run that has it, in their order."""
    return [number for run in runs if (number := value(run)) is not None]


def over_problems(own: Sequence[Shares], others: Sequence[Shares]) -> Difference | None:
    """Return the first runs less the others: each problem's share right, the mean over seeds.

    None where a run's shares are not known, or of other problems than the rest.
    """
    uids = sorted(own[0] or ()) if own and others else []
    if not uids or any(sorted(one or ()) != uids for one in (*own, *others)):
        return None
    a, b = ([mean([one[uid] for one in side if one]) for uid in uids] for side in (own, others))
    return paired_difference(a, b)


def paired_table(results: Sequence[Record], against: str | None = None) -> str:
    """Return the Markdown table: each variant's score less that of ``against``.

    Args:
        results: of finished points.
        against: a variant; the first with results if left out.

    Returns:
        A row a variant, paired by the seeds that both have, and below it p over problems after
        Holm's correction for as many comparisons; nothing if there is no pair.
    """
    seeds_of: dict[str, dict[int, Record]] = {}
    for result in results:
        seeds_of.setdefault(result["variant"], {})[result["seed"]] = result
    against = against or next(iter(seeds_of), None)
    if against is None or against not in seeds_of or len(seeds_of) < 2:
        return ""
    name, _ = score_of(results[0]["final"]) or ("score", 0.0)
    rows = []
    p_values: dict[str, float] = {}
    for variant, own in seeds_of.items():
        seeds = [seed for seed in own if seed in seeds_of[against] and variant != against]
        scores = [[score_of(runs[s]["final"]) for runs in (own, seeds_of[against])] for s in seeds]
        known = [a[1] - b[1] for a, b in scores if a and b and a[0] == b[0] == name]
        if not known:
            continue
        over_seeds = with_interval(paired_shift(known)) if len(known) > 1 else f"{known[0]:+.3f}"
        cells = [variant, str(len(known)), over_seeds]
        found = over_problems(*([side[s].get("shares") for s in seeds]
                                for side in (own, seeds_of[against])))  # fmt: skip
        rows.append([*cells, *_over_problems_cells(found)])
        if found:
            p_values[variant] = found.p_value
    if not rows:
        return ""
    headings = [f"less {against}", "n seeds", f"{name}, 95 % interval, seeds"]
    headings += ["95 % interval, problems"]
    table = as_markdown([*headings, "p, problems", "problems better, worse"], rows)
    if len(p_values) > 1:
        corrected = zip(p_values, holm(list(p_values.values())), strict=True)
        listed = ", ".join(f"{variant} {p_value:.2g}" for variant, p_value in corrected)
        table += (
            f"\n\nPaired by seed and by problem. p over problems after Holm's correction for"
            f" {len(p_values)} comparisons: {listed}."
        )
    return table


def _over_problems_cells(found: Difference | None) -> list[str]:
    if found is None:
        return ["–", "–", "–"]
    counts = f"{found.better}, {found.worse} of {found.num_problems}"
    return [f"{found.low:+.3f} to {found.high:+.3f}", f"{found.p_value:.2g}", counts]


def all_pairs(results: Sequence[Record]) -> str:
    """Return the differences in final score of every two variants as Markdown, clearest first.

    Each has the cells of `seed_cells`, p after Holm's correction for all pairs. ``SHOWN_PAIRS``
    have a row; below the table stands the rule. Variants of one seed are left out, and pairs that
    were evaluated on different problems or by different scores; nothing if no pair remains.
    """
    finals: dict[str, dict[int, float]] = {}
    measured: dict[str, set[str]] = {}  # the score's name, and problems
    for result in results:
        score = score_of(result["final"])
        if score is not None:
            finals.setdefault(result["variant"], {})[result["seed"]] = score[1]
            asked = measured.setdefault(result["variant"], set())
            asked.update((score[0], *(result.get("shares") or ())))
    several = [variant for variant, values in finals.items() if len(values) > 1]
    pairs = [
        (a, b, shift)
        for a, b in combinations(several, 2)
        if measured[a] == measured[b] and (shift := shift_over_seeds(finals[b], finals[a]))
    ]
    if not pairs:
        return ""
    shifts = [shift for *_, shift in pairs]
    num_clear = sum(p_value < 0.05 for p_value in holm([shift.p_value for shift in shifts]))
    said = f"All pairs, over seeds: {num_clear} of {len(pairs)} clear after Holm's correction."
    rows = [[f"{b} − {a}", *own] for (a, b, _), own in zip(pairs, seed_cells(shifts), strict=True)]
    order = sorted(range(len(rows)), key=lambda index: shifts[index].p_value)
    shown = [rows[index] for index in order[:SHOWN_PAIRS]]
    table = as_markdown(["comparison", *OVER_SEEDS], shown)
    left_out = len(rows) - SHOWN_PAIRS
    rest = f"\n\nThe other {left_out} pairs have a larger p." if left_out > 0 else ""
    return f"{said}\n\n{table}{rest}\n\n{RULE}"
