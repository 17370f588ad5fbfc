"""Writers of a run folder's numbers and figures: every iteration, every evaluation."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch import Callback
from lightning.pytorch.trainer.states import TrainerFn

from r1lit.callbacks import keys
from r1lit.callbacks.base import (
    finished_iterations,
    folder_of,
    model_and_seed,
    order_callbacks,
    rollout_of,
    split_of,
)
from r1lit.errors import check_at_least
from r1lit.files import Record, append_records, keep_records, replace_json
from r1lit.metrics.reflection import REFLECTION_WORDS
from r1lit.protocols import ReportsRewards


class CurveWriter(Callback):
    """Writes ``metrics.jsonl``, ``summary.json`` and ``curves.png`` to the run folder.

    The run's end also writes the figure as ``curves.pdf``.

    ``metrics.jsonl`` has one line a training iteration: ``iteration`` (0-based), ``seconds`` and
    every logged training metric under its key. ``summary.json`` is a list of evaluations as
    `evaluation_record` describes them; their ``iteration`` is the number of finished iterations.
    Undefined values (NaN) are left out of lines and are null in evaluations. ``seconds`` is the
    training time so far without evaluations, carried over resumes; work lost in a kill and done
    again counts once.

    Outside a fit, `r1lit validate` and `r1lit test` on a run folder write their one evaluation to
    ``validate.json`` or ``test.json`` and leave the history alone.

    The history survives a resume exactly: at iteration n, lines of iterations >= n and evaluations
    after n are dropped before they are made again; a fresh run starts with empty files.

    An evaluation of a reward model has its whole report under ``reward_model``
    (`r1lit.metrics.reward_models`).

    Args:
        dirpath: Where; the run folder if left out.
        cons_k: The k of cons@k in the evaluations; if there are fewer samples, their number, which
            then names the key.
        draw_every_n_iterations: How often to redraw between evaluations; 0 draws no figure. The
            evaluation before the first iteration draws none.
    """

    position = 1

    dirpath: Path

    def __init__(
        self, dirpath: str | None = None, cons_k: int = 16, draw_every_n_iterations: int = 10
    ) -> None:
        check_at_least("cons_k", cons_k, 1)
        check_at_least("draw_every_n_iterations", draw_every_n_iterations, 0)
        self._given = None if dirpath is None else Path(dirpath)
        self.cons_k = cons_k
        self.draw_every_n_iterations = draw_every_n_iterations
        self._iterations: list[Record] = []
        self._evaluations: list[Record] = []
        self._drawn = (0, 0)  # numbers of both when the figure was last drawn
        self._seconds = 0.0
        self._clock: float | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder, and come after the callbacks whose numbers are kept."""
        self.dirpath = folder_of(self._given, trainer, self)
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Load the history that stands, drop the rest and start the clock."""
        resumed_at = finished_iterations(trainer, pl_module)
        if trainer.is_global_zero:
            self._iterations = keep_records(
                self.dirpath / "metrics.jsonl", lambda line: line["iteration"] < resumed_at
            )
            summary = self.dirpath / "summary.json"
            old = json.loads(summary.read_text()) if summary.exists() and resumed_at else []
            self._evaluations = [e for e in old if e["iteration"] <= resumed_at]
            self._drawn = (0, 0)
            self._write_summary()
        self._clock = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write the line of this iteration."""
        rollout = rollout_of(outputs)
        iteration = (
            rollout.iteration
            if rollout is not None
            else finished_iterations(trainer, pl_module) - 1
        )
        metrics = finite(trainer.callback_metrics)
        line = {"iteration": iteration, "seconds": round(self.seconds, 3)}
        line.update({k: v for k, v in metrics.items() if not k.startswith(("val/", "test/"))})
        if trainer.is_global_zero:
            self._iterations.append(line)
            append_records(self.dirpath / "metrics.jsonl", [line])
            every = self.draw_every_n_iterations
            if every and (iteration + 1) % every == 0:
                self._plot(pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock."""
        self._seconds, self._clock = self.seconds, None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the evaluation, redraw and let the clock go on."""
        if trainer.state.fn != TrainerFn.FITTING:
            self._write_alone(trainer, pl_module, "val")
            return
        if trainer.sanity_checking:
            return
        iteration = finished_iterations(trainer, pl_module)
        metrics = finite(trainer.callback_metrics)
        if trainer.is_global_zero and any(key.startswith("val/") for key in metrics):
            record = evaluation_record(iteration, self.seconds, metrics, self.cons_k)
            record |= _reward_report(pl_module)
            self._evaluations = [e for e in self._evaluations if e["iteration"] != iteration]
            self._evaluations.append(record)
            self._write_summary()
            self._plot(pl_module)
        self._clock = time.monotonic()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the last iterations, as a PDF too."""
        if trainer.is_global_zero and self._iterations:
            self._plot(pl_module, last=True)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the evaluation."""
        self._write_alone(trainer, pl_module, "test")

    def _write_alone(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        metrics = finite(trainer.callback_metrics)
        if trainer.is_global_zero and any(key.startswith(f"{stage}/") for key in metrics):
            iteration = finished_iterations(trainer, pl_module)
            record = evaluation_record(iteration, self.seconds, metrics, self.cons_k, stage)
            record |= _reward_report(pl_module)
            replace_json(self.dirpath / f"{split_of(trainer)}.json", record)

    @property
    def seconds(self) -> float:
        """Training seconds so far, evaluations excluded, over all resumes."""
        running = 0.0 if self._clock is None else time.monotonic() - self._clock
        return self._seconds + running

    def state_dict(self) -> dict[str, Any]:
        """Return the clock."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the clock."""
        self._seconds = state_dict["seconds"]

    def _write_summary(self) -> None:
        replace_json(self.dirpath / "summary.json", self._evaluations)

    def _plot(self, pl_module: pl.LightningModule, last: bool = False) -> None:
        if self.draw_every_n_iterations == 0 or not self._iterations:  # one evaluation is no curve
            return
        is_rollout = any(evaluation["pass_at_1"] is not None for evaluation in self._evaluations)
        is_rollout |= any(f"train/{keys.LENGTH_MEAN}" in line for line in self._iterations)
        from r1lit.callbacks.figures import plot_curves, plot_losses, save_figure  # matplotlib

        draw = plot_curves if is_rollout else plot_losses
        figure = draw(self._evaluations, self._iterations, model_and_seed(pl_module))
        counts = len(self._iterations), len(self._evaluations)
        if counts != self._drawn:
            save_figure(figure, self.dirpath / "curves.png")
            self._drawn = counts
        if last:
            save_figure(figure, self.dirpath / "curves.pdf")


def finite(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the scalar metrics that are defined, with seven significant digits."""
    values = {key: float(value) for key, value in metrics.items()}
    return {key: float(f"{v:.7g}") for key, v in sorted(values.items()) if math.isfinite(v)}


def evaluation_record(
    iteration: int, seconds: float, metrics: dict[str, float], cons_k: int, stage: str = "val"
) -> Record:
    """Return one evaluation of ``summary.json`` from the metrics logged; what is missing is None.

    ``rewards`` is the mean of each reward function by name, ``reflection_words`` per response by
    word, ``onset`` the training iteration at which each word set in, ``loss`` the module's
    validation loss, if any.
    """

    def val(name: str) -> float | None:
        return metrics.get(f"{stage}/{name}")

    def by(prefix: str) -> dict[str, float]:
        return {
            key.removeprefix(prefix): value
            for key, value in metrics.items()
            if key.startswith(prefix)
        }

    k = min(cons_k, int(val(keys.NUM_SAMPLES) or cons_k))
    words = by(f"{stage}/{keys.REFLECTION_WORD}")
    return {
        "iteration": iteration,
        "seconds": round(seconds, 3),
        "pass_at_1": val(keys.PASS_AT_1),
        "pass_at_1_stderr": val(keys.PASS_AT_1_STDERR),
        f"{keys.CONS_AT}{k}": val(f"{keys.CONS_AT}{k}"),
        "pass_at_1_by_source": by(f"{stage}/{keys.PASS_AT_1}/"),
        "pass_at_1_by_kind": by(f"{stage}/{keys.PASS_AT_1_OF_KIND}"),
        "num_problems": _count(val(keys.NUM_PROBLEMS)),
        "num_samples": _count(val(keys.NUM_SAMPLES)),
        "response_length_tokens": val(keys.LENGTH_MEAN),
        "response_length_right": val(keys.LENGTH_RIGHT),
        "response_length_wrong": val(keys.LENGTH_WRONG),
        "thinking_share": val(keys.THINKING_SHARE),
        "truncated": val(keys.LENGTH_TRUNCATED),
        "format": val(keys.REWARD_FORMAT),
        "rewards": by(f"{stage}/{keys.REWARD}"),
        "groups_mixed": val(keys.GROUPS_MIXED),
        "reflection_words_per_response": val(keys.REFLECTION_PER_RESPONSE),
        "reflection_words": {word: words[word] for word in REFLECTION_WORDS if word in words},
        "onset": {w: int(i) for w, i in by(f"train/{keys.REFLECTION_ONSET}").items()},
        "loss": val("loss"),
    }


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _reward_report(pl_module: pl.LightningModule) -> Record:
    report = pl_module.reward_report if isinstance(pl_module, ReportsRewards) else None
    return {} if report is None else {"reward_model": report}


if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RewardFigure(Callback):
    """Draws ``reward_model.png`` and ``.pdf`` after each evaluation of a ``RewardModule``.

    Left, how often what was predicted with a probability came true, beside the diagonal it should
    lie on; the area of a point is the number of predictions. Right, the reward of every held-out
    response against its length in tokens: chosen and rejected, or safe and unsafe.

    Args:
        dirpath: where; the run folder if left out.
    """

    position = 1

    def __init__(self, dirpath: str | None = None) -> None:
        self._given = None if dirpath is None else Path(dirpath)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder, and come after the callbacks that it depends on.

        Raises:
            ValueError: if the module is no reward model.
        """
        if not isinstance(pl_module, ReportsRewards):
            raise ValueError(
                f"RewardFigure: {type(pl_module).__name__} reports on no reward model; RewardModule"
                " does"
            )
        self.dirpath = folder_of(self._given, trainer, self)
        order_callbacks(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        self._plot(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        self._plot(trainer, pl_module)

    def _plot(self, trainer: pl.Trainer, module: Any) -> None:
        if not trainer.is_global_zero or trainer.sanity_checking or module.scored is None:
            return
        from matplotlib.figure import Figure  # at the first figure, not when a run starts

        from r1lit.callbacks.figures import add_caption, save_png_and_pdf

        figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
        left, right = figure.subplots(1, 2)
        plot_reliability(left, module.reward_report)
        plot_lengths(right, module.scored)
        num = module.reward_report["num_examples"]
        add_caption(figure, f"{model_and_seed(module)}; {num} held-out examples")
        save_png_and_pdf(figure, self.dirpath / "reward_model.png")


def plot_reliability(axes: Axes, report: dict[str, Any]) -> None:
    """Draw observed against predicted, bin by bin."""
    from r1lit.callbacks.figures import BLUE, tidy

    rows = [row for row in report["reliability"] if row["count"]]
    total = sum(row["count"] for row in rows)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="what was predicted")
    axes.scatter(
        [row["predicted"] for row in rows],
        [row["observed"] for row in rows],
        s=[20 + 400 * row["count"] / total for row in rows],
        color=BLUE,
        alpha=0.7,
        label="observed; area: number of predictions",
    )
    title = (
        f"calibration error {report['calibration_error']:.3f}, accuracy"
        f" {report['accuracy']:.3f} of {report['num_examples']}"
    )
    tidy(axes, title, xlabel="predicted probability", ylabel="observed share")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def plot_lengths(axes: Axes, scored: Any) -> None:
    """Draw rewards against lengths in tokens."""
    from r1lit.callbacks.figures import GREEN, VERMILION, tidy

    length_NK, reward_NK = scored.length_NK, scored.reward_NK
    if reward_NK.shape[1] == 2:
        sides = [("chosen", length_NK[:, 0], reward_NK[:, 0]),
                 ("rejected", length_NK[:, 1], reward_NK[:, 1])]  # fmt: skip
    else:
        safe_N = scored.label_N > 0.5
        sides = [("safe", length_NK[safe_N, 0], reward_NK[safe_N, 0]),
                 ("unsafe", length_NK[~safe_N, 0], reward_NK[~safe_N, 0])]  # fmt: skip
    for (name, length_N, reward_N), color in zip(sides, (GREEN, VERMILION), strict=True):
        axes.scatter(np.maximum(length_N, 1), reward_N, s=6, alpha=0.5, color=color, label=name)
    tidy(axes, "reward against length", xlabel="length, tokens", ylabel="reward, as trained")
    axes.set_xscale("log")
    axes.legend(frameon=False, fontsize=9)
