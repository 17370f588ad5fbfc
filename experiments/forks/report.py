"""Page of forks: the variance of a difference between branches and between runs of other seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.sweep import shares_of
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    Column,
    as_markdown,
    ends,
    group_by,
    more_seeds,
    seed_cells,
    table_by,
    with_interval,
)
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics.seeds import paired_shift, welch_shift
from r1lit.seeding import generator

CONTROL = "same"
CHANGES = ("less_kl", "grpo")
NUM_RESAMPLES = 10_000


def read(study: Study) -> list[Record]:
    """Return each finished branch: its evaluations, and by problem the share right at the end."""
    found = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        for branch in (CONTROL, *CHANGES):
            summary = run / branch / "summary.json"
            if summary.is_file() and (shares := shares_of(run / branch)):
                evaluations = [
                    {key: evaluation[key] for key in ("iteration", "pass_at_1")}
                    for evaluation in json.loads(summary.read_text())
                ]
                kept = {"branch": branch, "seed": seed, "evaluations": evaluations}
                found.append({**kept, "shares": shares})
    return found


def scores(results: Sequence[Record], change: str) -> np.ndarray:
    """Return the final pass@1 of the control and of a change, 2 × seeds, where a seed has both."""
    branches = CONTROL, change
    final = {(r["branch"], r["seed"]): r["evaluations"][-1]["pass_at_1"] for r in results}
    seeds = sorted({seed for _, seed in final})
    both = [seed for seed in seeds if all((branch, seed) in final for branch in branches)]
    return np.array([[final[branch, seed] for seed in both] for branch in branches])


def variances(scores_BS: np.ndarray) -> tuple[float, float]:
    """Return the variances of a difference: of two branches of a run, of two runs.

    The second is the sum of the branches' own variances, which is that of a difference between runs
    of two seeds.
    """
    paired = float(np.var(scores_BS[1] - scores_BS[0], ddof=1))
    return paired, float(np.var(scores_BS, axis=1, ddof=1).sum())


def ratio_interval(scores_BS: np.ndarray) -> tuple[float, float, float]:
    """Return paired / independent variance, and its 95 % interval by resampling the seeds."""
    random = generator(0, "forks")
    num_seeds = scores_BS.shape[1]
    ratios = []
    for _ in range(NUM_RESAMPLES):
        paired, independent = variances(scores_BS[:, random.integers(num_seeds, size=num_seeds)])
        if independent > 0:
            ratios.append(paired / independent)
    paired, independent = variances(scores_BS)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return paired / independent, float(low), float(high)


def as_table(results: Sequence[Record]) -> str:
    """Return the branches' accuracy, and the variances of differences with their ratio."""
    columns: list[Column] = [("pass@1 of the base → at the end", ends("pass_at_1"), ".3f")]
    branches = table_by("branch", results, columns, "branch")
    rows: list[list[str]] = []
    changes, shifts = [], []
    seen: list[list[str]] = []
    for change in CHANGES:
        scores_BS = scores(results, change)
        if scores_BS.shape[-1] < 3:
            continue
        paired, independent = (variance**0.5 for variance in variances(scores_BS))
        ratio, low, high = ratio_interval(scores_BS)
        same_S, changed_S = scores_BS.tolist()
        shift = paired_shift([b - a for a, b in zip(same_S, changed_S, strict=True)])
        alone = welch_shift(same_S, changed_S)
        changes.append(change)
        shifts.append(shift)
        seen.append([f"{alone.detectable():.3f}", more_seeds(alone)])
        rows.append(
            [
                f"{change} less {CONTROL}",
                str(scores_BS.shape[1]),
                with_interval(shift),
                f"{paired:.4f}",
                f"{independent:.4f}",
                f"{ratio:.2g} ({low:.2g} to {high:.2g})",
                f"{np.corrcoef(scores_BS)[0, 1]:.3f}",
            ]
        )
    if not rows:
        return branches
    headings = [
        "difference",
        "n seeds",
        "mean, 95 % interval",
        "standard deviation, branches of one run",
        "of two runs",
        "ratio of variances, 95 % interval",
        "correlation",
    ]
    said = f"Intervals of the ratio: seeds resampled {NUM_RESAMPLES:,} times."
    tested = [
        [row[0], *cells, *own]
        for row, cells, own in zip(rows, seed_cells(shifts), seen, strict=True)
    ]
    first = ["branches of one run", *OVER_SEEDS, "seen by as many independent runs", "more of them"]
    parts = [branches, as_markdown(headings, rows), said, as_markdown(first, tested), RULE]
    return "\n\n".join(parts)


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: branches of each run, and differences with and without a shared run."""
    figure = Figure(figsize=(10, 3.8), dpi=110, layout="constrained")
    runs, differences = figure.subplots(1, 2)
    for index, (branch, own) in enumerate(group_by("branch", results).items()):
        color, marker, line = style_of(index)
        for k, run in enumerate(own):
            steps = [evaluation["iteration"] for evaluation in run["evaluations"]]
            heights = [evaluation["pass_at_1"] for evaluation in run["evaluations"]]
            label = branch if k == 0 else None
            runs.plot(steps, heights, marker + line, color=color, alpha=0.6, label=label)
    tidy(runs, "Branches", xlabel="iteration", ylabel="pass@1 on held-out problems")
    runs.legend(frameon=False)
    names: list[str] = []
    for change in CHANGES:
        same_S, changed_S = scores(results, change)
        seeds = range(len(same_S))
        values = {
            "branches of\none run": [changed_S[s] - same_S[s] for s in seeds],
            "two runs": [changed_S[s] - same_S[t] for s, t in product(seeds, seeds) if s != t],
        }
        for name, own in values.items():
            place = len(names) + np.linspace(-0.15, 0.15, max(1, len(own)))
            color = style_of(1 + CHANGES.index(change))[0]
            differences.plot(place, own, "o", color=color, alpha=0.5)
            names.append(f"{change},\n{name}")
    differences.axhline(0, color="0.6", linestyle=":")
    tidy(differences, "Differences", xlabel="", ylabel=f"pass@1 less that of {CONTROL}")
    differences.set_xticks(range(len(names)), names, fontsize=8)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return tables and figure."""
    return as_table(results), draw(results)
