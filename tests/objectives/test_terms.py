"""KL estimators as numbers, the exact expectation of their gradients in a loss; diagnostics."""

from __future__ import annotations

import math

import pytest
import torch

from r1lit.objectives import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    KL_ESTIMATORS,
    GRPOSequence,
    LossInputs,
    k1_BT,
    k2_BT,
    k3_BT,
)
from r1lit.objectives.terms import (
    approx_kl_BT,
    entropy_BT,
    masked_sum,
    mismatch_sums,
    reference_kl_BT,
    unbiased_k3_BT,
)


def test_worked_example():
    # pi = 1/2 against pi_ref = 1/4: d = log(1/4) - log(1/2) = -log 2.
    logp_BT, ref_BT = torch.tensor([[0.5]]).double().log(), torch.tensor([[0.25]]).double().log()
    log2 = 0.6931471805599453
    assert k1_BT(logp_BT, ref_BT).item() == pytest.approx(log2, abs=1e-15)
    assert k2_BT(logp_BT, ref_BT).item() == pytest.approx(log2**2 / 2, abs=1e-15)
    assert k3_BT(logp_BT, ref_BT).item() == pytest.approx(0.5 + log2 - 1, abs=1e-15)
    # The other way round: d = +log 2, so k3 = 2 - log 2 - 1.
    assert k1_BT(ref_BT, logp_BT).item() == pytest.approx(-log2, abs=1e-15)
    assert k3_BT(ref_BT, logp_BT).item() == pytest.approx(1 - log2, abs=1e-15)


def test_names_map_to_their_functions():
    assert {"k1": k1_BT, "k2": k2_BT, "k3": k3_BT} == KL_ESTIMATORS


def test_k3_keeps_its_digits_near_the_reference():
    # e^d - d - 1 = d^2/2 + d^3/6 + ..., lost to rounding when exp(d) - 1 is computed in two steps.
    d = 1e-3
    got = k3_BT(torch.tensor([[0.0]]), torch.tensor([[d]])).item()
    assert got == pytest.approx(d**2 / 2 + d**3 / 6, rel=1e-3)


LOGIT_V = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
REF_V = torch.tensor([0.9, 0.2, -0.4, 0.0], dtype=torch.float64).log_softmax(0)


def expected_gradient(name: str) -> torch.Tensor:
    """Sum over all tokens of pi(token) * gradient of the estimator at that token, pi held fixed."""
    logit_V = LOGIT_V.clone().requires_grad_()
    logp_V = logit_V.log_softmax(0)
    (logp_V.detach().exp() * KL_ESTIMATORS[name](logp_V, REF_V)).sum().backward()
    return logit_V.grad


def gradient_of(divergence) -> torch.Tensor:
    logit_V = LOGIT_V.clone().requires_grad_()
    divergence(logit_V.log_softmax(0)).backward()
    return logit_V.grad


def test_expected_gradient_of_k1_is_zero():
    assert expected_gradient("k1").abs().max() < 1e-15


def test_expected_gradient_of_k2_is_that_of_the_kl():
    reverse_V = gradient_of(lambda logp_V: (logp_V.exp() * (logp_V - REF_V)).sum())
    assert reverse_V.abs().max() > 0.1
    torch.testing.assert_close(expected_gradient("k2"), reverse_V, rtol=1e-12, atol=1e-15)


def test_expected_gradient_of_k3_is_that_of_the_other_kl():
    forward_V = gradient_of(lambda logp_V: (REF_V.exp() * (REF_V - logp_V)).sum())
    reverse_V = gradient_of(lambda logp_V: (logp_V.exp() * (logp_V - REF_V)).sum())
    torch.testing.assert_close(expected_gradient("k3"), forward_V, rtol=1e-12, atol=1e-15)
    assert (forward_V - reverse_V).abs().max() > 0.01


def test_expected_gradient_of_unbiased_k3_is_that_of_the_kl_off_policy_too():
    reverse_V = gradient_of(lambda logp_V: (logp_V.exp() * (logp_V - REF_V)).sum())
    old_V = torch.tensor([-0.3, 1.0, 0.2, 0.0], dtype=torch.float64).log_softmax(0)
    unbiased_V = gradient_of(lambda x_V: (old_V.exp() * unbiased_k3_BT(x_V, REF_V, old_V)).sum())
    plain_V = gradient_of(lambda x_V: (old_V.exp() * k3_BT(x_V, REF_V)).sum())
    torch.testing.assert_close(unbiased_V, reverse_V, rtol=1e-12, atol=1e-15)
    assert (plain_V - reverse_V).abs().max() > 0.05
    far_V = unbiased_k3_BT(torch.tensor([0.0]), torch.tensor([-1.0]), torch.tensor([-200.0]))
    assert far_V.isfinite().all()


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    logp_V = LOGIT_V.log_softmax(0)
    kl = (logp_V.exp() * (logp_V - REF_V)).sum().item()
    means = {n: (logp_V.exp() * f(logp_V, REF_V)).sum().item() for n, f in KL_ESTIMATORS.items()}
    assert math.isclose(means["k1"], kl, rel_tol=1e-12)
    assert math.isclose(means["k3"], kl, rel_tol=1e-12)
    assert not math.isclose(means["k2"], kl, rel_tol=1e-2)


#


NAN = math.nan
MASK_BT = torch.tensor([[True, True, True], [True, False, False]])
OLD_BT = torch.tensor([[0.4, 0.4, 0.4], [0.4, NAN, NAN]], dtype=torch.float64).log()
# Ratios 1.5, 0.5, 1.25 in row 0 (their product 0.9375) and 0.5 in row 1.
LOGP_BT = torch.tensor([[0.6, 0.2, 0.5], [0.2, NAN, NAN]], dtype=torch.float64).log()


def mean(value_BT, mask_BT):
    return masked_sum(value_BT, mask_BT) / mask_BT.sum()


def clip_fraction(objective, inputs: LossInputs):
    clipped_BT = objective.is_clipped_BT(inputs)
    assert objective.metrics(inputs)["clip_fraction"] == clipped_BT.sum()
    return mean(clipped_BT.double(), inputs.mask_BT)


def fraction(objective, *advantages: float) -> float:
    inputs = LossInputs(
        logp_BT=LOGP_BT,
        logp_old_BT=OLD_BT,
        advantage_BT=torch.tensor(advantages, dtype=torch.float64)[:, None].expand(2, 3),
        mask_BT=MASK_BT,
        num_rows=2,
        num_tokens=4,
    )
    return clip_fraction(objective, inputs).item()


@pytest.mark.parametrize(
    ("objective", "advantages", "expected"),
    [
        (GRPO(), (1.0, -1.0), 3 / 4),  # 1.5 and 1.25 above with A > 0; 0.5 below with A < 0
        (GRPO(), (-1.0, 1.0), 1 / 4),  # only the 0.5 of row 0
        (GRPO(), (0.0, -1.0), 1 / 4),  # A = 0: nothing to change
        (GRPO(epsilon=10.0), (1.0, -1.0), 0.0),
        (DAPO(), (1.0, -1.0), 2 / 4),  # 1.25 is within 1.28
        (GRPOSequence(epsilon=0.05), (-1.0, 1.0), 3 / 4),  # 0.9375 < 0.95: all three tokens
        (GRPOSequence(epsilon=0.05), (1.0, -1.0), 1 / 4),
        (GSPO(), (-1.0, -1.0), 1.0),
        (CISPO(epsilon_high=0.28), (1.0, -1.0), 1 / 4),  # 1.5, whatever the sign
        (CISPO(epsilon_high=0.28), (-1.0, 1.0), 1 / 4),
        (CISPO(epsilon_high=0.28), (0.0, 1.0), 0.0),
        (CISPO(epsilon_high=0.28, epsilon_low=0.2), (1.0, 1.0), 3 / 4),
    ],
)
def test_clip_fraction_counts_where_the_clip_changes_the_surrogate(objective, advantages, expected):
    assert fraction(objective, *advantages) == pytest.approx(expected, abs=1e-15)


def test_clip_fraction_agrees_with_zero_gradients(batch):
    # For the clipped surrogates a token is clipped exactly where its gradient vanishes.
    for objective in (GRPO(), DAPO(), GRPOSequence(epsilon=0.2), GSPO()):
        logp_BT = batch.logp_BT.clone().requires_grad_()
        inputs = batch.inputs(logp_BT=logp_BT)
        objective.surrogate_BT(inputs)[batch.mask_BT].sum().backward()
        vanishing = (logp_BT.grad[batch.mask_BT] == 0).double().mean().item()
        got = clip_fraction(objective, inputs)
        assert not got.requires_grad
        assert 0 < got.item() == pytest.approx(vanishing)


def test_ratios_as_each_objective_uses_them():
    tokens = [1.5, 0.5, 1.25, 0.5, 1.0, 1.0]
    for objective, expected in [
        (GRPO(), tokens),
        (CISPO(), tokens),
        (GRPOSequence(), [1.5 * 0.5 * 1.25] * 3 + [0.5] * 3),
        (GSPO(), [(1.5 * 0.5 * 1.25) ** (1 / 3)] * 3 + [0.5] * 3),
    ]:
        assert objective.log_ratio_BT(
            LOGP_BT, OLD_BT, MASK_BT
        ).exp().flatten().tolist() == pytest.approx(expected)


def test_masked_sum():
    value_BT = torch.tensor([[1.0, 2.0, 6.0], [-5.0, NAN, NAN]], requires_grad=True)
    assert masked_sum(value_BT, MASK_BT).item() == 4.0
    assert not masked_sum(value_BT, MASK_BT).requires_grad
    assert masked_sum(value_BT, torch.zeros_like(MASK_BT)).item() == 0.0


def test_approx_kl_to_the_old_policy():
    # k3 on the old policy's tokens: rho - 1 - log rho at 1.5, 0.5, 1.25, 0.5.
    expected = sum(r - 1 - math.log(r) for r in (1.5, 0.5, 1.25, 0.5)) / 4
    kl_BT = approx_kl_BT(LOGP_BT, OLD_BT, MASK_BT)
    assert mean(kl_BT, MASK_BT).item() == pytest.approx(expected, abs=1e-14)


def test_reference_kl_is_the_penalty_of_grpo():
    # The other ratio: 1/rho - 1 + log rho.
    expected = sum(1 / r - 1 + math.log(r) for r in (1.5, 0.5, 1.25, 0.5)) / 4
    kl_BT = reference_kl_BT(LOGP_BT, OLD_BT, MASK_BT)
    assert mean(kl_BT, MASK_BT).item() == pytest.approx(expected, abs=1e-14)


def test_entropy():
    probability_V = [0.5, 0.25, 0.25, 0.0]
    logits_BTV = torch.tensor(probability_V).log().expand(2, 3, 4) + 40.0
    expected = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    torch.testing.assert_close(entropy_BT(logits_BTV), torch.full((2, 3), expected))


def test_entropy_of_bfloat16_logits_is_computed_wide():
    logits_BTV = torch.zeros(1, 1, 1000, dtype=torch.bfloat16)
    entropy = entropy_BT(logits_BTV)
    assert entropy.dtype == torch.float32
    assert entropy.item() == pytest.approx(math.log(1000), rel=1e-5)


def test_mismatch_sums():
    rho = (1.5, 0.5, 1.25, 0.5)
    got = {k: v.item() for k, v in mismatch_sums(LOGP_BT, OLD_BT, MASK_BT).items()}
    assert got == pytest.approx(
        {
            "max_abs": math.log(2),
            "abs": sum(abs(math.log(r)) for r in rho),
            "k3": sum(r - 1 - math.log(r) for r in rho),
            "outside": 0.0,  # 0.5 and 2 are within
            "rho": sum(rho),
            "rho_squared": sum(r * r for r in rho),
        }
    )


def test_ratios_outside_one_half_and_two_are_counted():
    log_rho_BT = torch.tensor([[3.0, 1.9, 0.4]]).log()
    sums = mismatch_sums(log_rho_BT, torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool))
    assert sums["outside"].item() == 2.0
    wild = mismatch_sums(torch.full((1, 3), 200.0), torch.zeros(1, 3), MASK_BT[:1])
    assert all(value.isfinite() for value in wild.values())
