"""The over-optimisation curve: reward model's score and true preference as the KL grows.

As in Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization" (2210.10760,
Fig. 1): x is the root of KL(policy || SFT policy), in nats a response, of one iteration's own 64
responses to training prompts; what they score stands above it. The table is of held-out prompts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import COLORS, legend_above
from experiments.manifest import finished_steps
from experiments.study import Study
from experiments.tables import Column, by_seed, ends, group_by, seed_table, table_by
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean_and_error

KL, RM, TRUE = "train/kl_per_response", "reward_model", "helpfulness_true"
ARM = "kl-"
BINS = 8


def read(study: Study) -> list[Record]:
    """Return for each coefficient, ascending, every seed's iterations and evaluations."""
    kept = (KL, *(f"train/reward/{name}" for name in (RM, TRUE)))
    folders = [
        run / name for run in study.runs for name in finished_steps(run) if name.startswith(ARM)
    ]
    return [
        {
            "beta": folder.name.removeprefix(ARM),
            "seed": int(folder.parent.name.removeprefix("seed-")),
            "evaluations": json.loads((folder / "summary.json").read_text()),
            "iterations": [
                {key: line[key] for key in kept} for line in read_records(folder / "metrics.jsonl")
            ],
        }
        for folder in sorted(folders, key=lambda f: (float(f.name.removeprefix(ARM)), str(f)))
    ]


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown: a row a coefficient, mean ± standard error, and all pairs compared."""

    def best(run: Record) -> Record:
        return max(run["evaluations"], key=lambda evaluation: _of(evaluation, TRUE))

    def at_best(run: Record) -> float:
        return _last_kl(run["iterations"][: best(run)["iteration"]])

    true = (
        lambda run: _of(run["evaluations"][0], TRUE),
        lambda run: _of(best(run), TRUE),
        lambda run: _of(run["evaluations"][-1], TRUE),
    )
    columns: list[Column] = [
        ("KL at the end", lambda run: _last_kl(run["iterations"]), ".1f"),
        ("RM score, before → after", ends("rewards", RM), ".2f"),
        ("true helpfulness, before → best → after", true, ".3f"),
        ("best at KL", at_best, ".1f"),
        ("tokens, after", ends("response_length_tokens")[1], ".0f"),
        ("seconds", ends("seconds")[1], ".0f"),
    ]
    groups = group_by("beta", records)
    pairs = [
        ([f"{other} less {one}"], by_seed(groups[other], groups[one], true[-1]))
        for one, other in combinations(groups, 2)
    ]
    compared = seed_table(pairs, ["true helpfulness, after, of beta"])
    return f"{table_by('beta', records, columns, num_text=0)}\n\n{compared}"


def _of(evaluation: Record, name: str) -> float:
    return float(evaluation["rewards"][name])


def _last_kl(lines: Sequence[Record]) -> float:
    """Return the mean KL of the last five iterations, 0 before the first."""
    values = [max(0.0, line[KL]) for line in lines[-5:]]
    return sum(values) / len(values) if values else 0.0


def draw(records: Sequence[Record]) -> Figure:
    """Return the figure: each iteration a dot, and the mean of equally filled bins of the root."""
    figure = Figure(figsize=(10, 4.4), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, name, label in (
        (left, RM, "reward model's score"),
        (right, TRUE, "true helpfulness, 0 to 1"),
    ):
        for index, (beta, own) in enumerate(group_by("beta", records).items()):
            points = sorted(
                (math.sqrt(max(0.0, line[KL])), line[f"train/reward/{name}"])
                for record in own
                for line in record["iterations"]
            )
            _curve(axes, points, COLORS[index % len(COLORS)], f"beta {beta}")
        title = "What is maximised" if axes is left else "What was meant"
        tidy(axes, title, xlabel="√KL(policy ‖ SFT), nats a response", ylabel=label)
        axes.set_xlim(left=0)
    legend_above(figure, left)
    seeds = seeds_of(record["seed"] for record in records)
    add_caption(
        figure,
        f"models/mini after SFT; {seeds}; dots: an iteration's 64 training responses; lines:"
        f" means of {BINS} equally filled bins, ± 1 s.e. over iterations",
    )
    return figure


def _curve(axes: Axes, points: Sequence[tuple[float, float]], color: str, label: str) -> None:
    distances, heights = zip(*points, strict=True)
    axes.scatter(distances, heights, color=color, s=7, alpha=0.25, linewidth=0)
    size = max(1, -(-len(points) // BINS))
    bins = [points[i : i + size] for i in range(0, len(points), size)]
    x = [sum(p[0] for p in own) / len(own) for own in bins]
    y = [mean_and_error([p[1] for p in own]) for own in bins]
    errors = [error or 0.0 for _, error in y]
    axes.errorbar(x, [m for m, _ in y], yerr=errors, color=color, marker="o", label=label)


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table, as Markdown, and the figure."""
    num = max(map(len, group_by("beta", records).values()))
    prompts = records[0]["evaluations"][-1]["num_problems"]
    said = f"Mean ± standard error over {num} seeds; {prompts} held-out prompts."
    return f"{said}\n\n{as_table(records)}", draw(records)
