"""The figure of a run, and the style of all figures."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from r1lit.callbacks import keys
from r1lit.files import replace_file

Record = dict[str, Any]
Points = tuple[list[int], list[float]]

# Okabe and Ito's palette: distinct with any colour vision.
BLACK, ORANGE, SKY, GREEN = "#222222", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
WORD_COLORS = {
    "wait": ORANGE,
    "check": GREEN,
    "but": PURPLE,
    "however": SKY,
    "verify": VERMILION,
    "mistake": "#8C564B",
    "retry": "#A0A000",
    "error": "#8A8A8A",
    "wrong": "#6A51A3",
    "evaluate": "#17A2B8",
}
"""A colour for each of the paper's reflection words, the same in every figure."""
NUM_WORDS = 3


def save_figure(figure: Figure, path: Path) -> None:
    """Write ``figure`` to a .png or .pdf, whole or not at all: the same figure, the same bytes."""
    image = io.BytesIO()
    undated = {"CreationDate": None} if path.suffix == ".pdf" else {}
    figure.savefig(image, format=path.suffix[1:], metadata=undated)
    replace_file(path, image.getvalue())


def save_png_and_pdf(figure: Figure, path: Path) -> None:
    """Write ``figure`` to ``path``, a .png, and as a .pdf beside it."""
    save_figure(figure, path)
    save_figure(figure, path.with_suffix(".pdf"))


def tidy(axes: Axes, title: str = "", **labels: Any) -> None:
    """Give axes the look that all figures share; ``labels`` are ``Axes.set``'s."""
    axes.set(**labels)
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12)
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def add_caption(figure: Figure, text: str) -> None:
    """Write a caption below a figure of constrained layout: which model, which seeds, what is ±.

    A legend "outside lower" would lie over it.
    """
    if text:
        lines = textwrap.wrap(text, int(15 * figure.get_figwidth()))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=9, color="#444444")


def seeds_of(seeds: Iterable[int]) -> str:
    """Return seeds as a caption has them.

    >>> seeds_of([2, 0, 1, 0]), seeds_of([3])
    ('seeds 0, 1, 2', 'seed 3')
    """
    numbers = sorted(set(seeds))
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def plot_curves(
    evaluations: Sequence[Record], iterations: Sequence[Record], run: str = ""
) -> Figure:
    """Return a 2x2 figure from the records of ``summary.json`` and ``metrics.jsonl``.

    Dots are evaluations, placed at the number of finished iterations; thin lines are training
    rollouts. What was not recorded is left out. Where there are rewards besides accuracy and
    format, they stand below, beside accuracy: a reward model's reward that rises while accuracy
    falls is being hacked. The figure belongs to no pyplot state. ``run`` names model and seed, for
    the caption.
    """
    others = sorted(
        {name for e in evaluations for name in e.get("rewards") or ()} - {"accuracy", "format"}
    )
    figure = Figure(figsize=(11, 10.6 if others else 7.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(3 if others else 2, 2).flat)
    accuracy, length, reflection, health, *below = panels
    _plot_accuracy(accuracy, evaluations, iterations)
    _plot_length(length, evaluations, iterations)
    _plot_reflection(reflection, evaluations, iterations)
    _plot_health(health, evaluations, iterations)
    if others:
        _plot_rewards(below[0], below[1], evaluations, others)
    last = _last(evaluations, iterations)
    for axes in panels:
        _finish(axes, last)
    add_caption(figure, _caption(evaluations, run))
    return figure


def plot_losses(
    evaluations: Sequence[Record], iterations: Sequence[Record], run: str = ""
) -> Figure:
    """Return a figure of a run that rolls nothing out: losses, and how it was trained."""
    figure = Figure(figsize=(11, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    loss, norm, rate = figure.subplots(1, 3)
    loss.set(title="Loss", ylabel="loss")
    _line(loss, iterations, "loss", BLACK, "training")
    _dots(loss, _points(evaluations, lambda e: e.get("loss")), BLUE, "held out")
    norm.set(title="Gradient norm", ylabel="before clipping")
    _line(norm, iterations, "grad_norm", PURPLE, "training")
    rate.set(title="Learning rate", ylabel="learning rate")
    rate.yaxis.set_major_formatter("{x:.2g}")  # a power beside the axis would cover the legend
    _line(rate, iterations, "learning_rate", VERMILION, "training")
    last = _last(evaluations, iterations)
    for axes in (loss, norm, rate):
        _finish(axes, last)
    add_caption(figure, run)
    return figure


def _last(evaluations: Sequence[Record], iterations: Sequence[Record]) -> int:
    return max([0, *_x(evaluations), *(x + 1 for x in _x(iterations))])


def _caption(evaluations: Sequence[Record], run: str) -> str:
    parts = [run] if run else []
    last = evaluations[-1] if evaluations else {}
    if last.get("num_problems") and last.get("num_samples"):
        sizes = f"{last['num_problems']} held-out problems × {last['num_samples']} responses"
        parts.append(f"evaluations: {sizes}, s.e. over problems")
    return "; ".join(parts)


def _plot_accuracy(axes: Axes, evaluations: Sequence[Record], iterations: Sequence[Record]) -> None:
    axes.set(title="Accuracy on held-out problems", ylabel="share of problems solved")
    if not any(e.get("pass_at_1") is not None for e in evaluations):
        axes.set(title="Accuracy on training problems")
        _line(axes, iterations, keys.REWARD_ACCURACY, BLACK, "training rollouts")
    x, y = _points(evaluations, lambda e: e.get("pass_at_1"))
    _dots(axes, (x, y), BLUE, "pass@1 (± 1 s.e.)")
    with_error = [e for e in evaluations if e.get("pass_at_1_stderr") is not None]
    low = [e["pass_at_1"] - e["pass_at_1_stderr"] for e in with_error]
    high = [e["pass_at_1"] + e["pass_at_1_stderr"] for e in with_error]
    axes.fill_between(_x(with_error), low, high, color=BLUE, alpha=0.15, linewidth=0)
    names = {name for e in evaluations for name in e if name.startswith(keys.CONS_AT)}
    for name in sorted(names, key=lambda n: int(n.removeprefix(keys.CONS_AT)))[-1:]:
        points = _points(evaluations, lambda e, name=name: e.get(name))  # type: ignore[misc]
        _dots(axes, points, ORANGE, f"cons@{name.removeprefix(keys.CONS_AT)}", marker="s")


def _plot_length(axes: Axes, evaluations: Sequence[Record], iterations: Sequence[Record]) -> None:
    axes.set(title="Response length", ylabel="tokens per response")
    _line(axes, iterations, keys.LENGTH_MEAN, BLACK, "training rollouts")
    for name, color, label, marker in (
        ("response_length_tokens", BLUE, "evaluation", "o"),
        ("response_length_right", GREEN, "right answers", "^"),
        ("response_length_wrong", VERMILION, "wrong answers", "v"),
    ):
        points = _points(evaluations, lambda e, name=name: e.get(name))  # type: ignore[misc]
        _dots(axes, points, color, label, marker, 1.8 if marker == "o" else 0.9)


def _plot_reflection(
    axes: Axes, evaluations: Sequence[Record], iterations: Sequence[Record]
) -> None:
    axes.set(title="Reflection words", ylabel="words per response")
    _line(axes, iterations, keys.REFLECTION_PER_RESPONSE, BLACK, "all ten, training")
    points = _points(evaluations, lambda e: e.get("reflection_words_per_response"))
    _dots(axes, points, BLUE, "all ten, evaluation")
    rates = [e["reflection_words"] for e in evaluations if e.get("reflection_words")]
    most: dict[str, float] = {
        word: max(rate.get(word, 0.0) for rate in rates) for word in (rates[-1] if rates else ())
    }
    top = [word for word in sorted(most, key=lambda w: -most[w])[:NUM_WORDS] if most[word] > 0]
    for word in top:
        points = _points(
            evaluations,
            lambda e, word=word: (e.get("reflection_words") or {}).get(word),  # type: ignore[misc]
        )
        color = WORD_COLORS.get(word, BLACK)
        _dots(axes, points, color, f"“{word}”", marker="s", width=1.2)


def _plot_health(axes: Axes, evaluations: Sequence[Record], iterations: Sequence[Record]) -> None:
    axes.set(title="Health of the rollouts", ylabel="share")
    axes.set_ylim(top=1.0)
    _line(axes, iterations, keys.GROUPS_MIXED, PURPLE, "mixed groups (training)", 1.2)
    points = _points(evaluations, lambda e: e.get("format"))
    _dots(axes, points, BLUE, "well-formed")
    points = _points(evaluations, lambda e: e.get("truncated"))
    _dots(axes, points, VERMILION, "truncated", marker="v")


def _plot_rewards(
    accuracy: Axes, rewards: Axes, evaluations: Sequence[Record], names: Sequence[str]
) -> None:
    """Draw accuracy and, on a scale of their own, the other rewards.

    Where requests are evaluated too, accuracy is that of reasoning: how requests are answered is
    what a reward model is meant to raise.
    """
    several = any(len(e.get("pass_at_1_by_kind") or ()) > 1 for e in evaluations)
    label = "pass@1 of reasoning" if several else "pass@1"
    accuracy.set(title="Accuracy, held-out", ylabel="share of problems solved")
    _dots(accuracy, _points(evaluations, _pass_at_1_of_reasoning), BLUE, label)
    rewards.set(title="The other rewards, held-out", ylabel="mean reward, unweighted")
    colors = (VERMILION, ORANGE, GREEN, PURPLE, SKY, BLACK)
    for name, color in zip(names, itertools.cycle(colors)):
        points = _points(
            evaluations,
            lambda e, name=name: (e.get("rewards") or {}).get(name),  # type: ignore[misc]
        )
        _dots(rewards, points, color, name, marker="s", width=1.2)


def _pass_at_1_of_reasoning(evaluation: Record) -> float | None:
    by_kind = evaluation.get("pass_at_1_by_kind") or {}
    return by_kind.get("reasoning", evaluation.get("pass_at_1"))


def _finish(axes: Axes, last: int) -> None:
    title = axes.get_title()
    axes.set_title("")
    tidy(axes, xlabel="iteration", xlim=(-0.02 * max(last, 1), 1.02 * max(last, 1)))
    bottom, top = axes.get_ylim()
    if all(np.min(line.get_ydata()) >= 0 for line in axes.lines):  # rewards may be below 0
        bottom = 0.0
    space = 0.03 * (top - bottom)
    axes.set_ylim(bottom - space, top + space)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, _ = axes.get_legend_handles_labels()
    if handles:  # between title and axes, where it hides no curve
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 0.99),
            ncols=2 if len(handles) == 4 else 3,
            fontsize=9,
            frameon=False,
            columnspacing=1.2,
            handlelength=1.6,
        )
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#888888")
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=40)


def _x(records: Sequence[Record]) -> list[int]:
    return [record["iteration"] for record in records]


def _points(records: Sequence[Record], value: Callable[[Record], float | None]) -> Points:
    chosen = [(record["iteration"], value(record)) for record in records]
    present = [(x, y) for x, y in chosen if y is not None]
    return [x for x, _ in present], [y for _, y in present]


def _dots(
    axes: Axes, points: Points, color: str, label: str, marker: str = "o", width: float = 1.8
) -> None:
    if points[0]:
        axes.plot(*points, color=color, label=label, marker=marker, markersize=4.5, linewidth=width)


def _line(
    axes: Axes,
    iterations: Sequence[Record],
    name: str,
    color: str,
    label: str,
    width: float = 0.9,
) -> None:
    x, y = _points(iterations, lambda record: record.get(f"train/{name}"))
    if x:
        axes.plot(x, y, color=color, alpha=0.55, linewidth=width, label=label)
