"""The entropy bonus, its adaptive form, its gradient through the head, and top-entropy tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from objective_cases import FACTORIES
from test_batches import rollout

from r1lit.objectives import GMPO, GSPO, EntropyBonus, GRPOSequence, GSPOToken
from r1lit.policy.linear_logp import linear_logp
from r1lit.steps import TopEntropy

ENTROPY_BT = torch.rand(6, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_the_bonus_is_the_mean_over_tokens_whatever_the_objective(make, batch):
    entropy_BT = ENTROPY_BT.masked_fill(~batch.mask_BT, math.nan).requires_grad_()
    bonus = EntropyBonus(0.1)
    with_bonus = make(terms=[bonus])
    inputs = batch.inputs(entropy_BT=entropy_BT)
    loss = with_bonus.loss(inputs).loss + bonus.loss(inputs, batch.mask_BT, inputs.num_tokens)
    added = loss - make().loss(batch.inputs()).loss
    torch.testing.assert_close(added, -0.1 * ENTROPY_BT[batch.mask_BT].sum() / 15)
    (gradient_BT,) = torch.autograd.grad(loss, entropy_BT)
    torch.testing.assert_close(gradient_BT, torch.where(batch.mask_BT, -0.1 / 15, 0.0).double())
    assert not with_bonus.skips_zero_advantage()


def test_the_adaptive_weight_follows_the_target():
    bonus = EntropyBonus(weight=0.0, target=0.5, step=0.02, largest=0.05)
    seen = []
    for entropy in (0.4, 0.3, 0.5, math.nan, 0.6, 0.7, 0.8, 0.9):
        bonus.end_iteration({"train/entropy": entropy})
        seen.append((round(bonus.weight, 6), bonus.acts))
    assert seen == [(0.02, True), (0.04, True), (0.05, True), (0.05, True), (0.03, False),
                    (0.01, False), (0.0, False), (0.0, False)]  # fmt: skip
    still = EntropyBonus(0.01)
    assert still.end_iteration({"train/entropy": 0.0}) == {"train/entropy_weight": 0.01}
    assert (still.weight, still.acts) == (0.01, True)
    with pytest.raises(ValueError, match="target: -1"):
        EntropyBonus(target=-1)
    with pytest.raises(ValueError, match="share: 0 is not above 0 and below 1"):
        TopEntropy(0)


def test_an_iteration_without_updates_leaves_the_adaptive_weight():
    bonus = EntropyBonus(weight=0.01, target=0.5)
    assert bonus.end_iteration({}) == {"train/entropy_weight": 0.0}
    assert (bonus.weight, bonus.acts) == (0.01, False)


@pytest.mark.parametrize("make", [GRPOSequence, GSPO, GMPO])
def test_one_surrogate_per_response_has_no_top_entropy_tokens(make):
    run: Any = SimpleNamespace(objective=make())
    with pytest.raises(ValueError, match=rf"TopEntropy, but {make.__name__} has one surrogate"):
        TopEntropy(0.2).check(run)
    TopEntropy(0.2).check(SimpleNamespace(objective=GSPOToken()))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_head_s_entropy_has_the_gradient_of_a_plain_softmax(temperature):
    g = torch.Generator().manual_seed(0)
    hidden_KD = torch.randn(7, 6, generator=g).requires_grad_()
    weight_VD = torch.randn(50, 6, generator=g).requires_grad_()
    target_K = torch.randint(50, (7,), generator=g)
    c_K, d_K = torch.randn(7, generator=g), torch.randn(7, generator=g)
    logp_K, entropy_K = linear_logp(hidden_KD, weight_VD, target_K, temperature, True)
    got = torch.autograd.grad((c_K * logp_K + d_K * entropy_K).sum(), (hidden_KD, weight_VD))
    logp_KV = (hidden_KD @ weight_VD.T / temperature).log_softmax(-1)
    plain_K = -(logp_KV.exp() * logp_KV).sum(-1)
    torch.testing.assert_close(entropy_K, plain_K)
    chosen_K = logp_KV.gather(-1, target_K[:, None]).squeeze(-1)
    want = torch.autograd.grad((c_K * chosen_K + d_K * plain_K).sum(), (hidden_KD, weight_VD))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not linear_logp(hidden_KD, weight_VD, target_K)[1].requires_grad


def test_top_entropy_keeps_a_share_and_the_correction():
    mask_BT = torch.ones(6, 4, dtype=torch.bool)
    mask_BT[0] = False  # 20 tokens count, of entropies 0.04 to 0.23
    entropy_BT = torch.arange(24).view(6, 4) / 100
    made = replace(rollout(), loss_mask_BT=mask_BT)
    run: Any = SimpleNamespace(entropies=lambda rollout: entropy_BT)
    kept, metrics = TopEntropy(0.2)(made, run)
    assert kept.weight_BT.flatten().tolist() == [0.0] * 20 + [1.0] * 4
    assert metrics["train/entropy_least"] == pytest.approx(0.20)
    corrected = replace(made, weight_BT=torch.full((6, 4), 0.5))
    kept, _ = TopEntropy(0.2)(corrected, run)
    assert kept.weight_BT.flatten().tolist() == [0.0] * 20 + [0.5] * 4
    one, _ = TopEntropy(1e-6)(made, run)
    assert one.weight_BT.sum() == 1
