"""The figure of a reward model: its reliability, and its reward against length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch import Callback

from r1lit.callbacks.stage import folder_of, model_and_seed, order_callbacks

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
        if not hasattr(pl_module, "reward_report"):
            raise ValueError(
                f"RewardFigure: {type(pl_module).__name__} reports on no reward model; RewardModule"
                " does"
            )
        self.dirpath = folder_of(self._given, trainer, self)
        order_callbacks(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        self._draw(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        self._draw(trainer, pl_module)

    def _draw(self, trainer: pl.Trainer, module: Any) -> None:
        if not trainer.is_global_zero or trainer.sanity_checking or module.scored is None:
            return
        from matplotlib.figure import Figure  # at the first figure, not when a run starts

        from r1lit.callbacks.figures import add_caption, save_png_and_pdf

        figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_reliability(left, module.reward_report)
        draw_lengths(right, module.scored)
        num = module.reward_report["num_examples"]
        add_caption(figure, f"{model_and_seed(module)}; {num} held-out examples")
        save_png_and_pdf(figure, self.dirpath / "reward_model.png")


def draw_reliability(axes: Axes, report: dict[str, Any]) -> None:
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


def draw_lengths(axes: Axes, scored: Any) -> None:
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
