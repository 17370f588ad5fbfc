"""DPO on given pairs, and on pairs that the policy drew, through the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from metrics_page import assert_documented
from test_batches import rollout
from test_resume import assert_equal, everything, run_and_kill
from tiny import grpo_config, merge, metrics, model, save_policy
from tiny_reward import reward_config, write_pairs

from r1lit.cli import main
from r1lit.modules.dpo import best_and_worst, log_ratios
from r1lit.policy import Responses, load_policy

DPO = {"class_path": "r1lit.objectives.DPO", "init_args": {"beta": 0.3}}


def dpo_config(run: Path, start: Path, **init_args: Any) -> Path:
    table = run.parent / "pairs.jsonl"
    table = table if table.exists() else write_pairs(table)
    change = {"model": {"class_path": "r1lit.modules.DPOModule"}}
    return reward_config(run, start, table, merge(change, model(objective=DPO, **init_args)))


def online_config(run: Path, policy: Path, **init_args: Any) -> Path:
    """The tiny GRPO run as online DPO, which has no objective of GRPO's."""
    path = grpo_config(run, policy, model(dpo=DPO, **init_args))
    config = yaml.safe_load(path.read_text())
    config["model"]["class_path"] = "r1lit.modules.OnlineDPOModule"
    del config["model"]["init_args"]["objective"]
    path.write_text(yaml.safe_dump(config))
    return path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]


def test_log_ratios_are_those_of_hugging_faces_logits(tmp_path: Path, policy: Path) -> None:
    other = save_policy(tmp_path / "other", seed=8)
    models = [load_policy(str(path)).eval() for path in (policy, other)]
    prompts, ends = [[5, 6, 7], [8]], [[11, 12, 13], [14, 15]]
    padded = torch.tensor([[11, 12, 13], [14, 15, 0]])
    mask_BT = torch.tensor([[True] * 3, [True, True, False]])
    responses = Responses(prompts=prompts, response_BT=padded, mask_BT=mask_BT)
    ratio_B, logp_BT = log_ratios(*models, responses, temperature=0.7)
    for b, (prompt, end) in enumerate(zip(prompts, ends, strict=True)):
        logp = [
            (m.model(torch.tensor([[*prompt, *end]])).logits[0] / 0.7).log_softmax(-1)
            for m in models
        ]
        places = range(len(prompt) - 1, len(prompt) + len(end) - 1)
        a, c = ([float(x[p, t]) for p, t in zip(places, end, strict=True)] for x in logp)
        assert float(ratio_B[b]) == pytest.approx(sum(a) - sum(c), abs=1e-4)
        assert logp_BT[b, : len(end)].tolist() == pytest.approx(a, abs=1e-4)


@pytest.mark.long
def test_given_pairs_are_learnt_and_a_policy_is_exported(tmp_path: Path, policy: Path) -> None:
    cli = main(["fit", "-c", str(dpo_config(tmp_path / "run", policy))])
    lines = metrics(tmp_path / "run")
    assert lines[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-6)  # still the reference
    assert lines[0]["train/reward_margin"] == pytest.approx(0.0, abs=1e-5)
    assert lines[-1]["train/loss"] < 0.4 and lines[-1]["train/pair_accuracy"] == 1.0
    report = json.loads((tmp_path / "run" / "summary.json").read_text())[-1]["reward_model"]
    assert report["num_examples"] == 10 and report["accuracy"] == 1.0
    assert_documented(set(cli.trainer.callback_metrics))
    ended = weights(tmp_path / "run")
    begun, exported = (load_policy(str(p)) for p in (policy, tmp_path / "run" / "policy"))
    for name, value in begun.state_dict().items():
        assert torch.equal(ended[f"reference.{name}"], value), name
    for name, value in exported.state_dict().items():
        assert torch.equal(ended[f"policy.{name}"], value), name


def test_best_and_worst_of_a_group_are_its_pair() -> None:
    made = rollout(reward_PG=torch.tensor([[0.0, 2.0], [1.0, 1.0], [3.0, -1.0]]))
    pairs_N2, has_pairs = best_and_worst(made, torch.tensor([4, 5, 2, 3, 0, 1]))
    assert pairs_N2.tolist() == [[4, 5], [1, 0]] and has_pairs
    pairs_N2, has_pairs = best_and_worst(made, torch.tensor([2, 3]))
    assert pairs_N2.tolist() == [[2, 2]] and not has_pairs
    equal = rollout(reward_PG=torch.ones(3, 2))
    pairs_N2, has_pairs = best_and_worst(equal, torch.tensor([2, 3, 0, 1]))
    assert pairs_N2.tolist() == [[2, 2]] and not has_pairs  # one pair, of however many groups


@pytest.mark.long
def test_pairs_that_the_policy_drew(tmp_path: Path, policy: Path) -> None:
    """The split into micro-batches changes nothing; the better responses become likelier."""
    for name, tokens in (("one", 1024), ("many", 1)):
        cli = main(
            ["fit", "-c", str(online_config(tmp_path / name, policy, micro_batch_tokens=tokens))]
        )
    assert_documented(set(cli.trainer.callback_metrics))
    one, many = weights(tmp_path / "one"), weights(tmp_path / "many")
    for name, value in one.items():
        torch.testing.assert_close(value, many[name], rtol=1e-2, atol=2e-3)
    lines = metrics(tmp_path / "one")
    # two updates of two groups an iteration; of the very first the policy is the reference
    assert all(0 <= line["train/num_pairs"] <= 2 for line in lines)
    margins = [line["train/reward_margin"] for line in lines if "train/reward_margin" in line]
    assert margins[-1] > margins[0] and len(margins) >= 4
    assert max(line["train/mismatch/mean_abs"] for line in lines) < 1e-4


@pytest.mark.long
def test_a_minibatch_of_half_a_group_is_refused(tmp_path: Path, policy: Path) -> None:
    config = online_config(tmp_path / "run", policy, train_batch_size=2)
    with pytest.raises(ValueError, match="train_batch_size: 2 is not a multiple of 4"):
        main(["fit", "-c", str(config)])


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(tmp_path: Path, policy: Path) -> None:
    whole, broken = (online_config(tmp_path / name, policy) for name in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))


@pytest.mark.slow
def test_an_adapter_is_its_own_reference(tmp_path: Path, policy: Path) -> None:
    lora = {"class_path": "peft.LoraConfig", "init_args": {"r": 4, "target_modules": "all-linear"}}
    source = {"path": str(policy), "adapter": lora}
    main(["fit", "-c", str(dpo_config(tmp_path / "run", policy, policy=source))])
    lines = metrics(tmp_path / "run")
    assert lines[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert lines[-1]["train/loss"] < lines[0]["train/loss"]
    assert not any(name.startswith("reference.") for name in weights(tmp_path / "run"))
