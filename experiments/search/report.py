"""Accuracy against tokens of every search, and against width under a noisy scorer.

Intervals are 95 % over problems, each problem the mean over seeds (bootstrap): would other problems
show the same? Tokens are all that a search generated for a problem, in the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.tables import as_markdown, group_by
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean, with_error

FILES = ("searches.jsonl", "r1_samples.jsonl")
ORDER = ("majority", "best-of-n", "weighted", "beam", "DVTS", "MCTS", "pass@n")
NOISY = ("best-of-n", "beam", "MCTS")
"""Searches that are drawn under a noisy scorer."""


def read(study: Study) -> list[Record]:
    """Return one record a policy, search, width and noise: value, low, high, tokens, num_seeds."""
    lines = [line for run in study.runs for name in FILES for line in read_records(run / name)]
    groups: dict[tuple[str, str, int, float], list[Record]] = {}
    for line in lines:
        key = (line["policy"], line["search"], line["width"], line["noise"])
        groups.setdefault(key, []).append(line)
    points = []
    for (policy, search, width, noise), own in groups.items():
        problems = group_by("uid", own).values()
        found = with_error([mean([line["right"] for line in group]) for group in problems])
        points.append({
            "policy": policy, "search": search, "width": width, "noise": noise, **found,
            "tokens": mean([line["tokens"] for line in own]),
            "num_seeds": max(len(group) for group in problems), "num_problems": len(problems),
        })  # fmt: skip
    return sorted(points, key=lambda p: (p["policy"], p["noise"], ORDER.index(p["search"])))


def as_table(points: Sequence[Record]) -> str:
    """Return the Markdown table of the searches without noise, then that of noise."""
    headings = ["policy", "search", "width", "tokens a problem", "accuracy", "95 % interval"]
    clean = [
        [p["policy"], p["search"], str(p["width"]), f"{p['tokens']:.0f}", f"{p['value']:.3f}",
         f"{p['low']:.3f} to {p['high']:.3f}"]
        for p in points if p["noise"] == 0
    ]  # fmt: skip
    table = as_markdown(headings, clean, num_text=2)
    noises = sorted({point["noise"] for point in points})
    if len(noises) < 2:
        return table
    rows = []
    for search in ORDER:
        own = [p for p in points if p["search"] == search and p["policy"] == "base"]
        by_noise = {(p["width"], p["noise"]): p["value"] for p in own}
        if len({noise for _, noise in by_noise}) < 2:
            continue
        for width in sorted({width for width, _ in by_noise}):
            values = [by_noise.get((width, n)) for n in noises]
            rows.append([search, str(width), *("–" if v is None else f"{v:.3f}" for v in values)])
    noisy = as_markdown(["search", "width", *(f"noise {n:g}" for n in noises)], rows)
    return f"{table}\n\n{noisy}"


def draw(points: Sequence[Record]) -> Figure:
    """Return the figure: accuracy over tokens, and over width for each noise of three searches."""
    noises = sorted({point["noise"] for point in points})
    noisy = [name for name in NOISY if any(p["search"] == name for p in points)]
    figure = Figure(figsize=(16, 4.8), dpi=110, layout="constrained")
    left, *panels = figure.subplots(1, 1 + len(noisy), width_ratios=(2.2, *(1 for _ in noisy)))
    clean = [point for point in points if point["noise"] == 0]
    for policy in sorted({point["policy"] for point in clean}, reverse=True):
        for index, search in enumerate(ORDER):
            own = [p for p in clean if (p["policy"], p["search"]) == (policy, search)]
            if own and (policy == "base" or search == "majority"):
                style = "-" if policy == "base" else "--"
                label = search if policy == "base" else f"{policy}: {search}"
                _line(left, own, "tokens", index, style, label, band=False)
    tidy(left, "Accuracy against tokens", xlabel="tokens generated per problem",
         ylabel="accuracy, held out", xscale="log", ylim=(0.2, 1.03))  # fmt: skip
    left.legend(frameon=False, fontsize=9, loc="lower right")
    for axes, search in zip(panels, noisy, strict=True):
        for index, noise in enumerate(noises):
            own = [
                p
                for p in points
                if (p["search"], p["noise"], p["policy"]) == (search, noise, "base")
            ]
            if own:
                _line(axes, own, "width", index, "-", f"noise {noise:g}", band=True)
        tidy(axes, search, xlabel="responses per problem", xscale="log", ylim=(0.2, 1.03))
        axes.set_xticks([1, 4, 16], ["1", "4", "16"])
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=9, loc="lower right", title="noise of the scorer")
    left.set_xticks([100, 300, 1000, 3000], ["100", "300", "1,000", "3,000"])
    left.minorticks_off()
    sizes = [max(p[key] for p in points) for key in ("num_problems", "num_seeds")]
    add_caption(
        figure,
        "The small world's policies; {} held-out problems, {} seeds; bands: 95 % over problems,"
        " each the mean over seeds; those of the first panel are in the table".format(*sizes),
    )
    return figure


def _line(
    axes: Axes, points: Sequence[Record], x: str, index: int, style: str, label: str, *, band: bool
) -> None:
    own = sorted(points, key=lambda point: point[x])
    xs, (color, marker, _) = [point[x] for point in own], style_of(index)
    ys = [point["value"] for point in own]
    axes.plot(xs, ys, style, color=color, marker=marker, markersize=5, label=label)
    if band:
        low, high = [p["low"] for p in own], [p["high"] for p in own]
        axes.fill_between(xs, low, high, color=color, alpha=0.1, linewidth=0)


def report(points: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables, as Markdown, and the figure."""
    seeds, problems = (max(p[key] for p in points) for key in ("num_seeds", "num_problems"))
    tables = f"{problems} held-out problems, {seeds} seeds.\n\n{as_table(points)}"
    return tables, draw(points)
