"""Page of seeds_needed: how often few seeds name the wrong winner, and how many are needed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.seeds_needed.draws import NUM_DRAWS, Design, Shares, shares
from experiments.study import Study
from experiments.tables import Column, as_markdown, ends, table_by, with_interval
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics.seeds import MOST_SEEDS, POWER

CONTROL = "dr_grpo"
ARMS = (CONTROL, "grpo", "grpo_fork")
DESIGNS = {
    "different seeds": ("grpo", False, 16),
    "same seeds": ("grpo", True, 16),
    "forks": ("grpo_fork", True, 12),
}
"""By name: the arm compared with the control, whether seeds are paired, iterations a seed."""
NUMBERS = (1, 3, 5, 10, 20)
LEAST = 2


def read(study: Study) -> list[Record]:
    """Return each finished run with its evaluations."""
    found = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        for arm in ARMS:
            summary = run / arm / "summary.json"
            if summary.is_file() and (run / arm / "policy").is_dir():
                evaluations = [
                    {key: evaluation[key] for key in ("iteration", "pass_at_1")}
                    for evaluation in json.loads(summary.read_text())
                ]
                found.append({"arm": arm, "seed": seed, "evaluations": evaluations})
    return found


def designs(results: Sequence[Record]) -> dict[str, Design]:
    """Return the designs that at least two seeds have both arms of.

    Raises:
        ValueError: if there is none.
    """
    final = {(r["arm"], r["seed"]): r["evaluations"][-1]["pass_at_1"] for r in results}
    seeds = sorted({seed for _, seed in final})
    found, counts = {}, {}
    for name, (arm, is_paired, _) in DESIGNS.items():
        both = [s for s in seeds if (CONTROL, s) in final and (arm, s) in final]
        counts[arm] = len(both)
        if len(both) >= LEAST:
            scores_2S = np.array([[final[one, s] for s in both] for one in (CONTROL, arm)])
            found[name] = Design(scores_2S=scores_2S, is_paired=is_paired)
    if not found:
        listed = ", ".join(f"{num} have {CONTROL} and {arm}" for arm, num in counts.items())
        raise ValueError(f"seeds: {listed}; at least {LEAST} are needed")
    return found


def measured(found: dict[str, Design]) -> dict[str, dict[int, Shares]]:
    """Return by design the shares for each number of seeds, up to half of those there are."""
    return {
        name: {n: shares(design, n) for n in NUMBERS if n <= design.num_seeds // 2}
        for name, design in found.items()
    }


def share_cell(value: float | None) -> str:
    """Return a share as a table shows it."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def wrong_table(found: dict[str, Design], counted: dict[str, dict[int, Shares]]) -> str:
    """Return the Markdown table: a row a design and number of seeds."""
    headings = ["design", "seeds a side", "wrong winner", "95 % interval", "if normal",
                "p < 0.05", "of these wrong"]  # fmt: skip
    rows = [
        [
            name,
            str(n),
            share_cell(own.wrong),
            f"{share_cell(own.low)} to {share_cell(own.high)}",
            share_cell(found[name].normal_share(n)),
            share_cell(own.claimed),
            share_cell(own.claimed_wrong),
        ]
        for name, by_number in counted.items()
        for n, own in by_number.items()
    ]
    return as_markdown(headings, rows)


def needed_table(found: dict[str, Design]) -> str:
    """Return the Markdown table: each design's difference, its spread, and seeds that it needs."""
    headings = [
        "design", "n seeds", "GRPO less Dr. GRPO, 95 % interval", "sd of a difference",
        "correlation", "seeds for the sign", "seeds for p < 0.05", "iterations for that",
    ]  # fmt: skip
    rows = []
    for name, design in found.items():
        shift, iterations = design.shift, DESIGNS[name][2]
        with np.errstate(invalid="ignore"):  # of an arm without spread
            correlation = np.corrcoef(design.scores_2S)[0, 1] if design.is_paired else 0.0
        for_p = shift.seeds_needed()
        rows.append(
            [
                name,
                str(design.num_seeds),
                with_interval(shift),
                f"{design.sd:.4f}",
                f"{correlation:.2f}" if design.is_paired else "–",
                str(design.seeds_for_sign()) if shift.mean else "–",
                f"> {MOST_SEEDS:,}" if for_p is None else str(for_p),
                "–" if for_p is None else f"{for_p * iterations:,}",
            ]
        )
    return as_markdown(headings, rows)


def truth(found: dict[str, Design]) -> str:
    """Return what is taken for the truth, and the probability that its sign is wrong."""
    said = []
    for name, what in (("same seeds", "Whole runs"), ("forks", "Forks")):
        if name in found:
            shift = found[name].shift
            wrong = shift.p_wrong_sign
            said.append(
                f"{what}: the winner over all {found[name].num_seeds} seeds is"
                f" {'GRPO' if shift.mean > 0 else 'Dr. GRPO' if shift.mean < 0 else 'neither'}."
                f" This sign may itself be wrong, with probability"
                f" {f'{wrong:.2g}' if wrong >= 0.001 else '< 0.001'} (p / 2, flat prior)."
            )
    means = [found[name].shift.mean for name in ("same seeds", "forks") if name in found]
    if len(means) > 1:
        alike = "the same winner" if means[0] * means[1] > 0 else "**different winners**"
        said.append(f"Whole runs and forks have {alike} over all seeds.")
    return "\n\n".join([" ".join(said[:2]), *said[2:]])


LEGEND = (
    f"*Wrong winner*: the share of studies of so many seeds whose mean difference has the other"
    f" sign than that of all seeds; a tie counts half. One seed a side: all studies; more:"
    f" {NUM_DRAWS:,} draws without replacement. The interval is a bootstrap over seeds."
    " *If normal*: the same of normal differences with the measured mean and standard deviation."
    " *p < 0.05*: the share of studies that would claim a winner (Student's t of paired"
    " differences, Welch's of different seeds); *of these wrong*: the share of the claims that name"
    " the wrong one."
)
NEEDED = (
    "*Seeds for the sign*: seeds a side whose mean has the wrong sign in at most 1 of 20 studies."
    f" *Seeds for p < 0.05*: in {100 * POWER:.0f} of 100 studies. Both take the measured mean and"
    " standard deviation for the true ones."
)


def as_page(
    results: Sequence[Record], found: dict[str, Design], counted: dict[str, dict[int, Shares]]
) -> str:
    """Return the page's tables."""
    columns: list[Column] = [("pass@1 of the base → at the end", ends("pass_at_1"), ".3f")]
    parts = [
        table_by("arm", results, columns),
        truth(found),
        wrong_table(found, counted),
        LEGEND,
        needed_table(found),
        NEEDED,
    ]
    return "\n\n".join(parts)


def draw(found: dict[str, Design], counted: dict[str, dict[int, Shares]]) -> Figure:
    """Return the figure: shares of wrong winners over seeds a side, and the pairs of scores."""
    figure = Figure(figsize=(10, 3.8), dpi=110, layout="constrained")
    curves, pairs = figure.subplots(1, 2)
    for index, (name, by_number) in enumerate(counted.items()):
        color, marker, _ = style_of(index)
        design = found[name]
        ns = np.arange(1, max(NUMBERS) + 1)
        curves.plot(ns, [design.normal_share(int(n)) for n in ns], color=color, alpha=0.5)
        at = [n * (0.96 + 0.04 * index) for n in by_number]  # so that bars lie side by side
        wrong = np.array([own.wrong for own in by_number.values()])
        bounds = np.array([[own.low, own.high] for own in by_number.values()]).reshape(-1, 2).T
        errors = np.maximum(0, [wrong - bounds[0], bounds[1] - wrong])
        curves.errorbar(at, wrong, errors, fmt=marker, color=color, capsize=2, label=name)
        if design.is_paired:
            arm = DESIGNS[name][0]
            pairs.plot(*design.scores_2S, marker, color=color, alpha=0.6, label=arm)
    curves.axhline(0.5, color="0.6", linestyle=":")
    curves.set_xscale("log")
    curves.set_xticks(NUMBERS, [str(n) for n in NUMBERS])
    curves.minorticks_off()
    curves.legend(frameon=False)
    tidy(curves, "Wrong winner", xlabel="seeds a side", ylabel="share of studies")
    low, high = pairs.get_xlim()
    pairs.plot([low, high], [low, high], color="0.6", linestyle=":")
    pairs.legend(frameon=False)
    tidy(pairs, "A point is a seed", xlabel="pass@1 of Dr. GRPO", ylabel="pass@1 of GRPO")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return tables and figure.

    Raises:
        ValueError: if fewer than two seeds have both arms of a design.
    """
    found = designs(results)
    counted = measured(found)
    return as_page(results, found, counted), draw(found, counted)
