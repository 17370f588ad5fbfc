"""Page of the study: arms before and after, differences less Dr. GRPO, controls and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.by_source import evaluated_in
from experiments.curves import caption, draw_band, legend_above, lines_of, style_of
from experiments.study import Study
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    Column,
    as_markdown,
    ends,
    group_by,
    number,
    seed_cells,
    table_by,
)
from experiments.until_clear import as_table
from experiments.wrong_length.verdicts import (
    CONTROL,
    RIGHT,
    RULES,
    WRONG,
    Arms,
    at_equal_accuracy,
    gap,
    gap_of,
    growth,
    less_control,
    on_same_problems,
    over_pairs,
    part_that_lengthens,
    question,
    verdict_table,
)
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import Graded, mean
from r1lit.metrics.seeds import Shift

KEPT = ("variant", "seed", "seconds")
CUT_OF_WRONG = "truncated_wrong"
ENDED = "response_length_wrong_ended"
"""Tokens of wrong responses that were not cut."""
ENDS = (
    ("pass@1", "pass_at_1", ".3f"),
    ("tokens, wrong", WRONG, ".0f"),
    ("tokens, wrong and not cut", ENDED, ".0f"),
    ("tokens, right", RIGHT, ".0f"),
    ("cut", "truncated", ".3f"),
    ("cut, of wrong", CUT_OF_WRONG, ".3f"),
    ("well-formed", "format", ".3f"),
    ("reflection words", "reflection_words_per_response", ".2f"),
)
"""Of the table of arms: heading, number of an evaluation, format."""
DIFFERENCES: tuple[tuple[str, Callable[[Record], float | None], str], ...] = (
    ("pass@1", ends("pass_at_1")[1], ".3f"),
    ("growth of wrong responses, tokens", growth(WRONG), ".0f"),
    ("growth of wrong responses that are not cut, tokens", growth(ENDED), ".0f"),
    ("growth of right responses, tokens", growth(RIGHT), ".0f"),
    ("share cut", ends("truncated")[1], ".3f"),
    ("share cut of wrong responses", ends(CUT_OF_WRONG)[1], ".3f"),
    ("growth of wrong less that of right, tokens", gap, ".0f"),
)
PANELS = (
    ("Wrong responses", "tokens", WRONG),
    ("Right responses", "tokens", RIGHT),
    ("Accuracy on held-out problems", "pass@1", "pass_at_1"),
)


def read(study: Study) -> list[Record]:
    """Return each finished run, with what its responses and its gradients say."""
    return [read_run(result, folder) for result, folder in study.sweep().runs()]


def read_run(result: Record, folder: Path) -> Record:
    """Return a run: its evaluations, with what the token limit did to wrong responses.

    ``wrong`` has by problem the number of wrong responses of the last evaluation, and their mean
    tokens; ``grad_norm`` is the mean over training, before the norm is clipped.
    """
    wrong = {
        iteration: [row for row in rows if not Graded.read(row).right]
        for iteration, rows in evaluated_in(folder).items()
    }
    evaluations = [
        {**own, **at_the_limit(wrong[own["iteration"]])} for own in result["evaluations"]
    ]
    last = group_by("uid", wrong[evaluations[-1]["iteration"]])
    norms = [line["train/grad_norm"] for line in read_records(folder / "metrics.jsonl")]
    return {
        **{key: result[key] for key in KEPT},
        "final": evaluations[-1],
        "evaluations": evaluations,
        "wrong": {
            uid: [len(rows), mean([row["num_tokens"] for row in rows])]
            for uid, rows in sorted(last.items())
        },
        "grad_norm": mean(norms),
    }


def at_the_limit(rows: Sequence[Record]) -> Record:
    """Return the share of wrong responses that were cut, and the mean tokens of the others.

    Of no such response it is None.
    """
    ended = [row["num_tokens"] for row in rows if row["finished"]]
    share = mean([float(not row["finished"]) for row in rows]) if rows else None
    return {CUT_OF_WRONG: share, ENDED: mean(ended) if ended else None}


def arms_table(records: Sequence[Record]) -> str:
    """Return the table of arms before and after, mean ± standard error over seeds."""
    columns: list[Column] = [
        (heading, ends(key), f"mean {form} → {form}") for heading, key, form in ENDS
    ]
    columns.append(("gradient norm", number("grad_norm"), ".4f"))
    columns.append(("training seconds", number("seconds"), ".0f"))
    return table_by("variant", records, columns, "arm")


def tested(heading: str, shifts: dict[str, Shift | None], form: str) -> str:
    """Return a table of differences over seeds; nothing where none is known."""
    known = {arm: shift for arm, shift in shifts.items() if shift is not None}
    if not known:
        return ""
    cells = seed_cells(list(known.values()), form)
    rows = [
        [arm, str(shift.num_seeds), *own]
        for (arm, shift), own in zip(known.items(), cells, strict=True)
    ]
    return as_markdown([heading, "n seeds", *OVER_SEEDS], rows)


def controls(arms: Arms) -> str:
    """Return the two comparisons of wrong responses that are as hard to answer."""
    same = tested(
        f"tokens, less {CONTROL}, same problems", over_pairs(arms, on_same_problems), ".0f"
    )
    equal = tested(
        f"tokens, less {CONTROL}, equal pass@1", over_pairs(arms, at_equal_accuracy), ".0f"
    )
    said = (
        "Wrong responses at the end, on the problems that both runs of a seed answer wrongly at"
        " least once (each problem counts once):"
    )
    alike = (
        "Wrong responses at the lower of the two final pass@1. The more accurate run is read where"
        " it last rose to it, on a straight line between two evaluations, so it is younger:"
    )
    return "\n\n".join([said, same or "No rows yet.", alike, equal or "No rows yet."])


def sequential(arms: Arms) -> str:
    """Return where the sequential test stands; it needs wrong responses in every run."""
    runs = [run for own in arms.values() for run in own]
    if CONTROL not in arms or len(arms) < 2 or any(r["final"][WRONG] is None for r in runs):
        return "No comparison yet."
    return as_table(runs, question(arms))


def draw(records: Sequence[Record]) -> Figure:
    """Return the figure: length of wrong and right responses and pass@1, a line an arm."""
    figure = Figure(figsize=(14, 4.6), dpi=110, layout="constrained")
    all_axes = figure.subplots(1, len(PANELS))
    for axes, (title, label, key) in zip(all_axes, PANELS, strict=True):
        for index, (arm, own) in enumerate(group_by("variant", records).items()):
            color, marker, line = style_of(index)
            draw_band(axes, own, number(key), arm, color, marker + line)
        tidy(axes, title, xlabel="iteration", ylabel=label)
    legend_above(figure, all_axes[0], most=4)
    add_caption(figure, caption(records, "models/search", lines_of(records)))
    return figure


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables as Markdown, and the figure."""
    arms = group_by("variant", records)
    parts = [
        "### Verdicts",
        verdict_table(arms),
        f"Part that lengthens wrong responses: **{part_that_lengthens(arms)}**.",
        RULES,
        "### Arms",
        "Before → after; means over seeds. *Cut*: ended by the token limit.",
        arms_table(records),
        f"### Differences less {CONTROL}",
        *(
            tested(f"{name}, less {CONTROL}", less_control(arms, value), form)
            for name, value, form in DIFFERENCES
        ),
        RULE,
        "### Growth of wrong less growth of right responses, within an arm",
        tested("arm", {arm: gap_of(own) for arm, own in arms.items()}, ".0f"),
        "### Are the wrong responses those to harder problems?",
        controls(arms),
        "### Sequential test",
        sequential(arms),
    ]
    return "\n\n".join(part for part in parts if part), draw(records)
