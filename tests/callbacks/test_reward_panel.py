"""The panel of the curves that shows rewards beside accuracy."""

from __future__ import annotations

import pytest

from r1lit.callbacks.curves import evaluation_record
from r1lit.callbacks.figures import draw_curves


def test_rewards_besides_accuracy_and_format_stand_beside_accuracy():
    evaluations = [
        evaluation_record(
            i,
            1.0,
            {
                "val/pass_at_1": 0.5 - 0.1 * i,
                "val/reward/accuracy": 0.5,
                "val/reward/format": 1.0,
                "val/reward/helpful_rm": 1.0 + i,
            },
            16,
        )
        for i in range(3)
    ]
    assert evaluations[1]["rewards"] == {"accuracy": 0.5, "format": 1.0, "helpful_rm": 2.0}
    figure = draw_curves(evaluations, [])
    figure.canvas.draw()
    below, right = (ax for ax in figure.axes if len(ax.get_subplotspec().colspan) == 2)
    assert below.lines[0].get_ydata().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert right.lines[0].get_ydata().tolist() == [1.0, 2.0, 3.0]
    shown = [text.get_text() for text in below.get_legend().get_texts()]
    assert shown == ["pass@1", "helpful_rm (right)"]


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
    figure = draw_curves(evaluations, [])
    figure.canvas.draw()
    below, _ = (ax for ax in figure.axes if len(ax.get_subplotspec().colspan) == 2)
    assert below.lines[0].get_ydata().tolist() == pytest.approx([0.6, 0.4, 0.2])
    shown = [text.get_text() for text in below.get_legend().get_texts()]
    assert shown == ["pass@1 of reasoning", "helpful_rm (right)"]
