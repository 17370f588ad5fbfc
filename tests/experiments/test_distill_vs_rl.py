"""Distillation against RL: the shipped study on a tiny student, its compute and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_sweep import ROOT, data, shortened, study_file

from benchmarks.flops import Shape, training_flops
from experiments.__main__ import main
from experiments.compose import merge
from experiments.distill_vs_rl.compute import ComputeCount, document_lengths
from experiments.distill_vs_rl.report import as_table
from experiments.launch import held
from r1lit.batches import PackedRows
from r1lit.files import read_records, write_records
from r1lit.policy import load_config

WORLD = "r1lit.worlds.WorldCountdown"


def changes(policy: Path, table: Path) -> dict[str, Any]:
    """Return what makes each step small: a tiny student, few documents, few tokens."""
    fast = {"trainer": {"precision": "32-true", "enable_model_summary": False}}
    held_out = {"class_path": WORLD, "init_args": {"split": "held_out", "num_problems": 2}}
    tested = data(test=[held_out], evaluation={"num_samples": 2})["set"]
    tested = merge(tested, {"model": {"init_args": {"sampling": {"max_tokens": 8}}}, **fast})
    student = {"model": {"init_args": {"policy": str(policy)}}}
    distilled = {
        "model": {"init_args": {"policy": str(policy), "micro_batch_tokens": 256}},
        "data": {"init_args": {
            "packing": {"max_seq_len": 64, "train_batch_size": 2}, "num_iterations": 4,
            "documents": [{"class_path": "r1lit.data.CuratedDocuments",
                           "init_args": {"path": str(table)}}],
        }},
        **fast,
    }  # fmt: skip
    rl = {
        "model": {"init_args": {
            "policy": str(policy), "objective": {"init_args": {"max_tokens": 8}},
            "sampling": {"max_tokens": 8}, "train_batch_size": 4, "micro_batch_tokens": 512,
        }},
        "data": {"init_args": {
            "train": [{"class_path": WORLD, "init_args": {"num_problems": 4}}],
            "rollout": {"prompts_per_iteration": 2, "group_size": 2},
        }},
        **fast,
    }  # fmt: skip
    spent = "runs/distill_vs_rl/distilled/compute.json"
    return {
        "base_evaluation": {"set": merge(tested, student), "reads": [str(policy)]},
        "distilled": {"set": distilled, "reads": [str(policy), str(table)]},
        "distilled_evaluation": {"set": tested},
        "rl": {"set": rl, "reads": [str(policy), spent]},
        "rl_evaluation": {"set": tested},
    }


@pytest.mark.slow
def test_rl_ends_when_it_has_computed_as_much_as_distillation(
    tmp_path, policy, monkeypatch, capsys
):
    monkeypatch.chdir(ROOT)
    table = tmp_path / "sft.jsonl"
    rows = [{"prompt": f"{n} + 1?", "response": f" {n} + 1 = {n + 1}."} for n in range(20)]
    write_records(table, rows)
    arguments = shortened(tmp_path, "distill_vs_rl", changes(policy, table))
    assert main(arguments) == 0, capsys.readouterr().out
    run = tmp_path / "runs/seed-0"
    spent = {
        arm: json.loads((run / arm / "compute.json").read_text()) for arm in ("distilled", "rl")
    }
    assert spent["distilled"]["iterations"] == 12 and spent["distilled"]["limit"] is None
    limit, rl = spent["distilled"]["flops"], spent["rl"]
    assert rl["limit"] == limit <= rl["flops"]
    one = rl["flops"] / rl["iterations"]  # iterations cost much the same
    assert 1 < rl["iterations"] < 1000 and rl["flops"] < limit + 1.5 * one
    kept = read_records(tmp_path / "results.jsonl")
    assert [r["arm"] for r in kept] == ["base", "distilled", "rl"]
    readme = (tmp_path / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == ["| base", "| distilled", "| rl"]
    assert f"{limit:.2e}" in rows[2] and as_table(kept) in readme
    assert "![arms](arms.png)" in readme and (tmp_path / "arms.png").stat().st_size > 10_000

    logs = {path: path.stat().st_mtime_ns for path in (run / "logs").iterdir()}
    assert main(arguments) == 0  # all is finished
    with held(run / ".runner.lock"):  # of another process, which makes the seed
        capsys.readouterr()
        assert main(arguments) == 0
    assert "seed 0  left to another process" in capsys.readouterr().out
    assert logs == {path: path.stat().st_mtime_ns for path in (run / "logs").iterdir()}

    table.write_text(table.read_text().replace("+ 1?", "and 1?"))
    assert main(arguments) == 0  # afresh, and RL too if its limit is another
    made = {path.stem for path, time in logs.items() if path.stat().st_mtime_ns != time}
    assert {"distilled", "distilled_evaluation"} <= made and "base_evaluation" not in made


def test_arms_are_asked_in_the_template_of_their_training():
    steps = {s["name"]: s for s in yaml.safe_load(study_file("distill_vs_rl").read_text())["steps"]}
    shared = yaml.safe_load((ROOT / "experiments/distill_vs_rl/evaluate.yaml").read_text())
    asked = {}
    for arm in ("base", "distilled", "rl"):
        config = merge(shared, steps[f"{arm}_evaluation"]["set"])
        asked[arm] = config["data"]["init_args"]["prompts"]["template"]
    assert asked == {"base": "chat", "distilled": "chat", "rl": "small_world"}


def test_documents_are_counted_up_to_what_predicts_their_last_target(tmp_path, policy):
    """Two documents of a row, of 5 and 3 tokens, and padding that is no target."""
    batch = PackedRows(
        iteration=0,
        input_ids_RL=torch.arange(10)[None],
        position_ids_RL=torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1]]),
        loss_mask_RL=torch.tensor(
            [[False, False, True, True, True, False, True, True, False, False]]
        ),
    )
    assert document_lengths(batch) == [4, 2]
    shape = Shape.of(load_config(str(policy)))
    squares = 6 * shape.num_layers * shape.attention_size * (4**2 + 2**2)
    assert training_flops(shape, [4, 2]) == 6 * shape.num_parameters * 6 + squares
    with pytest.raises(ValueError, match=r"limit: 0\.0 FLOPs is not above 0"):
        ComputeCount(str(tmp_path / "c.json"), 0.0)
