"""RLHF, search and search as training: each experiment's shortest version, and tables by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from tiny_sweep import ROOT, data, shortened, study_file

from experiments.__main__ import main
from experiments.compose import merge
from experiments.rlhf.report import KL
from experiments.rlhf.report import read as read_rlhf
from experiments.search.report import as_table, read
from experiments.search.training.collector import CriticScorer
from r1lit.batches import Problem
from r1lit.files import append_records, read_records
from r1lit.policy import ModelSource, load_reward_model, load_tokenizer
from r1lit.search import PartialResponse, Query, ValueScorer


def of(*runs: Path) -> SimpleNamespace:
    """Return what stands for a study whose runs these are."""
    return SimpleNamespace(runs=list(runs))


@pytest.mark.slow
def test_rlhf_from_the_base_to_the_curve(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    asked = {"class_path": "r1lit.worlds.WorldRequests", "init_args": {"num_problems": 24}}
    held_out = merge(asked, {"init_args": {"split": "held_out", "num_problems": 8}})
    changes = {
        "sft": data(num_iterations=12),
        "responses": data(predict=[asked], evaluation={"num_samples": 6}),
        "reward_model": {"set": {"trainer": {"max_epochs": 1}}},
        "kl-": merge(
            data(
                num_iterations=3, validation=[held_out],
                rollout={"prompts_per_iteration": 16}, evaluation={"num_samples": 2},
            ),
            {"set": {"trainer": {"val_check_interval": 3}}},
        ),
    }  # fmt: skip
    arguments = shortened(tmp_path, "rlhf", changes)
    assert main(arguments) == 0, capsys.readouterr().out
    run = tmp_path / "runs" / "seed-0"
    arms = read_rlhf(of(run))
    assert [arm["beta"] for arm in arms] == ["0", "0.02", "0.1"]
    for arm in arms:
        beta, lines = arm["beta"], read_records(run / f"kl-{arm['beta']}" / "metrics.jsonl")
        evaluations = arm["evaluations"]
        assert len(lines) == 3 and abs(lines[0][KL]) < 0.05  # the policy is the reference yet
        penalty = lines[2].get("train/kl_in_reward", 0.0)
        assert abs(penalty) < 1e-4 if beta == "0" else penalty != 0
        assert set(evaluations[0]["rewards"]) == {"reward_model", "helpfulness_true"}
        # a reward of weight 0 is measured and not paid
        assert abs(lines[0]["train/reward"] - lines[0]["train/reward/reward_model"]) < 1e-5
    finals = {json.dumps(arm["evaluations"][0]["rewards"]) for arm in arms}
    assert len(finals) == 1, "all coefficients begin with the same policy"
    readme = (tmp_path / "README.md").read_text()
    assert "| 0.02 | 1 |" in readme and "![rlhf](rlhf.png)" in readme
    kept = read_records(tmp_path / "results.jsonl")
    assert kept == arms and all(len(r["iterations"]) == 3 for r in kept)
    log = (run / "logs" / "kl-0.log").stat().st_mtime
    assert main(arguments) == 0
    assert (run / "logs" / "kl-0.log").stat().st_mtime == log, "all is finished"


@pytest.mark.slow
def test_searches_from_the_value_model_to_the_tables(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    few = ["--num-problems=4", "--widest=4"]
    steps = yaml.safe_load(study_file("search").read_text())["steps"]
    words = {step["name"]: step.get("arguments", []) for step in steps}
    changes = {
        "value": data(num_iterations=2),
        "r1": merge(
            data(num_iterations=1, evaluation={"num_samples": 2}),
            {"set": {"trainer": {"val_check_interval": 1}}},
        ),
        "base_searches": {"arguments": [*words["base_searches"], *few]},
        "r1_samples": {"arguments": [*words["r1_samples"], *few]},
    }
    arguments = shortened(tmp_path, "search", changes)
    assert main(arguments) == 0, capsys.readouterr().out
    run = tmp_path / "runs" / "seed-0"
    found = {(p["policy"], p["search"], p["width"], p["noise"]): p for p in read(of(run))}
    assert {key[1] for key in found} >= {"majority", "best-of-n", "beam", "DVTS", "MCTS", "pass@n"}
    assert ("R1-Zero", "majority", 4, 0.0) in found and ("base", "beam", 4, 0.5) in found
    for width in (1, 2, 4):  # nothing finds what was not drawn, and all draws cost the same
        ceiling = found["base", "pass@n", width, 0.0]
        for name in ("majority", "best-of-n", "weighted"):
            point = found["base", name, width, 0.0]
            assert point["value"] <= ceiling["value"] and point["tokens"] == ceiling["tokens"]
    assert found["base", "pass@n", 1, 0.0]["value"] == found["base", "majority", 1, 0.0]["value"]
    readme = (tmp_path / "README.md").read_text()
    assert as_table(read_records(tmp_path / "results.jsonl")) in readme
    assert "| base | MCTS | 4 |" in readme and "![search](search.png)" in readme
    # a line is made once
    lines = read_records(run / "searches.jsonl")
    assert len(lines) == len({(r["search"], r["width"], r["noise"], r["uid"]) for r in lines})


def test_the_critic_in_training_scores_as_a_value_scorer(policy: Path, tmp_path: Path) -> None:
    critic = load_reward_model(str(policy), pad_id=0)
    torch.nn.init.normal_(critic.model.score.weight, std=0.1)
    critic.save_pretrained(tmp_path / "critic")
    load_tokenizer(str(policy)).save_pretrained(tmp_path / "critic")
    scorer = CriticScorer()
    scorer.bind(critic)
    problem = Problem(uid="p", question="?", answer="", source="s")
    query = Query(problem=problem, prompt=(5, 6, 7))
    responses = [
        PartialResponse(query=query, token_ids=(8, 9)),
        PartialResponse(query=query, token_ids=(8, 9, 10), finish_reason="stop"),
    ]
    wanted = ValueScorer(ModelSource(str(tmp_path / "critic"), dtype="float32")).score(responses)
    found = scorer.score(responses)
    assert found == pytest.approx([min(1.0, max(0.0, value)) for value in wanted])
    assert found[0] == pytest.approx(found[1])  # before its end token the second one is the first
    assert critic.training


def test_the_table_of_searches_by_hand(tmp_path: Path) -> None:
    for seed, rights in enumerate([(1.0, 0.0), (0.0, 0.0)]):
        lines = [
            {"policy": "base", "search": name, "width": 2, "noise": noise, "uid": uid,
             "right": right, "tokens": 10 * (seed + 1)}
            for name in ("beam", "majority")
            for noise in ((0.0, 0.5) if name == "beam" else (0.0,))
            for uid, right in zip("ab", rights, strict=True)
        ]  # fmt: skip
        append_records(tmp_path / str(seed) / "searches.jsonl", lines)
    points = read(of(tmp_path / "0", tmp_path / "1"))
    assert [(p["search"], p["noise"]) for p in points] == [
        ("majority", 0.0), ("beam", 0.0), ("beam", 0.5)
    ]  # fmt: skip
    assert all((p["value"], p["tokens"], p["num_seeds"]) == (0.25, 15, 2) for p in points)
    table = as_table(points)
    assert "| base | beam | 2 | 15 | 0.250 | 0.000 to 0.500 |" in table
    assert "| beam | 2 | 0.250 | 0.250 |" in table and "| majority | 2 | 0.250 | –" not in table
