"""Page of wrong verdicts: what a verifier's known error rates do to the true accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    Column,
    Measure,
    as_markdown,
    by_seed,
    ends,
    group_by,
    seed_cells,
    table_by,
    values_of,
)
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean, mean_and_error
from r1lit.metrics.seeds import paired_shift

before, final = ends("pass_at_1")
CONTROL = "none"
REWARD = "mistaken_verdict"
RATES = (25, 50, 75)
ALIKE = 0.05
"""Of pass@1: a difference that matters to nobody here."""
KINDS = {
    "none": "no mistakes",
    "fp": "random false positives",
    "fn": "random false negatives",
    "both": "random, both",
}
"""Of variants whose mistakes are random for each response, by what is before the first hyphen."""


def rates(responses: Sequence[Record]) -> dict[str, float | None]:
    """Return the shares of wrong responses that are paid and of right ones that are not."""
    paid: dict[bool, list[float]] = {False: [], True: []}
    for response in responses:
        paid[response["value"] > 0].append(response["rewards"][REWARD])
    wrong, right = paid[False], paid[True]
    return {
        "false_positives": mean(wrong) if wrong else None,
        "false_negatives": 1 - mean(right) if right else None,
    }


def read(study: Study) -> list[Record]:
    """Return each finished point with its error rates in the first and the last evaluation."""
    found = []
    for result, folder in study.sweep().runs():
        held_out = group_by("iteration", read_records(folder / "responses.jsonl"))
        ends_of_run = [held_out[step] for step in (min(held_out), max(held_out))]
        kept = {key: result[key] for key in ("variant", "seed", "shares", "seconds")}
        evaluations = [
            {key: e[key] for key in ("iteration", "pass_at_1", "format", "response_length_tokens")}
            for e in result["evaluations"]
        ]
        found.append({**kept, "evaluations": evaluations, "rates": [rates(e) for e in ends_of_run]})
    return found


def as_table(results: Sequence[Record]) -> str:
    """Return a row a variant: rates, accuracy and length, before and after."""

    def rate(name: str) -> tuple[Measure, Measure]:
        return lambda run: run["rates"][0][name], lambda run: run["rates"][-1][name]

    columns: list[Column] = [
        ("wrong and paid", rate("false_positives"), ".2f"),
        ("right and not paid", rate("false_negatives"), ".2f"),
        ("true pass@1", ends("pass_at_1"), ".3f"),
        ("tokens per response", ends("response_length_tokens"), ".0f"),
        ("well-formed", ends("format"), ".3f"),
    ]
    return table_by("variant", results, columns, "verifier")


def shifts_table(results: Sequence[Record]) -> str:
    """Return each variant's final pass@1 less the control's and less the base's, paired by seed."""
    control = [run for run in results if run["variant"] == CONTROL]
    known = {run["seed"] for run in control}
    names, shifts, gains = [], [], []
    for name, runs in group_by("variant", results).items():
        if name == CONTROL:
            continue
        names.append(name)
        shifts.append(by_seed(runs, control, final))
        both = [(before(run), final(run)) for run in runs if run["seed"] in known]
        rises = [after - first for first, after in both if first is not None and after is not None]
        gains.append(paired_shift(rises) if rises[1:] else None)
    tables = [
        as_markdown(
            ["verifier", f"{less}: {OVER_SEEDS[0]}", *OVER_SEEDS[1:]],
            [[name, *cells] for name, cells in zip(names, seed_cells(found), strict=True)],
        )
        for less, found in ((f"less {CONTROL}", shifts), ("less the base", gains))
    ]
    return "\n\n".join([*tables, RULE, kinds_table(results)])


def kinds_table(results: Sequence[Record]) -> str:
    """Return false positives less false negatives at each rate, and how alike they are shown to be.

    The margin is the smallest within which two one-sided tests at 5 % hold the difference.
    """
    groups = group_by("variant", results)
    found = {
        rate: shift
        for rate in RATES
        if (shift := by_seed(groups.get(f"fp-{rate}", []), groups.get(f"fn-{rate}", []), final))
    }
    cells = seed_cells(list(found.values()))
    rows = [
        [f"fp-{rate} less fn-{rate}", *own, f"{shift.margin():.3f}"]
        for (rate, shift), own in zip(found.items(), cells, strict=True)
    ]
    headings = ["one kind less the other", *OVER_SEEDS, "shown to be within"]
    said = (
        "*Shown to be within*: the smallest margin for which both one-sided tests reject at 5 %."
        f" Kinds of mistakes would be called alike within {ALIKE}."
    )
    return f"{as_markdown(headings, rows)}\n\n{said}"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: accuracy against what the verdict still says, and along training."""
    figure = Figure(figsize=(10, 4), dpi=110, layout="constrained")
    at_end, along = figure.subplots(1, 2)
    groups = group_by("variant", results)
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for name, runs in groups.items():
        value, error = mean_and_error(values_of(runs, final))
        first = [run["rates"][0] for run in runs]
        informed = 1 - sum(mean([r[key] or 0.0 for r in first]) for key in first[0])
        kinds.setdefault(_kind(name), []).append((informed, value, error or 0.0))
    for index, (kind, points) in enumerate(kinds.items()):
        color, marker, _ = style_of(index)
        x, y, errors = zip(*sorted(points), strict=True)
        at_end.errorbar(x, y, errors, marker=marker, linestyle="", color=color, label=kind)
    base = mean([run["evaluations"][0]["pass_at_1"] for run in results])
    at_end.axhline(base, color="0.6", linestyle=":", label="base")
    tidy(
        at_end,
        "After training",
        xlabel="1 − false positives − false negatives, of the base's responses",
        ylabel="true pass@1",
    )
    at_end.legend(frameon=False, fontsize=8)
    chosen = (CONTROL, "fp-50", "fn-50", "both-50", "fp-giving-up", "fn-problems-50")
    for index, name in enumerate(name for name in chosen if name in groups):
        color, marker, line = style_of(index)
        lines = [run["evaluations"] for run in groups[name]]
        steps = [evaluation["iteration"] for evaluation in lines[0]]
        heights = [mean([own[i]["pass_at_1"] for own in lines]) for i in range(len(steps))]
        along.plot(steps, heights, marker + line, color=color, label=name)
    tidy(along, "Along training", xlabel="iteration", ylabel="true pass@1")
    along.legend(frameon=False, fontsize=8)
    for axes in (at_end, along):
        axes.set_ylim(0, 1)
    return figure


def _kind(name: str) -> str:
    if "problems" in name:
        return "by problem"
    if name in ("fp-empty", "fp-giving-up"):
        return "by a pattern"
    return KINDS[name.split("-")[0]]


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return tables and figure."""
    num_seeds = len({run["seed"] for run in results})
    text = (
        "First evaluation → last, on 32 held-out problems with 8 responses each; mean ± standard"
        f" error over {num_seeds} seeds.\n\n{as_table(results)}\n\nFinal true pass@1, paired by"
        " seed.\n\n"
        f"{shifts_table(results)}"
    )
    return text, draw(results)
