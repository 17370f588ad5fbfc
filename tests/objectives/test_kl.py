"""The estimators as numbers, and the exact expectation of each one's gradient in a loss."""

import math

import pytest
import torch

from r1lit.objectives import KL_ESTIMATORS, k1_BT, k2_BT, k3_BT


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


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    logp_V = LOGIT_V.log_softmax(0)
    kl = (logp_V.exp() * (logp_V - REF_V)).sum().item()
    means = {n: (logp_V.exp() * f(logp_V, REF_V)).sum().item() for n, f in KL_ESTIMATORS.items()}
    assert math.isclose(means["k1"], kl, rel_tol=1e-12)
    assert math.isclose(means["k3"], kl, rel_tol=1e-12)
    assert not math.isclose(means["k2"], kl, rel_tol=1e-2)
