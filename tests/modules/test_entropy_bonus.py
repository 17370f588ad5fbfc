"""Entropy bonus and top-entropy tokens in a run of the command line."""

import json
from pathlib import Path

import pytest
from metrics_page import assert_documented
from test_resume import assert_equal, everything
from tiny import data, grpo_config, model, step

from r1lit.cli import main


@pytest.mark.long
def test_an_adaptive_bonus_and_top_entropy_tokens_resume_bit_equal(
    tmp_path: Path, policy: Path
) -> None:
    bonus = {"weight": 0.001, "target": 100.0, "step": 0.002, "largest": 0.006}
    term = {"class_path": "r1lit.objectives.EntropyBonus", "init_args": bonus}
    objective = {"class_path": "r1lit.objectives.DAPO", "init_args": {"terms": [term]}}
    change = model(objective=objective, steps=[step("TopEntropy", share=0.2)])
    change |= data(num_iterations=4)
    change |= {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    main(["fit", "-c", str(grpo_config(whole, policy, change))])
    main(["fit", "-c", str(grpo_config(broken, policy, change | data(num_iterations=2)))])
    again = str(grpo_config(broken, policy, change))
    main(["fit", "-c", again, "--ckpt_path", "last"])
    assert_equal(everything(whole), everything(broken))
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    weights = [round(line["train/entropy_weight"], 6) for line in lines]
    assert weights == [0.0, 0.003, 0.005, 0.006]
    assert all(line["train/entropy_least"] > 0 for line in lines)
    bonus |= {"weight": 0.05, "largest": 0.1}  # another bonus starts with its own weight
    longer = str(grpo_config(whole, policy, change | data(num_iterations=6)))
    main(["fit", "-c", longer, "--ckpt_path", "last", "--resume_changed", "true"])
    changed = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [round(line["train/entropy_weight"], 6) for line in changed[4:]] == [0.0, 0.052]
    assert_documented({key for line in lines for key in line} - {"iteration", "seconds"})
