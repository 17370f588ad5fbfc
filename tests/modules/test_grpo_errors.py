"""Bad input: one clear error each, naming the key, the value and what would be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import data, grpo_config, model
from transformers import AutoModelForCausalLM

from r1lit.cli import main

GRPO = "r1lit.objectives.GRPO"
QUICK = ["--data.init_args.num_iterations", "1", "--trainer.limit_val_batches", "0"]
EMPTY = [{"class_path": "r1lit.worlds.WorldCountdown", "init_args": {"num_problems": 0}}]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (model(policy="no/such/directory"), "policy: the directory 'no/such/directory' does not"),
        (model(train_batch_size=6), "train_batch_size: 6 does not divide 4 prompts x 4 responses"),
        (model(micro_batch_tokens=0), "micro_batch_tokens: 0 is not at least 1"),
        (data(rollout={"group_size": 1}), "group_size: 1 is below 2"),
        (model(sampling={"max_tokens": 400}), "max_tokens: 400 after a prompt of"),
        (model(sampling={"temperature": -1.0}), "temperature: -1.0 is not at least 0; 0 is greedy"),
        (
            model(collector="r1lit.collect.DynamicSampling"),
            "num_reserve_prompts: 0",
        ),
        (data(train=EMPTY), "num_problems: 0"),
        (data(prompts={"max_tokens": 20}), "data.prompts.max_tokens"),
        (data(prompts={"template": "no question"}), "template: 'no question'"),
        ({"trainer": {"precision": "bf16-true"}}, "precision: 'bf16-true'"),
        (
            model(objective={"class_path": GRPO, "init_args": {"epsilon": -0.1}}),
            "epsilon: -0.1 is not at least 0; R1 clips at 10",
        ),
        (
            model(objective={"class_path": GRPO + "O"}),
            "objective: r1lit.objectives.GRPOO does not exist; did you mean GRPO?",
        ),
        (
            {"trainer": {"max_epoch": 1}},
            "trainer.max_epoch: the trainer has no such key; did you mean max_epochs?",
        ),
        (model(rewards=[]), "rewards"),
    ],
)
def test_bad_values(tmp_path: Path, policy: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"(?s).*") as error:
        main(["fit", "-c", str(grpo_config(tmp_path / "run", policy, change))])
    assert words in str(error.value)
    assert "\n" not in str(error.value).strip()


@pytest.mark.long
def test_a_wrongly_mapped_answer_column_is_named(tmp_path: Path, policy: Path) -> None:
    table = tmp_path / "sums.jsonl"
    solution = "Two and two are found by counting on from two, twice, and so we arrive at 4."
    table.write_text(json.dumps({"question": "2 + 2?", "solution": solution, "answer": "4"}))
    train = {"class_path": "r1lit.data.TableProblems", "init_args": {"path": str(table)}}
    right = data(train=[train] * 4, validation=None, allow_overlap=True)
    main(["fit", "-c", str(grpo_config(tmp_path / "right", policy, right)), *QUICK])
    train["init_args"]["answer"] = "solution"
    config = grpo_config(tmp_path / "wrong", policy, right)
    with pytest.raises(ValueError, match=r"^data.train: none of 4 gold answers of source 'sums'"):
        main(["fit", "-c", str(config)])


def test_unknown_key_is_named(tmp_path: Path, policy: Path) -> None:
    config = grpo_config(tmp_path / "run", policy, model(rows_per_updat=8))
    with pytest.raises(ValueError, match=r"^model.rows_per_updat: GRPOModule has no such key"):
        main(["fit", "-c", str(config)])


@pytest.mark.long
def test_non_finite_reward_stops_with_the_checkpoint_intact(fit, tmp_path: Path) -> None:
    exploding = model(rewards=[{"class_path": "tiny.Exploding", "init_args": {"after": 3}}])
    quiet = {"trainer": {"limit_val_batches": 0, "callbacks": [_checkpoint(tmp_path)]}}
    with pytest.raises(ValueError, match="'exploding' returned nan for response 1 of"):
        fit("run", exploding, quiet)
    state = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=False)
    assert int(state["state_dict"]["iteration"]) == 3


@pytest.mark.long
def test_non_finite_loss_changes_no_weight(fit, tmp_path: Path, policy: Path) -> None:
    cli = fit("run", {"trainer": {"limit_val_batches": 0, "callbacks": []}}, data(num_iterations=1))
    module = cli.model
    broken = tmp_path / "broken"
    weights = AutoModelForCausalLM.from_pretrained(policy)
    with torch.no_grad():
        weights.lm_head.weight[5] = float("inf")
    weights.save_pretrained(broken)
    module.tokenizer.save_pretrained(broken)
    with pytest.raises(ValueError, match=r"not finite|is nan|is inf") as error:
        fit("second", model(policy=str(broken)), {"trainer": {"callbacks": []}})
    assert "iteration 0" in str(error.value) or "policy" in str(error.value)


def _checkpoint(tmp_path: Path) -> dict[str, Any]:
    return {
        "class_path": "r1lit.callbacks.IterationCheckpoint",
        "init_args": {"dirpath": str(tmp_path / "checkpoints")},
    }
