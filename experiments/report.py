"""Reports a sweep: a Markdown table into the experiment's README, and a figure beside it.

    python -m experiments.report experiments/objectives/sweep.yaml

Numbers are mean ± standard error over seeds: the sample standard deviation over the root of their
number. All seeds are evaluated on the same problems, so this error is that of training anew, not
that of drawing other problems. Only points finished under the present sweep file count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.sweep import read_sweep
from r1lit.atomic import replace_file
from r1lit.callbacks.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, save_png
from r1lit.callbacks.keys import CONS_AT
from r1lit.jsonl import Record
from r1lit.metrics import mean_and_error

START, END = "<!-- results -->", "<!-- /results -->"
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS = "os^Dv*P"


def cons_at_most(evaluation: Record) -> float | None:
    """Return cons@k for the largest k of an evaluation."""
    ks = [int(key.removeprefix(CONS_AT)) for key in evaluation if key.startswith(CONS_AT)]
    return evaluation[f"{CONS_AT}{max(ks)}"] if ks else None


def language_consistency(evaluation: Record) -> float | None:
    """Return the mean language consistency, of runs that measure it, if only at weight 0."""
    return (evaluation.get("rewards") or {}).get("language_consistency")


COLUMNS: tuple[tuple[str, Callable[[Record], float | None], str], ...] = (
    ("pass@1", lambda e: e["pass_at_1"], ".3f"),
    ("cons@k", cons_at_most, ".3f"),
    ("tokens per response", lambda e: e["response_length_tokens"], ".0f"),
    ("reflection words per response", lambda e: e["reflection_words_per_response"], ".2f"),
    ("well-formed", lambda e: e["format"], ".3f"),
)
"""What the table says of the first and of the last evaluation: heading, value, format."""
LANGUAGE_COLUMN = ("language consistency", language_consistency, ".3f")

PANELS: tuple[tuple[str, str, Callable[[Record], float | None]], ...] = (
    ("Accuracy on held-out problems", "pass@1", lambda e: e["pass_at_1"]),
    ("Response length", "tokens per response", lambda e: e["response_length_tokens"]),
    ("Reflection words", "words per response", lambda e: e["reflection_words_per_response"]),
)
"""What the figure shows along training: title, label, value."""
LANGUAGE_PANEL = ("Language consistency", "words in the question's language", language_consistency)


def by_variant(results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the results by variant, in the order of their first appearance."""
    groups: dict[str, list[Record]] = {}
    for result in results:
        groups.setdefault(result["variant"], []).append(result)
    return groups


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, mean ± standard error over its n seeds.

    ``0.20 → 0.50 ± 0.03`` is the mean before the first iteration, then that after the last.
    """
    columns = (*COLUMNS, LANGUAGE_COLUMN) if _measures_language(results) else COLUMNS
    names = ["variant", "n seeds", *(name for name, _, _ in columns), "best pass@1"]
    names += ["training seconds"]
    lines = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 1)]
    for variant, group in by_variant(results).items():
        cells = [variant, str(len(group))]
        for _, value, form in columns:
            before = _cell([value(r["evaluations"][0]) for r in group], form, error=False)
            after = _cell([value(r["final"]) for r in group], form)
            cells.append(f"{before} → {after}")
        cells.append(_cell([r["best"]["pass_at_1"] for r in group], ".3f"))
        cells.append(_cell([r["seconds"] for r in group], ".0f"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float | None], form: str, *, error: bool = True) -> str:
    present = [value for value in values if value is not None]
    if not present:
        return "–"
    mean, deviation = mean_and_error(present)
    if deviation is None or not error:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {deviation:{form}}"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: accuracy, length and reflection, a line a variant with its error band.

    Language consistency stands first where it was measured.
    """
    panels = (LANGUAGE_PANEL, *PANELS) if _measures_language(results) else PANELS
    figure = Figure(figsize=(14 * len(panels) / 3, 4.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, len(panels))
    for axes, (title, label, value) in zip(all_axes, panels, strict=True):
        for index, (variant, group) in enumerate(by_variant(results).items()):
            color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
            _band(axes, group, value, variant, color, marker)
        axes.set(xlabel="iteration", ylabel=label)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=12)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(True, color="#DDDDDD", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _measures_language(results: Sequence[Record]) -> bool:
    return any(language_consistency(e) is not None for r in results for e in r["evaluations"])


def _band(
    axes: Axes,
    group: Sequence[Record],
    value: Callable[[Record], float | None],
    label: str,
    color: str,
    marker: str,
) -> None:
    values: dict[int, list[float]] = {}
    for result in group:
        for evaluation in result["evaluations"]:
            found = value(evaluation)
            if found is not None:
                values.setdefault(evaluation["iteration"], []).append(found)
    x = sorted(values)
    points = [mean_and_error(values[iteration]) for iteration in x]
    mean = [m for m, _ in points]
    axes.plot(x, mean, color=color, marker=marker, markersize=4.5, linewidth=1.8, label=label)
    low = [m - (error or 0.0) for m, error in points]
    high = [m + (error or 0.0) for m, error in points]
    axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)


def fill_in(readme: str, block: str) -> str:
    """Return the README with the block between its markers.

    Raises:
        ValueError: if the markers are not there, once each and in order.
    """
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the README has no {START} … {END} to fill in")
    return f"{before}{START}\n{block}\n{END}{after}"


def write_into(readme: Path, block: str, figure: Figure, image: str) -> None:
    """Put a block and a figure below it between a README's markers; ``image`` lies beside it.

    Raises:
        ValueError: if the README has no place for them; nothing is written then.
    """
    name = Path(image).stem
    text = fill_in(readme.read_text(), f"{block}\n\n![{name}]({image})")
    save_png(figure, readme.with_name(image))
    replace_file(readme, text.encode())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sweep", type=Path, help="the sweep file; its README.md lies beside it")
    path = parser.parse_args(args).sweep
    try:
        sweep = read_sweep(path)
        results = sweep.results()
        if not results:
            raise ValueError(f"no point is finished: python -m experiments.sweep {path}")
        num_points = len(sweep.points())
        last = max(result["final"]["iteration"] for result in results)
        note = (
            f"After {last} iterations; mean ± standard error over seeds; {len(results)} of"
            f" {num_points} runs finished."
        )
        block = f"{note}\n\n{as_table(results)}"
        write_into(path.with_name("README.md"), block, draw(results), "curves.png")
    except ValueError as error:
        print(f"report: error: {error}", file=sys.stderr)
        return 2
    print(as_table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
