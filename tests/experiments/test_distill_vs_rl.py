"""Distillation against RL: the shipped study on a tiny student, its compute and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from callbacks.tiny_run import TinyModule, trainer_of
from tiny import grpo_config, save_policy
from tiny_sweep import ROOT, data, shortened

from experiments.__main__ import main
from experiments.compose import merge
from experiments.distill_vs_rl.compute import ComputeCount, document_lengths
from experiments.distill_vs_rl.report import as_table
from experiments.sweep import read_sweep
from r1lit.cli import main as fit
from r1lit.files import held, read_records, write_records
from r1lit.policy import load_config
from r1lit.policy.flops import Shape, training_flops
from r1lit.supervised_batches import PackedRows

WORLD = "r1lit.worlds.WorldCountdown"


LIMIT = 1.0e9


def changes(folder: Path, policy: Path, table: Path) -> dict[str, Any]:
    """Return what makes each step small: a tiny student, few documents, tokens and FLOPs."""
    arms = {}
    for arm in ("distilled", "rl"):
        shipped = (ROOT / "experiments" / "distill_vs_rl" / f"{arm}.yaml").read_text()
        assert shipped.count("limit: 8.6e+12, decay_to: 0.1") == 1
        arms[arm] = folder / f"{arm}.yaml"
        arms[arm].write_text(shipped.replace("8.6e+12", str(LIMIT)))
    fast = {"trainer": {"precision": "32-true", "enable_model_summary": False}}
    held_out = {"class_path": WORLD, "init_args": {"split": "held_out", "num_problems": 2}}
    tested = data(test=[held_out], evaluation={"num_samples": 2})["set"]
    tested = merge(tested, {"model": {"init_args": {"sampling": {"max_tokens": 8}}}, **fast})
    student = {"model": {"init_args": {"policy": str(policy)}}}
    distilled = {
        "model": {"init_args": {"policy": str(policy), "micro_batch_tokens": 256}},
        "data": {"init_args": {
            "packing": {"max_seq_len": 64, "train_batch_size": 2},
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
    return {
        "base_evaluation": {"set": merge(tested, student), "reads": [str(policy)]},
        "distilled": {
            "config": [str(arms["distilled"])], "set": distilled, "reads": [str(policy), str(table)]
        },
        "distilled_evaluation": {"set": tested},
        "rl": {"config": [str(arms["rl"])], "set": rl, "reads": [str(policy)]},
        "rl_evaluation": {"set": tested},
    }  # fmt: skip


@pytest.mark.slow
def test_both_arms_end_with_the_same_compute_and_a_tenth_of_the_rate(
    tmp_path, policy, monkeypatch, capsys
):
    monkeypatch.chdir(ROOT)
    table = tmp_path / "sft.jsonl"
    rows = [{"prompt": f"{n} + 1?", "response": f" {n} + 1 = {n + 1}."} for n in range(20)]
    write_records(table, rows)
    small = changes(tmp_path, policy, table)
    arguments = shortened(tmp_path, "distill_vs_rl", small)
    study = yaml.safe_load((tmp_path / "study.yaml").read_text())
    study["steps"] = [step for step in study["steps"] if step["name"] in small]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert main(arguments) == 0, capsys.readouterr().out
    run = tmp_path / "runs/seed-0"
    for arm in ("distilled", "rl"):
        spent = json.loads((run / arm / "compute.json").read_text())
        rates = [line["train/learning_rate"] for line in read_records(run / arm / "metrics.jsonl")]
        one = spent["flops"] / spent["iterations"]  # iterations cost much the same
        assert 2 < spent["iterations"] == len(rates)
        assert spent["limit"] == LIMIT <= spent["flops"] < LIMIT + 1.5 * one
        first = yaml.safe_load((tmp_path / f"{arm}.yaml").read_text())
        first = first["model"]["init_args"]["optimizer"]["init_args"]["lr"]
        assert rates == sorted(rates, reverse=True) and rates[0] == pytest.approx(first)
        assert 0.1 <= rates[-1] / first < 0.6  # of the update before the end: 0.1 at the end
    kept = read_records(tmp_path / "results.jsonl")
    assert [r["arm"] for r in kept] == ["base", "distilled", "rl"]
    assert as_table(kept) in (tmp_path / "README.md").read_text()
    assert (tmp_path / "arms.png").stat().st_size > 10_000

    logs = {path: path.stat().st_mtime_ns for path in (run / "logs").iterdir()}
    assert main(arguments) == 0  # all is finished
    with held(run / ".runner.lock"):  # of another process, which makes the seed
        capsys.readouterr()
        assert main(arguments) == 0
    assert "seed 0  left to another process" in capsys.readouterr().out
    assert logs == {path: path.stat().st_mtime_ns for path in (run / "logs").iterdir()}


def test_both_arms_have_the_same_problems_template_budget_and_number_of_trials():
    folder = ROOT / "experiments" / "distill_vs_rl"
    files = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}
    data = {name: content.get("data", {}).get("init_args", {}) for name, content in files.items()}
    assert data["teacher"]["predict"] == data["rl"]["train"]
    assert data["distilled"]["documents"][0]["init_args"]["template"] == "small_world"
    templates = {data[name]["prompts"]["template"] for name in ("teacher", "rl", "evaluate")}
    assert templates == {"small_world"}
    counts = [
        next(c for c in files[arm]["trainer"]["callbacks"] if "ComputeCount" in c["class_path"])
        for arm in ("rl", "distilled")
    ]
    budgets = [{**count["init_args"], "path": ""} for count in counts]
    assert budgets[0] == budgets[1]
    rates = read_sweep(folder / "study.yaml", "trials").variants
    arms = [name.split("-")[0] for name in rates]
    assert arms.count("rl") == arms.count("distilled") == 3


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
    with pytest.raises(ValueError, match=r"limit: 0\.0 is not above 0"):
        ComputeCount(str(tmp_path / "c.json"), 0.0)


def test_the_evaluation_of_every_trial_reports_what_trials_are_compared_by():
    points = read_sweep(ROOT / "experiments/distill_vs_rl/study.yaml", "trials").points()
    callbacks = [point.config["trainer"]["callbacks"] for point in points]
    assert len(points) == 6
    for own in callbacks:
        assert "r1lit.callbacks.MajorityVoteEvaluation" in [c["class_path"] for c in own]


@pytest.mark.long
def test_a_count_of_rl_is_of_what_its_rollouts_cost(tmp_path):
    path = tmp_path / "compute.json"
    count = {"class_path": "experiments.distill_vs_rl.compute.ComputeCount",
             "init_args": {"path": str(path), "limit": 1e18}}  # fmt: skip
    change = {"trainer": {"limit_val_batches": 0, "callbacks": [count]},
              "data": {"init_args": {"num_iterations": 2}}}  # fmt: skip
    fit(["fit", "-c", str(grpo_config(tmp_path / "run", save_policy(tmp_path / "base"), change))])
    spent = json.loads(path.read_text())
    assert spent["iterations"] == 2 and spent["flops"] > 0 and spent["num_tokens"] > 0


def test_a_module_without_a_policy_has_no_count(tmp_path):
    count = ComputeCount(str(tmp_path / "c.json"), 1.0)
    with pytest.raises(ValueError, match="needs a module with a policy_config; TinyModule has"):
        trainer_of(tmp_path, [count]).fit(TinyModule(num_train=2))
