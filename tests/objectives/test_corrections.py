"""Importance weights for sampler and trainer that differ: values and gradients by hand."""

import math

import pytest
import torch

from r1lit.objectives import (
    DAPO,
    LossInputs,
    MaskedImportanceSampling,
    SequenceMaskedImportanceSampling,
    TruncatedImportanceSampling,
)

NAN = math.nan
# rho = pi_train / pi_sampler: row 0 has 1.5, 4 and 0.25 (product 1.5, geometric mean 1.145),
# row 1 has 8 and 2 (product 16, geometric mean 4) and padding
TRAIN_BT = torch.tensor([[0.3, 0.4, 0.1], [0.8, 0.6, NAN]], dtype=torch.float64).log()
SAMPLER_BT = torch.tensor([[0.2, 0.1, 0.4], [0.1, 0.3, NAN]], dtype=torch.float64).log()
MASK_BT = torch.tensor([[True, True, True], [True, True, False]])

CASES = {
    "token": (TruncatedImportanceSampling(2.0), [1.5, 2.0, 0.25, 2.0, 2.0, 0.0]),
    "sequence": (TruncatedImportanceSampling(2.0, "sequence"), [1.5, 1.5, 1.5, 2.0, 2.0, 0.0]),
    "high cap": (TruncatedImportanceSampling(100.0), [1.5, 4.0, 0.25, 8.0, 2.0, 0.0]),
    "masked": (MaskedImportanceSampling(0.5, 5.0), [1.5, 4.0, 0.0, 0.0, 2.0, 0.0]),
    "sequence-masked": (SequenceMaskedImportanceSampling(0.5, 2.0), [1.5, 4.0, 0.25, 0, 0, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_example(case):
    weighting, expected = CASES[case]
    weight_BT = weighting.weight_BT(TRAIN_BT, SAMPLER_BT, MASK_BT)
    assert weight_BT.flatten().tolist() == pytest.approx(expected, abs=1e-14)
    assert not weight_BT.requires_grad


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_the_surrogate_s_times_the_weight(case):
    """On policy d J / d logp = weight * A / num_tokens: the ratio itself starts at 1."""
    weighting, expected = CASES[case]
    logp_BT = TRAIN_BT.clone().requires_grad_()
    inputs = LossInputs(
        logp_BT=logp_BT,
        logp_old_BT=TRAIN_BT,
        advantage_BT=torch.tensor([[2.0] * 3, [-1.0] * 3], dtype=torch.float64),
        mask_BT=MASK_BT,
        weight_BT=weighting.weight_BT(TRAIN_BT, SAMPLER_BT, MASK_BT),
        num_rows=2,
        num_tokens=5,
    )
    loss = DAPO().loss(inputs).loss
    loss.backward()
    terms = [w * a / 5 for w, a in zip(expected, [2.0] * 3 + [-1.0] * 3, strict=True)]
    assert -loss.item() == pytest.approx(sum(terms), abs=1e-14)
    assert [-g for g in logp_BT.grad.flatten().tolist()] == pytest.approx(terms, abs=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_without_a_mismatch_every_token_counts_once(case):
    weighting, _ = CASES[case]
    weight_BT = weighting.weight_BT(TRAIN_BT, TRAIN_BT, MASK_BT)
    assert torch.equal(weight_BT, MASK_BT.double())


@pytest.mark.parametrize("case", CASES)
def test_a_ratio_beyond_float32_is_no_infinity_unless_it_counts(case):
    weighting, _ = CASES[case]
    zeros_BT = torch.zeros(1, 2)
    mask_BT = torch.ones(1, 2, dtype=torch.bool)
    weight_BT = weighting.weight_BT(torch.full((1, 2), 80.0), zeros_BT, mask_BT)
    assert weight_BT.isfinite().all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TruncatedImportanceSampling(0.0), "cap: 0.0"),
        (lambda: TruncatedImportanceSampling(2.0, "row"), "level: 'row'"),
        (lambda: MaskedImportanceSampling(low=0.0), "low: 0.0"),
        (lambda: MaskedImportanceSampling(high=0.9), "high: 0.9"),
        (lambda: SequenceMaskedImportanceSampling(low=1.1), "low: 1.1"),
    ],
)
def test_bad_bounds_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
