"""The experiment on process rewards: its numbers by hand, and its shortest version for real."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from tiny_sweep import ROOT, in_process, shortened, study_file

from experiments.__main__ import main
from experiments.compose import merge
from experiments.process_rewards.choosing import accuracies, best, mean_over_models, vote
from experiments.process_rewards.measure import SAMPLING, label_errors
from experiments.process_rewards.report import models_table
from experiments.process_rewards.solutions import generate
from experiments.sweep import read_sweep
from r1lit.batches import Problem
from r1lit.cli import main as r1lit
from r1lit.files import read_records, write_records
from r1lit.policy import load_tokenizer


def test_errors_of_labels_by_hand():
    value_K, true_K = np.array([0.5, 0.25, 0.0]), np.array([1.0, 0.0, 0.0])
    (one, two) = label_errors(
        {2: np.array([0.5, 0.5, 0.0]), 1: np.array([1.0, 1.0, 0.0])}, value_K, 4, true_K
    )
    assert (one["n"], two["n"]) == (1, 2)
    assert one["rmse"] == pytest.approx(((0.25 + 0.5625) / 3) ** 0.5)
    spread = (0.25 + 0.1875) / 3 * 4 / 3
    assert two["expected"] == pytest.approx((spread * (1 / 2 + 1 / 4)) ** 0.5)
    assert one["hard"] == pytest.approx(2 / 3) and one["optimistic"] == 1 / 2


def test_choosing_by_hand():
    answers, scores = ["7", "8", "7", None], [0.2, 0.5, 0.4, 0.9]
    assert best(scores)([0, 1, 2]) == 1
    assert vote(answers, [1.0] * 4)([0, 1, 2, 3]) == 0
    assert vote(answers, scores)([0, 1, 2, 3]) == 2  # 0.6 for 7, and its better response
    assert vote(answers, scores)([1, 0]) == 1 and vote(answers, scores)([3]) == 3
    right = [[True, False, False, False]]
    rows = accuracies(right, {"first": [best([1.0, 0, 0, 0])], "last": [best(scores)]}, (1, 4))
    found = {(row["method"], row["n"]): row["accuracy"] for row in rows}
    assert found["first", 4] == 1.0 and found["last", 4] == 0.0
    assert 0 < found["first", 1] == found["last", 1] < 0.6


def test_a_vote_is_not_negative():
    with pytest.raises(ValueError, match=r"weights: -0.5 is below 0"):
        vote(["3", "4"], [0.5, -0.5])


def test_a_mean_over_models_is_that_of_each_problem():
    row = {"method": "a", "n": 4}
    both = mean_over_models([{**row, "shares": [1.0, 1, 1, 0]}, {**row, "shares": [0.0, 0, 1, 1]}])
    assert both["shares"] == [0.5, 0.5, 1.0, 0.5] and both["accuracy"] == 0.625


def test_what_another_run_has_kept_is_not_used(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(ROOT / "models" / "mini"))
    asked = [Problem(uid=uid, question="?", answer="", source="s") for uid in "ab"]
    path = tmp_path / "held_out.jsonl"
    row = {"token_ids": [5], "text": "x", "right": False, "canonical": None}
    engine = SimpleNamespace(model=SimpleNamespace(tokenizer=tokenizer))
    write_records(path, [row | {"uid": "a"}, row | {"uid": "b"}])
    assert [len(own) for own in generate(engine, asked, 1, SAMPLING, path)] == [1, 1]
    write_records(path, [row | {"uid": "a"}, row | {"uid": "c"}])
    with pytest.raises(ValueError, match="1 of 2 responses are to other problems"):
        generate(engine, asked, 1, SAMPLING, path)


@pytest.mark.slow
def test_the_shortest_version(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    words = {s["name"]: s.get("arguments") for s in yaml.safe_load(
        study_file("process_rewards").read_text())["steps"]}  # fmt: skip
    changes = {n: {"arguments": [*words[n], "--short"]} for n in ("labels", "choosing")}
    arguments = shortened(tmp_path, "process_rewards", changes)
    content = yaml.safe_load((tmp_path / "study.yaml").read_text())
    text = json.dumps(content).replace(
        "runs/process_rewards/made/seed-0", f"{tmp_path}/runs/seed-0"
    )
    content = json.loads(text.replace("runs/process_rewards/models", f"{tmp_path}/models"))
    grid = next(step for step in content["steps"] if "grid" in step)["grid"]["labels"]
    for fragment in grid.values():  # two updates of each model
        few = {"data": {"init_args": {"num_iterations": 2, "train_batch_size": 8}}}
        fragment.update(merge(fragment, few))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    assert main(arguments, in_process) == 0, capsys.readouterr().err
    page = (tmp_path / "README.md").read_text()
    for part in ("| 4 |", "| prm-exact |", "| outcome model |", "![process_rewards]"):
        assert part in page, part
    kept = read_records(tmp_path / "results.jsonl")
    assert models_table([record for record in kept if record["table"] == "models"]) in page
    counts = tmp_path / "runs" / "seed-0" / "labels" / "counts.jsonl"
    before = page, counts.read_text()
    assert main(arguments, in_process) == 0  # all is finished
    assert before == ((tmp_path / "README.md").read_text(), counts.read_text())
    # each variant of the reinforcement learning makes an iteration with the model that came of it
    model = tmp_path / "models" / "prm-soft" / "seed-0" / "policy"
    source = (ROOT / "experiments/process_rewards/rl/study.yaml").read_text()
    content = source.replace("runs/process_rewards/models/prm-soft/seed-0/policy", str(model))
    sweep_file = tmp_path / "rl.yaml"
    sweep_file.write_text(content)
    sweep = read_sweep(sweep_file)
    short = {"data": {"init_args": {"num_iterations": 2, "evaluation": {"num_samples": 2}}},
             "trainer": {"val_check_interval": 2}}  # fmt: skip
    for variant in sweep.variants:
        config = merge(sweep.point(variant, 0).config, short)
        run = tmp_path / "rl" / variant
        path = tmp_path / f"{variant}.yaml"
        path.write_text(yaml.safe_dump(merge(config, {"run": str(run)})))
        r1lit(["fit", "-c", str(path)])
        lines = read_records(run / "metrics.jsonl")
        assert all(0 <= line["train/reward/process"] <= 1 for line in lines)
        evaluation = json.loads((run / "summary.json").read_text())[-1]
        assert 0 <= evaluation["rewards"]["process"] <= 1 and "accuracy" in evaluation["rewards"]
        if variant == "refreshed":  # it has learnt, and the model as it was is still there
            rewards = evaluation["rewards"]
            assert rewards["process_refreshed"] != rewards["process"]
        shutil.rmtree(run)
