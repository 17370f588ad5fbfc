"""The panel of the curves that shows rewards beside accuracy."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from r1lit.callbacks.curves import evaluation_record
from r1lit.callbacks.figures import plot_curves


def test_rewards_besides_accuracy_and_format_stand_beside_accuracy():
    evaluations = [
        evaluation_record(
            i,
            1.0,
            {
                "val/pass_at_1": 0.5 - 0.1 * i,
                "val/reward/accuracy": 0.5,
                "val/reward/format": 1.0,
                "val/reward/helpful_rm": i - 1.0,
            },
            16,
        )
        for i in range(3)
    ]
    assert evaluations[1]["rewards"] == {"accuracy": 0.5, "format": 1.0, "helpful_rm": 0.0}
    figure = plot_curves(evaluations, [])
    figure.canvas.draw()
    *_, below, right = figure.axes
    assert len(figure.axes) == 6, "each scale has axes of its own"
    assert below.lines[0].get_ydata().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert right.lines[0].get_ydata().tolist() == [-1.0, 0.0, 1.0] and right.get_ylim()[0] < -1
    assert [shown(axes) for axes in (below, right)] == [["pass@1"], ["helpful_rm"]]


def shown(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_accuracy_beside_a_reward_model_is_that_of_reasoning():
    """Requests that are right more often, as the reward model wants, would hide its fall."""
    evaluations = [
        evaluation_record(
            i,
            1.0,
            {
                "val/pass_at_1": 0.5,
                "val/pass_at_1_of_kind/reasoning": 0.6 - 0.2 * i,
                "val/pass_at_1_of_kind/general": 0.4 + 0.2 * i,
                "val/reward/helpful_rm": 1.0 + i,
            },
            16,
        )
        for i in range(3)
    ]
    assert evaluations[0]["pass_at_1_by_kind"] == {"reasoning": 0.6, "general": 0.4}
    assert evaluations[0]["pass_at_1_by_source"] == {}
    figure = plot_curves(evaluations, [])
    figure.canvas.draw()
    *_, below, _ = figure.axes
    assert below.lines[0].get_ydata().tolist() == pytest.approx([0.6, 0.4, 0.2])
    assert shown(below) == ["pass@1 of reasoning"]
