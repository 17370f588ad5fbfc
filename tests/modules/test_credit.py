"""What counts for how much, through the whole module: the update is the equation's.

DAPO's loss is the mean over the tokens that count, GRPO's the mean over rows of the means over each
row's tokens. In an iteration's only update the ratio is 1, so with weights w of a correction

    loss = -sum of c A w        gradient = -sum of c A w grad log pi        c = 1/N or 1/(B |o|)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import data, model, save_policy_that_ends, step
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.modules import GRPOModule
from r1lit.objectives import AdvantageEstimator
from r1lit.policy import load_policy
from r1lit.rollout import Completion, InProcessEngine, OnFinished, Request
from r1lit.rollout.model_inputs import model_inputs

LIMIT = 3
SGD = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "weight_decay": 0.0}}
NO_VALIDATION = data(validation=None, num_iterations=1) | {
    "trainer": {"limit_val_batches": 0, "val_check_interval": 1}
}


def bias(token_T: Tensor) -> Tensor:
    """What ``Biased`` adds to a token's log-prob, by token and place."""
    return 0.75 * ((token_T + 2 * torch.arange(token_T.shape[-1])) % 5 - 2)


class Biased(InProcessEngine):
    """Tells wrong log-probs: ratios between 0.22 and 4.5."""

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        def told(indices: list[int], completions: list[Completion]) -> None:
            wrong = [
                replace(c, logps=c.logps + bias(c.token_ids))  # type: ignore[operator]
                for c in completions
            ]
            on_finished(indices, wrong)

        super().stream(requests, told)


class Falling(AdvantageEstimator):
    """Credit of its own for each token: the digits earned, less at later ones, of either sign."""

    def estimate(self, rollout: Rollout) -> Tensor:
        place_T = torch.arange(rollout.response_BT.shape[1])
        return rollout.reward_PG.reshape(-1, 1) + 0.5 - 0.4 * place_T


def falling(name: str) -> dict[str, Any]:
    return {
        "class_path": f"r1lit.objectives.{name}",
        "init_args": {"advantage": {"class_path": "test_credit.Falling"}},
    }


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy_that_ends(tmp_path_factory.mktemp("ending"))


@pytest.fixture
def update(fit, ending, tmp_path, monkeypatch):
    """Make one update; return its rollout, its metrics, and the weights after it."""
    seen: list[Rollout] = []
    inner = GRPOModule.update_minibatch

    def watched(self, rollout, *args, **options):
        seen.append(rollout)
        return inner(self, rollout, *args, **options)

    monkeypatch.setattr(GRPOModule, "update_minibatch", watched)

    def run(**change: Any) -> tuple[Rollout, dict[str, float], dict[str, Tensor]]:
        options: dict[str, Any] = {
            "policy": str(ending),
            "sampling": {"max_tokens": LIMIT},
            "optimizer": SGD,
            "max_grad_norm": 0.0,
            "train_batch_size": 16,
            "objective": falling("DAPO"),
        }
        fit("run", NO_VALIDATION, model(**(options | change)))
        (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        (rollout,) = seen
        return rollout, json.loads(line), load_file(tmp_path / "run/policy/model.safetensors")

    return run


def assert_updated(ending, rollout, metrics, weights, coefficient_BT: Tensor) -> None:
    """Loss and weights are those of ``-sum of coefficient * log pi``."""
    policy = load_policy(str(ending))
    responses = model_inputs(rollout, torch.arange(len(rollout.responses)))
    logp_BT = responses.to_rows(policy(responses).logp_K)
    (-(coefficient_BT * logp_BT).sum()).backward()
    assert metrics["train/loss"] == pytest.approx(-float(coefficient_BT.sum()), abs=1e-6)
    moved = 0.0
    for name, parameter in policy.model.named_parameters():
        gradient = 0.0 if parameter.grad is None else parameter.grad
        expected = parameter.detach() - 0.1 * gradient
        torch.testing.assert_close(weights[name], expected, rtol=1e-5, atol=1e-6)
        moved += float((weights[name] - parameter.detach()).abs().sum())
    assert moved > 0.01


@pytest.mark.parametrize("micro_batch_tokens", [10_000, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mask_truncated", [False, True])
@pytest.mark.parametrize("objective", ["DAPO", "GRPO"])
def test_each_token_has_credit_of_its_own(
    update, ending, objective, mask_truncated, micro_batch_tokens
):
    rollout, metrics, weights = update(
        objective=falling(objective),
        steps=[step("MaskTruncated")] if mask_truncated else [],
        micro_batch_tokens=micro_batch_tokens,
    )
    finished = [response.finished for response in rollout.responses]
    assert 0 < sum(finished) < 16, "some end, some are cut"
    counts_BT = torch.arange(LIMIT) < rollout.length_B[:, None]
    if mask_truncated:
        counts_BT &= torch.tensor(finished)[:, None]
    credit_BT = (rollout.reward_PG.reshape(-1, 1) + 0.5 - 0.4 * torch.arange(LIMIT)) * counts_BT
    assert (credit_BT > 0).any() and (credit_BT < 0).any()
    share = 1 / counts_BT.sum()
    if objective == "GRPO":  # rows without a token count as rows
        share = counts_BT / (16 * counts_BT.sum(-1, keepdim=True).clamp(min=1))
    assert_updated(ending, rollout, metrics, weights, share * credit_BT)


def truncated(rho_BT: Tensor, row_B1: Tensor, mean_B1: Tensor) -> Tensor:
    return rho_BT.clamp(max=2.0)


def truncated_by_row(rho_BT: Tensor, row_B1: Tensor, mean_B1: Tensor) -> Tensor:
    return row_B1.clamp(max=2.0).expand_as(rho_BT)


def masked(rho_BT: Tensor, row_B1: Tensor, mean_B1: Tensor) -> Tensor:
    return rho_BT * (rho_BT >= 0.5) * (rho_BT <= 5.0)


def masked_by_row(rho_BT: Tensor, row_B1: Tensor, mean_B1: Tensor) -> Tensor:
    return rho_BT * (mean_B1 >= 0.4) * (mean_B1 <= 2.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "weight"),
    [
        ("TruncatedImportanceSampling", {}, truncated),
        ("TruncatedImportanceSampling", {"level": "sequence"}, truncated_by_row),
        ("MaskedImportanceSampling", {}, masked),
        ("SequenceMaskedImportanceSampling", {"low": 0.4, "high": 2.5}, masked_by_row),
    ],
)
@pytest.mark.parametrize("mask_truncated", [False, True])
def test_a_correction_weighs_loss_and_gradient(
    update, ending, name, options, weight, mask_truncated
):
    """rho = pi / pi_sampler; the objective's own ratio starts at the trainer's log-probs."""
    weighting = {"class_path": f"r1lit.objectives.{name}", "init_args": options}
    rollout, metrics, weights = update(
        steps=[step("MaskTruncated")] * mask_truncated + [step("Correction", weighting=weighting)],
        engine={"class_path": "test_credit.Biased"},
        micro_batch_tokens=100,
    )
    counts_BT = rollout.loss_mask_BT
    bias_BT = bias(rollout.response_BT)
    torch.testing.assert_close(
        rollout.logp_sampler_BT[counts_BT], (rollout.logp_old_BT + bias_BT)[counts_BT]
    )
    log_rho_BT = -bias_BT * counts_BT
    rho_BT, sum_B1 = log_rho_BT.exp(), log_rho_BT.sum(-1, keepdim=True)
    mean_B1 = (sum_B1 / counts_BT.sum(-1, keepdim=True).clamp(min=1)).exp()
    weight_BT = weight(rho_BT, sum_B1.exp(), mean_B1) * counts_BT
    assert (weight_BT != rho_BT * counts_BT).any() and len(weight_BT.unique()) > 2
    num_tokens = counts_BT.sum()
    assert_updated(
        ending, rollout, metrics, weights, weight_BT * rollout.advantage_BT * counts_BT / num_tokens
    )
    rho_N, log_rho_N = rho_BT[counts_BT], log_rho_BT[counts_BT]
    mismatch = {
        "mean_abs": log_rho_N.abs().mean(),
        "max_abs": log_rho_N.abs().max(),
        "k3_kl": (rho_N - log_rho_N - 1).mean(),
        "share_outside": ((rho_N < 0.5) | (rho_N > 2)).float().mean(),
        "effective_sample_size": rho_N.sum() ** 2 / (num_tokens * (rho_N**2).sum()),
    }
    for key, value in mismatch.items():
        assert metrics[f"train/mismatch/{key}"] == pytest.approx(float(value), rel=1e-4), key


@pytest.mark.long
def test_where_no_token_counts_there_is_no_mean_over_tokens(update, ending):
    """Every response is cut, and left out: no gradient, and no metric that would say 0."""
    rollout, metrics, weights = update(
        policy=str(ending),
        steps=[step("MaskTruncated")],
        sampling={"max_tokens": 1, "stop": []},
        rewards=[{"class_path": "tiny.DigitShare"}],
        engine={"class_path": "test_credit.NeverEnding"},
    )
    assert not rollout.loss_mask_BT.any() and rollout.mask_BT.all()
    before = load_file(ending / "model.safetensors")
    assert all(torch.equal(weights[name], before[name]) for name in weights)
    assert metrics["train/loss"] == metrics["train/grad_norm"] == 0
    assert metrics["train/num_tokens"] == 16
    over_tokens = ("entropy", "clip_fraction", "approx_kl_old", "mismatch/mean_abs")
    assert not {f"train/{name}" for name in over_tokens} & set(metrics)
    assert not [name for name in metrics if "mismatch" in name]


class NeverEnding(InProcessEngine):
    """Ends no row before the limit."""

    def stopping_criterion(self, sampling: Any, samples: Any) -> Any:
        return lambda token_R, response_BT, rows, token: torch.zeros_like(token_R, dtype=torch.bool)
