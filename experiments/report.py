"""Reports a sweep: ``README.md`` with tables, and ``curves.png``, in its output folder.

    python -m experiments.report experiments/objectives/sweep.yaml [--against dapo] [--readme]

A sweep calls this at its end; by hand it shows what is there while a sweep still runs. A README
that is not there is made. Only points finished under the present sweep file count, and failed ones
are listed with their error. With ``--readme`` they go into the README beside the sweep file.

Numbers are mean ± standard error over seeds: the sample standard deviation over the root of their
number. All seeds are evaluated on the same problems, so this error is that of training anew, not
that of drawing other problems. Variants are compared in pairs (`experiments.paired`).

The results themselves are written beside the README, ``results.jsonl``; with ``--readme``
they are to be committed, and where no point is finished the report is made of them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.launch import held
from experiments.page import END, RAW, START, as_markdown, write_into
from experiments.paired import all_pairs, paired_table
from experiments.points import Point, Sweep, best_of, read_sweep, score_of
from r1lit import jsonl
from r1lit.callbacks.figures import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    add_caption,
    seeds_of,
    tidy,
)
from r1lit.callbacks.keys import CONS_AT
from r1lit.jsonl import Record
from r1lit.metrics import mean_and_error

README_HELP = "fill in the README beside the sweep file, to be committed, not the output folder's"
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS = "os^Dv*P"


def cons_at_most(evaluation: Record) -> float | None:
    """Return cons@k for the largest k of an evaluation."""
    ks = [int(key.removeprefix(CONS_AT)) for key in evaluation if key.startswith(CONS_AT)]
    return evaluation[f"{CONS_AT}{max(ks)}"] if ks else None


def language_consistency(evaluation: Record) -> float | None:
    """Return the mean language consistency, of runs that measure it, if only at weight 0."""
    return (evaluation.get("rewards") or {}).get("language_consistency")


def reward_model(name: str) -> Callable[[Record], float | None]:
    """Return what reads a number of a reward model's report."""
    return lambda evaluation: (evaluation.get("reward_model") or {}).get(name)


def rewarded(name: str) -> Callable[[Record], float | None]:
    """Return what reads the mean of a reward function, other than accuracy and format."""
    return lambda evaluation: (evaluation.get("rewards") or {}).get(name)


def plain(name: str) -> Callable[[Record], float | None]:
    """Return what reads a number of an evaluation."""
    return lambda evaluation: evaluation.get(name)


COLUMNS: tuple[tuple[str, Callable[[Record], float | None], str], ...] = (
    ("pass@1", plain("pass_at_1"), ".3f"),
    ("cons@k", cons_at_most, ".3f"),
    ("AUROC", reward_model("auroc"), ".3f"),
    ("accuracy", reward_model("accuracy"), ".3f"),
    ("validation loss", plain("loss"), ".4f"),
    ("tokens per response", plain("response_length_tokens"), ".0f"),
    ("reflection words per response", plain("reflection_words_per_response"), ".2f"),
    ("well-formed", plain("format"), ".3f"),
    ("process score", rewarded("process"), ".3f"),
    ("language consistency", language_consistency, ".3f"),
)
"""What the table says of the first and of the last evaluation: heading, value, format."""

PANELS: tuple[tuple[str, str, Callable[[Record], float | None]], ...] = (
    ("Language consistency", "words in the question's language", language_consistency),
    ("Accuracy on held-out problems", "pass@1", plain("pass_at_1")),
    ("Response length", "tokens per response", plain("response_length_tokens")),
    ("Reflection words", "words per response", plain("reflection_words_per_response")),
    ("Score of the process model", "mean over responses", rewarded("process")),
    ("Held-out prompts", "AUROC", reward_model("auroc")),
    ("Held-out pairs", "accuracy", reward_model("accuracy")),
    ("Held-out documents", "loss", plain("loss")),
)
"""What the figure shows along training: title, label, value."""


def group_by(key: str, results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the results by variant, arm or the like, in the order of their first appearance."""
    groups: dict[str, list[Record]] = {}
    for result in results:
        groups.setdefault(result[key], []).append(result)
    return groups


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, mean ± standard error over its n seeds.

    ``0.20 → 0.50 ± 0.03`` is the mean before the first iteration, then that after the last. A
    column stands where a run measured it.
    """
    columns = [column for column in COLUMNS if _measured(results, column[1])]
    score, _ = score_of(results[0]["final"]) or ("score", 0.0)
    names = ["variant", "n seeds", *(name for name, _, _ in columns), f"best {score}"]
    names += ["training seconds"]
    with_memory = any("peak_memory_gb" in result for result in results)
    names += ["peak memory, GB"] if with_memory else []
    rows = []
    for variant, group in group_by("variant", results).items():
        cells = [variant, str(len(group))]
        for _, value, form in columns:
            before = mean_cell([value(r["evaluations"][0]) for r in group], form, error=False)
            after = mean_cell([value(r["final"]) for r in group], form)
            cells.append(f"{before} → {after}")
        best = [score_of(best_of(r["evaluations"])) for r in group]
        cells.append(mean_cell([None if b is None else b[1] for b in best], ".3f"))
        cells.append(mean_cell([r["seconds"] for r in group], ".0f"))
        if with_memory:
            cells.append(mean_cell([r.get("peak_memory_gb") for r in group], ".2f"))
        rows.append(cells)
    return as_markdown(names, rows)


def mean_cell(values: Sequence[float | None], form: str, *, error: bool = True) -> str:
    """Return mean ± standard error as a table shows it; values that are None do not count."""
    present = [value for value in values if value is not None]
    if not present:
        return "–"
    mean, deviation = mean_and_error(present)
    if deviation is None or not error:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {deviation:{form}}"


def draw(results: Sequence[Record], model: str = "") -> Figure:
    """Return the figure: a panel for each of ``PANELS`` that a run measured.

    A line is a variant's mean over seeds, the band its standard error; ``model`` is for the
    caption, which says so.
    """
    panels = [panel for panel in PANELS if _measured(results, panel[2])]
    figure = Figure(figsize=(14 * max(2, len(panels)) / 3, 4.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, label, value) in zip(all_axes, panels, strict=True):
        for index, (variant, group) in enumerate(group_by("variant", results).items()):
            again, place = divmod(index, len(COLORS))  # the next seven are dashed
            style = f"{MARKERS[place]}{'--' if again else '-'}"
            draw_band(axes, group, value, variant, COLORS[place], style)
        tidy(axes, title, xlabel="iteration", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(len(labels), 6), frameon=False
    )
    add_caption(figure, caption(results, model, "lines: means over seeds, bands: ± 1 s.e. of them"))
    return figure


def caption(results: Sequence[Record], model: str, *notes: str) -> str:
    """Return a figure's caption: model, seeds, held-out problems, and what lines and bands are."""
    last = results[0].get("final") or {}
    sizes = [last.get("num_problems"), last.get("num_samples")]
    held_out = f"{sizes[0]} held-out problems × {sizes[1]} responses" if all(sizes) else ""
    parts = [model, seeds_of(result["seed"] for result in results), held_out, *notes]
    return "; ".join(part for part in parts if part)


def models_of(sweep: Sweep) -> str:
    """Return the policies that the points of a sweep begin with, for a caption."""
    points = [sweep.point(variant, sweep.seeds[0]) for variant in sweep.variants]
    models = [point.config.get("model") or {} for point in points]
    names = [(model.get("init_args") or {}).get("policy") for model in models]
    return ", ".join(dict.fromkeys(str(name) for name in names if name))


def _measured(results: Sequence[Record], value: Callable[[Record], float | None]) -> bool:
    return any(value(e) is not None for r in results for e in r["evaluations"])


def draw_band(
    axes: Axes,
    group: Sequence[Record],
    value: Callable[[Record], float | None],
    label: str,
    color: str,
    style: str,
) -> None:
    """Draw a value along training: the mean over the runs of ``group``, and its standard error."""
    values: dict[int, list[float]] = {}
    for result in group:
        for evaluation in result["evaluations"]:
            found = value(evaluation)
            if found is not None:
                values.setdefault(evaluation["iteration"], []).append(found)
    x = sorted(values)
    points = [mean_and_error(values[iteration]) for iteration in x]
    mean = [m for m, _ in points]
    axes.plot(x, mean, style, color=color, markersize=4.5, linewidth=1.8, label=label)
    low = [m - (error or 0.0) for m, error in points]
    high = [m + (error or 0.0) for m, error in points]
    axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)


def failed_table(points: Sequence[Point]) -> str:
    """Return the points that failed, with their error and their log, as Markdown; or nothing."""
    found = [(point, point.error()) for point in points if point.result() is None]
    lines = [
        f"| {point.variant} | {point.seed} | {as_cell(error)} | `{point.folder / 'log.txt'}` |"
        for point, error in found
        if error is not None
    ]
    if not lines:
        return ""
    head = ["| failed | seed | error | log |", "|---|---:|---|---|"]
    return "\n".join([*head, *lines])


def as_cell(text: str, limit: int = 300) -> str:
    """Return a text as a cell of a table, cut to ``limit`` characters."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def write_report(
    path: Path, sweep: Sweep, against: str | None = None, folder: Path | None = None
) -> str:
    """Write a sweep's tables and figure; return the tables.

    Args:
        path: the sweep file.
        sweep: what it says.
        against: the variant that the others are compared with; the first that has finished runs
            if left out.
        folder: of ``README.md``, ``curves.png`` and ``results.jsonl``; the output folder if left
            out.

    Raises:
        ValueError: if there is no such variant, or a README without a place for the tables.
    """
    if against is not None and against not in sweep.variants:
        raise ValueError(f"against: {against!r} is none of {', '.join(sweep.variants)}")
    folder = sweep.output if folder is None else folder
    # two processes may share a sweep
    with held(sweep.output / ".report.lock", wait_s=60.0) as lock:
        if lock is None:
            raise ValueError(
                f"{sweep.output}: another process has been writing its report for 60 s"
            )
        results = sweep.results()
        if not results and folder != sweep.output:
            results = jsonl.read(folder / RAW)
        blocks = [f"{len(results)} of {len(sweep.points())} runs finished."]
        if results:
            last = max(result["final"]["iteration"] for result in results)
            errors = "mean ± standard error over seeds"
            blocks = [f"After {last} iterations; {errors}; {blocks[0]}", as_table(results)]
            blocks.append(paired_table(results, against))
            blocks.append(all_pairs(results))
        blocks.append(failed_table(sweep.made()))
        block = "\n\n".join(block for block in blocks if block)
        readme = folder / "README.md"
        text = readme.read_text() if readme.exists() else new_readme(path)
        figure = draw(results, models_of(sweep)) if results else None
        write_into(readme, block, figure, "curves.png", results, text)
    return f"{block}\n\nwritten to {readme}"


def new_readme(path: Path) -> str:
    """Return a README for a sweep file: its name, what its comments say first, and the command."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    said = "\n".join(line.removeprefix("#").strip() for line in lines)
    command = f"```bash\npython -m experiments.sweep {path}\n```"
    parts = [f"# {path.resolve().parent.name}", said, command, f"## Results\n\n{START}\n{END}\n"]
    return "\n\n".join(part for part in parts if part)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sweep", type=Path, help="the sweep file")
    parser.add_argument("--readme", action="store_true", help=README_HELP)
    parser.add_argument("--against", help="the variant to compare the others with; else the first")
    options = parser.parse_args(args)
    try:
        sweep = read_sweep(options.sweep)
        folder = options.sweep.parent if options.readme else sweep.output
        kept = options.readme and (folder / RAW).exists()
        if not kept and not any(point.result() or point.error() for point in sweep.made()):
            raise ValueError(f"no point is finished: python -m experiments.sweep {options.sweep}")
        print(write_report(options.sweep, sweep, options.against, folder))
    except ValueError as error:
        print(f"report: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
