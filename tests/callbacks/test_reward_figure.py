"""The figure of a reward model, from runs of the command line on pairs and on labels."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from tiny import data
from tiny_reward import reward_config, write_labels, write_pairs

from r1lit.callbacks.curves import plot_lengths, plot_reliability
from r1lit.cli import main
from r1lit.metrics.reward_models import pair_report
from r1lit.modules.reward import Scored


def with_figure(run: Path) -> list[str]:
    callback = {"class_path": "r1lit.callbacks.RewardFigure", "init_args": {"dirpath": str(run)}}
    return ["--trainer.callbacks+", json.dumps([callback])]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [True, False])
def test_a_run_draws_it_beside_its_summary(tmp_path: Path, policy: Path, pairs: bool) -> None:
    table = (write_pairs if pairs else write_labels)(tmp_path / "table.jsonl")
    run = tmp_path / "run"
    config = reward_config(run, policy, table, data(num_iterations=1), pairs=pairs)
    main(["fit", "-c", str(config), "--trainer.val_check_interval", "1", *with_figure(run)])
    image = matplotlib.image.imread(run / "reward_model.png")
    assert image.shape[0] > 400 and np.ptp(image) > 0.5
    assert json.loads((run / "summary.json").read_text())[-1]["reward_model"]["num_examples"] == 10
    assert (run / "reward_model.pdf").read_bytes().startswith(b"%PDF")
    image_before = (run / "reward_model.png").read_bytes()
    (run / "reward_model.png").unlink()
    main(["test", "-c", str(config), *with_figure(run)])
    assert (run / "reward_model.png").read_bytes()[:8] == image_before[:8]


def test_what_it_draws() -> None:
    reward_NK = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 3.0]])
    length_NK = np.array([[9, 5], [0, 8], [6, 6]])
    report = pair_report(reward_NK, length_NK, "abc", longer_is_better=True)
    left, right = Figure().subplots(1, 2)
    plot_reliability(left, report)
    points = left.collections[0].get_offsets()
    assert np.allclose(points, [[0.27, 0.5], [0.5, 0.5], [0.73, 0.5]], atol=0.01)
    assert "accuracy 0.500 of 3" in left.get_title("left")
    plot_lengths(right, Scored(reward_NK=reward_NK, length_NK=length_NK, label_N=np.ones(3),
                               groups=("a", "b", "c")))  # fmt: skip
    chosen, rejected = (points.get_offsets() for points in right.collections)
    assert np.allclose(chosen, [[9, 2], [1, 0], [6, 3]])  # a length of 0 is drawn at 1: log scale
    assert np.allclose(rejected, [[5, 1], [8, 1], [6, 3]])


def test_it_is_of_reward_models_only(tmp_path: Path, fit) -> None:
    with pytest.raises(ValueError, match="RewardFigure: GRPOModule reports on no reward model"):
        fit("run", args=tuple(with_figure(tmp_path)))
