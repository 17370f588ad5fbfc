"""What every objective owes its caller: splits, padding, clips, and errors that name the key."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from objective_cases import Minibatch, loss_and_grad

from r1lit.objectives import (
    CISPO,
    DAPO,
    DPPO,
    GMPO,
    GRPO,
    GSPO,
    SAPO,
    DrGRPO,
    GroupCentered,
    GRPOSequence,
    PositiveNLL,
)

SPLITS = [[[0, 1, 2], [3, 4, 5]], [[0], [1], [2], [3], [4], [5]], [[5, 0], [2, 4, 1, 3]]]


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_any_split_into_micro_batches_sums_to_the_minibatch(make, batch, split):
    objective = make(beta=0.05)
    loss, grad_BT = loss_and_grad(objective, batch)
    parts = [loss_and_grad(objective, batch[rows], totals=batch) for rows in split]
    torch.testing.assert_close(sum(p[0] for p in parts), loss, rtol=1e-13, atol=1e-15)
    for rows, (_, part_BT) in zip(split, parts, strict=True):
        torch.testing.assert_close(part_BT, grad_BT[rows], rtol=1e-13, atol=1e-15)


def test_mean_totals_per_rank_make_the_averaged_loss_global(make, batch):
    # DDP averages over ranks; two ranks of 2 and 4 rows, whose mean totals are 3 rows, 15/2 tokens.
    objective = make(beta=0.05)
    losses = []
    for rows in ([0, 1], [2, 3, 4, 5]):
        means = {"num_rows": 6 / 2, "num_tokens": batch.mask_BT.sum().item() / 2}
        losses.append(objective.loss(batch[rows].inputs(**means)).loss)
    torch.testing.assert_close(sum(losses) / 2, loss_and_grad(objective, batch)[0])


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_padding_may_hold_anything(make, batch, garbage):
    objective = make(beta=0.05)
    loss, grad_BT = loss_and_grad(objective, batch)
    spoilt = batch.with_(
        **{
            name: torch.where(batch.mask_BT, getattr(batch, name), garbage)
            for name in ("logp_BT", "logp_old_BT", "logp_ref_BT")
        }
    )
    spoilt_loss, spoilt_grad_BT = loss_and_grad(objective, spoilt)
    assert torch.equal(spoilt_loss, loss)
    assert torch.equal(spoilt_grad_BT, grad_BT)
    assert torch.equal(spoilt_grad_BT[~batch.mask_BT], torch.zeros(15).double())
    assert (grad_BT[batch.mask_BT] != 0).sum() >= 4


def test_each_piece_is_finite_in_padding_and_in_empty_rows(make, batch):
    # Diagnostics call the pieces by themselves, so each hides the padding on its own.
    objective, hidden_BT = make(), ~batch.mask_BT
    inputs = batch.inputs(
        logp_BT=batch.logp_BT.masked_fill(hidden_BT, math.nan),
        logp_old_BT=batch.logp_old_BT.masked_fill(hidden_BT, math.nan),
        advantage_BT=batch.advantage_BT.masked_fill(hidden_BT, math.nan),
    )
    log_ratio_BT = objective.log_ratio_BT(inputs.logp_BT, inputs.logp_old_BT, inputs.mask_BT)
    assert log_ratio_BT.isfinite().all()
    assert objective.surrogate_BT(inputs).isfinite().all()
    assert not objective.is_clipped_BT(inputs)[hidden_BT].any()
    assert all(value.isfinite() for value in objective.loss(inputs).metrics.values())
    weight_BT = objective.aggregation_BT(
        batch.mask_BT, num_rows=6, num_tokens=15, dtype=torch.float32
    )
    assert (weight_BT[hidden_BT] == 0).all() and (weight_BT[batch.mask_BT] > 0).all()


def test_a_weight_in_padding_is_not_seen(make, batch):
    objective = make()
    weight_BT = torch.ones_like(batch.logp_BT)
    spoilt_BT = weight_BT.masked_fill(~batch.mask_BT, math.nan)
    loss = objective.loss(batch.inputs(weight_BT=weight_BT)).loss
    assert torch.equal(objective.loss(batch.inputs(weight_BT=spoilt_BT)).loss, loss)
    assert torch.equal(objective.loss(batch.inputs()).loss, loss)


def test_a_weight_weighs_the_surrogate_and_not_the_penalty(make, batch):
    half_BT = torch.full_like(batch.logp_BT, 0.5)
    free, penalised = make(), make(beta=0.05)
    loss = free.loss(batch.inputs()).loss
    torch.testing.assert_close(free.loss(batch.inputs(weight_BT=half_BT)).loss, loss / 2)
    penalty = penalised.loss(batch.inputs()).loss - loss
    weighed = penalised.loss(batch.inputs(weight_BT=half_BT)).loss
    torch.testing.assert_close(weighed, loss / 2 + penalty)


def test_extra_padding_columns_change_nothing(make, batch):
    objective = make(beta=0.05)
    loss, grad_BT = loss_and_grad(objective, batch)
    extra = {
        name: torch.cat([getattr(batch, name), torch.full((6, 3), math.nan).double()], 1)
        for name in ("logp_BT", "logp_old_BT", "logp_ref_BT", "advantage_BT")
    }
    mask_BT = torch.cat([batch.mask_BT, torch.zeros(6, 3, dtype=torch.bool)], 1)
    wide_loss, wide_grad_BT = loss_and_grad(objective, batch.with_(**extra, mask_BT=mask_BT))
    torch.testing.assert_close(wide_loss, loss, rtol=1e-14, atol=1e-16)
    torch.testing.assert_close(wide_grad_BT[:, :5], grad_BT, rtol=1e-14, atol=1e-16)
    assert torch.equal(wide_grad_BT[:, 5:], torch.zeros(6, 3).double())


def test_an_empty_response_adds_nothing_but_its_row(make, batch):
    objective = make(beta=0.05)
    kept = batch[[0, 1, 2, 3, 5]]
    with_empty = loss_and_grad(objective, batch)[0]
    torch.testing.assert_close(loss_and_grad(objective, kept, totals=batch)[0], with_empty)


def test_old_policy_and_reference_are_constants(make, batch):
    old_BT = batch.logp_old_BT.clone().requires_grad_()
    ref_BT = batch.logp_ref_BT.clone().requires_grad_()
    objective = make(beta=0.05)
    logp_BT = batch.logp_BT.clone().requires_grad_()
    inputs = batch.inputs(logp_BT=logp_BT, logp_old_BT=old_BT, logp_ref_BT=ref_BT)
    objective.loss(inputs).loss.backward()
    assert logp_BT.grad is not None and old_BT.grad is None and ref_BT.grad is None


def test_beta_without_a_reference_is_refused_by_name(make, batch):
    inputs = batch.inputs(logp_ref_BT=None)
    with pytest.raises(ValueError, match=r"beta=0\.1"):
        make(beta=0.1).loss(inputs)
    assert make(beta=0.0).loss(inputs).loss.isfinite()


def test_bad_arguments_are_named(make):
    for beta in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="beta: "):
            make(beta=beta)
    with pytest.raises(ValueError, match="kl: 'k4' is not one of"):
        make(kl="k4")


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: GRPO(epsilon=-0.1), "epsilon: -0.1"),
        (lambda: GRPOSequence(epsilon=-0.1), "epsilon: -0.1"),
        (lambda: DrGRPO(max_tokens=4, epsilon=-0.1), "epsilon: -0.1"),
        (lambda: DrGRPO(max_tokens=0), "max_tokens: 0"),
        (lambda: DAPO(epsilon_low=-0.1), "epsilon_low: -0.1"),
        (lambda: DAPO(epsilon_high=-0.1), "epsilon_high: -0.1"),
        (lambda: GSPO(epsilon_high=math.nan), "epsilon_high: nan"),
        (lambda: CISPO(epsilon_low=-0.1), "epsilon_low: -0.1"),
        (lambda: CISPO(epsilon_high=-0.1), "epsilon_high: -0.1"),
        (lambda: GMPO(epsilon_low=-0.1), "epsilon_low: -0.1"),
        (lambda: SAPO(tau_negative=0), "tau_negative: 0"),
        (lambda: DPPO(divergence="js"), "divergence: 'js'"),
        (lambda: DPPO(threshold=-1), "threshold: -1"),
        (lambda: DPPO(max_ratio=0.5), "max_ratio: 0.5"),
    ],
)
def test_a_negative_clip_is_refused_by_name(build, key):
    with pytest.raises(ValueError, match=f"^{key}"):
        build()


def one_token(log_ratio: float, advantage: float, dtype=torch.float64) -> Minibatch:
    return Minibatch(
        logp_BT=torch.tensor([[log_ratio]], dtype=dtype),
        logp_old_BT=torch.zeros(1, 1, dtype=dtype),
        logp_ref_BT=torch.zeros(1, 1, dtype=dtype),
        advantage_BT=torch.tensor([[advantage]], dtype=dtype),
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
    )


@pytest.mark.parametrize(
    "objective", [GRPO(epsilon=10.0), GRPOSequence(), DrGRPO(max_tokens=1, epsilon=10.0)]
)
def test_epsilon_ten_caps_above_at_eleven_and_never_clips_below(objective):
    # A > 0, ratio 20: capped at 11, no gradient. A > 0, ratio 10: free.
    loss, grad_BT = loss_and_grad(objective, one_token(math.log(20), 2.0))
    assert loss.item() == pytest.approx(-22.0) and grad_BT.item() == 0.0
    loss, grad_BT = loss_and_grad(objective, one_token(math.log(10), 2.0))
    assert loss.item() == pytest.approx(-20.0) and grad_BT.item() == pytest.approx(-20.0)
    # A < 0: no ratio, however small, is clipped.
    for ratio in (1e-12, 0.05, 0.5, 20.0):
        loss, grad_BT = loss_and_grad(objective, one_token(math.log(ratio), -2.0))
        assert loss.item() == pytest.approx(2 * ratio)
        assert grad_BT.item() == pytest.approx(2 * ratio)


@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_a_ratio_beyond_float32_leaves_no_nan(make, advantage):
    # exp(200) is infinite in float32; where the clip acts, or A is 0, it must not be met.
    loss, grad_BT = loss_and_grad(make(), one_token(200.0, advantage, torch.float32))
    assert loss.isfinite() and grad_BT.isfinite().all()


def test_default_advantages_are_the_papers():
    names = {
        type(o).__name__: type(o.advantage).__name__
        for o in (GRPO(), GRPOSequence(), DrGRPO(max_tokens=1), DAPO(), GSPO(), CISPO())
    }
    assert names.pop("DrGRPO") == "GroupCentered"
    assert set(names.values()) == {"GroupNormalized"} and len(names) == 5


def test_advantage_can_be_replaced(make):
    advantage = GroupCentered()
    assert make(advantage=advantage).advantage is advantage


class WithBonus(GRPO):
    """Adds a term of its own that does not depend on the advantage."""

    def surrogate_BT(self, inputs):
        return super().surrogate_BT(inputs) - 0.1 * inputs.logp_BT


def test_rows_without_advantage_may_be_left_out_unless_something_else_pays(make):
    assert make().skips_zero_advantage()
    assert not make(beta=0.01).skips_zero_advantage()
    assert not WithBonus().skips_zero_advantage()


def test_right_responses_can_be_made_likelier_besides(make, batch):
    """VAPO's positive term: its weight times the mean of -log pi over right responses' tokens."""
    right_B = torch.tensor([True, False, True, False, True, False])
    term = PositiveNLL(0.1)
    with_it, without = make(terms=[term]), make()
    logp_BT = batch.logp_BT.clone().requires_grad_()
    inputs = batch.inputs(logp_BT=logp_BT)
    right_BT = batch.mask_BT & right_B[:, None]
    rollout: Any = SimpleNamespace(loss_mask_BT=batch.mask_BT, is_right_B=right_B)
    assert torch.equal(term.tokens_BT(rollout), right_BT)
    loss = with_it.loss(inputs).loss + term.loss(inputs, right_BT, 6.0)  # 5 + 1 + 0 tokens
    added = loss - without.loss(batch.inputs(logp_BT=logp_BT)).loss
    torch.testing.assert_close(added, -0.1 * logp_BT[right_BT].sum() / 6.0)
    (gradient_BT,) = torch.autograd.grad(added, logp_BT)
    torch.testing.assert_close(gradient_BT, torch.where(right_BT, -0.1 / 6.0, 0.0).double())
    assert not with_it.skips_zero_advantage()
    with pytest.raises(ValueError, match="weight: -1 is not above 0"):
        PositiveNLL(-1)


def test_punished_responses_that_the_policy_has_left_teach_nothing(make):
    """V3.2's mask: mean log sampler/policy is 0.75 in two rows, 0.25 in the last, threshold 0.5."""
    logp_BT = torch.tensor([[-1.5, -2.0], [-1.5, -2.0], [-1.0, -1.5]], dtype=torch.float64)
    three = Minibatch(
        logp_BT=logp_BT,
        logp_old_BT=logp_BT.clone(),
        logp_ref_BT=logp_BT - 0.5,
        advantage_BT=torch.tensor([[-1.0], [1.0], [-1.0]]).double().expand(3, 2),
        mask_BT=torch.ones(3, 2, dtype=torch.bool),
    )
    sampled_BT = torch.full((3, 2), -1.0).double()
    leaf_BT = logp_BT.clone().requires_grad_()
    masked = make(off_policy_threshold=0.5)
    outputs = masked.loss(three.inputs(logp_BT=leaf_BT, logp_sampler_BT=sampled_BT))
    (gradient_BT,) = torch.autograd.grad(outputs.loss, leaf_BT)
    assert gradient_BT[0].tolist() == [0, 0] and (gradient_BT[1:] != 0).all()
    assert outputs.metrics["off_policy"] == 2
    assert "off_policy" not in make().loss(three.inputs()).metrics
    # against pi_old, which is the policy here, nothing is left out; a KL penalty stays everywhere
    assert masked.loss(three.inputs()).loss == make().loss(three.inputs()).loss
    leaf_BT = logp_BT.clone().requires_grad_()
    penalised = make(off_policy_threshold=0.5, beta=0.1)
    loss = penalised.loss(three.inputs(logp_BT=leaf_BT, logp_sampler_BT=sampled_BT)).loss
    assert (torch.autograd.grad(loss, leaf_BT)[0][0] != 0).all()
    with pytest.raises(ValueError, match="off_policy_threshold: -1"):
        make(off_policy_threshold=-1)
