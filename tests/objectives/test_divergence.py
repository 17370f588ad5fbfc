"""Divergences by hand, their limits, and distributions seen through their likeliest tokens."""

from __future__ import annotations

import math

import pytest
import torch

from r1lit.objectives import ForwardKL, GeneralizedJSD, ReverseKL, SampledReverseKL
from r1lit.objectives.distillation import LEAST_LOGP, LEAST_REST, add_rest_KR, kl_K, top_and_rest_KR

P = (0.5, 0.5)
Q = (0.75, 0.25)
INFINITE = -math.inf


def log_KV(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def random_logp_KV(seed: int, k: int = 5, v: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(k, v, generator=generator, dtype=torch.float64)).log_softmax(-1)


@pytest.mark.parametrize(
    ("divergence", "expected"),
    [
        # 1/2 ln(2/3) + 1/2 ln 2
        (ForwardKL(), 0.5 * math.log(2 / 3) + 0.5 * math.log(2)),
        # 3/4 ln(3/2) + 1/4 ln(1/2)
        (ReverseKL(), 0.75 * math.log(1.5) + 0.25 * math.log(0.5)),
        # M = (5/8, 3/8)
        (
            GeneralizedJSD(0.5),
            0.5 * (0.5 * math.log(0.8) + 0.5 * math.log(4 / 3))
            + 0.5 * (0.75 * math.log(1.2) + 0.25 * math.log(2 / 3)),
        ),
        # M = 0.1 P + 0.9 Q = (0.725, 0.275)
        (
            GeneralizedJSD(0.1),
            0.1 * (0.5 * math.log(0.5 / 0.725) + 0.5 * math.log(0.5 / 0.275))
            + 0.9 * (0.75 * math.log(0.75 / 0.725) + 0.25 * math.log(0.25 / 0.275)),
        ),
    ],
    ids=["forward", "reverse", "jsd 0.5", "jsd 0.1"],
)
def test_by_hand(divergence, expected):
    found_K = divergence(log_KV(Q, P), log_KV(P, P))
    assert found_K[0].item() == pytest.approx(expected, rel=1e-12)
    assert found_K[1].item() == pytest.approx(0.0, abs=1e-12)


def test_the_docstrings_numbers():
    student_KV, teacher_KV = log_KV(Q), log_KV(P)
    assert ForwardKL()(student_KV, teacher_KV).item() == pytest.approx(0.1438, abs=5e-5)
    assert ReverseKL()(student_KV, teacher_KV).item() == pytest.approx(0.1308, abs=5e-5)
    assert GeneralizedJSD()(student_KV, teacher_KV).item() == pytest.approx(0.0338, abs=5e-5)


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), GeneralizedJSD(0.3)])
def test_positive_and_differentiated_in_the_student_alone(divergence):
    student_KV = random_logp_KV(0).requires_grad_()
    teacher_KV = random_logp_KV(1).requires_grad_()
    value_K = divergence(student_KV, teacher_KV)
    assert (value_K > 0).all()
    value_K.sum().backward()
    assert student_KV.grad is not None and teacher_KV.grad is None


def test_the_gradients_in_the_logits_by_hand():
    """Forward: Q - P. Reverse: Q (log Q/P - KL)."""
    logits_KV = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    p_KV = random_logp_KV(3, 4, 6)
    q_KV = logits_KV.detach().log_softmax(-1)
    (forward_KV,) = torch.autograd.grad(
        ForwardKL()(logits_KV.log_softmax(-1), p_KV).sum(), logits_KV
    )
    torch.testing.assert_close(forward_KV, q_KV.exp() - p_KV.exp())
    (reverse_KV,) = torch.autograd.grad(
        ReverseKL()(logits_KV.log_softmax(-1), p_KV).sum(), logits_KV
    )
    expected_KV = q_KV.exp() * (q_KV - p_KV - kl_K(q_KV, p_KV)[:, None])
    torch.testing.assert_close(reverse_KV, expected_KV)


def test_jsd_becomes_the_two_kls_at_its_ends():
    student_KV, teacher_KV = random_logp_KV(4), random_logp_KV(5)
    small = 1e-6
    torch.testing.assert_close(
        GeneralizedJSD(small)(student_KV, teacher_KV) / small,
        ForwardKL()(student_KV, teacher_KV),
        rtol=1e-4, atol=1e-6,
    )  # fmt: skip
    torch.testing.assert_close(
        GeneralizedJSD(1 - small)(student_KV, teacher_KV) / small,
        ReverseKL()(student_KV, teacher_KV),
        rtol=1e-4, atol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("beta", [0, 1, -0.5, math.nan])
def test_the_ends_themselves_are_refused(beta):
    with pytest.raises(ValueError, match="beta"):
        GeneralizedJSD(beta)


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), GeneralizedJSD()])
def test_a_probability_of_zero_makes_no_nan(divergence):
    student_KV = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).log().requires_grad_()
    teacher_KV = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]]).log()
    value_K = divergence(student_KV, teacher_KV)
    value_K.sum().backward()
    assert value_K.isfinite().all() and (value_K > 0).all()
    assert student_KV.grad is not None and student_KV.grad.isfinite().all()
    if not isinstance(divergence, GeneralizedJSD):
        assert value_K[1] > 0.4 * -LEAST_LOGP  # what is impossible is dear


def test_forward_kl_of_a_sure_teacher_is_cross_entropy():
    logits_KV = torch.randn(5, 7)
    target_K = torch.tensor([0, 3, 6, 2, 2])
    sure_KV = torch.full((5, 7), INFINITE).scatter(-1, target_K[:, None], 0.0)
    torch.testing.assert_close(
        ForwardKL()(logits_KV.log_softmax(-1), sure_KV),
        torch.nn.functional.cross_entropy(logits_KV, target_K, reduction="none"),
    )


def test_sampled_reverse_kl_has_the_gradient_of_reverse_kl_in_expectation():
    """The expectation over the token that the student draws, computed exactly."""
    logits_KV = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    teacher_KV = random_logp_KV(6, 3, 5)
    logp_KV = logits_KV.log_softmax(-1)
    drawn = [SampledReverseKL()(logp_KV[:, v], teacher_KV[:, v]) for v in range(5)]
    mean = sum((logp_KV[:, v].exp().detach() * drawn[v]).sum() for v in range(5))
    (found_KV,) = torch.autograd.grad(mean, logits_KV)
    (expected_KV,) = torch.autograd.grad(
        ReverseKL()(logits_KV.log_softmax(-1), teacher_KV).sum(), logits_KV
    )
    torch.testing.assert_close(found_KV, expected_KV)


def test_sampled_reverse_kl_is_policy_gradient_by_hand():
    logp_K = torch.tensor([0.5]).log().requires_grad_()
    value_K = SampledReverseKL()(logp_K, torch.tensor([0.25]).log())
    value_K.sum().backward()
    assert value_K.item() == pytest.approx(0.5 * math.log(2) ** 2)
    assert logp_K.grad is not None
    assert logp_K.grad.item() == pytest.approx(math.log(2))  # -A, A = ln 1/4 - ln 1/2


def test_top_and_rest_by_hand():
    logp_KV = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    token_KC = torch.tensor([[0, 0], [2, 0]])  # the first row tells one token alone
    found_KR = top_and_rest_KR(logp_KV, token_KC).exp()
    torch.testing.assert_close(found_KR, torch.tensor([[0.5, 0.0, 0.5], [0.7, 0.1, 0.2]]))
    told_KC = logp_KV.gather(-1, token_KC)
    torch.testing.assert_close(add_rest_KR(told_KC, token_KC).exp(), found_KR)


def test_nothing_left_for_the_rest_is_still_a_number():
    told_KC = torch.tensor([[0.6, 0.4 + 1e-5]]).log()  # rounded: above 1
    rest = add_rest_KR(told_KC, torch.tensor([[0, 1]]))[0, -1].exp()
    assert rest.item() == pytest.approx(LEAST_REST)
    logits_KV = torch.randn(1, 2, requires_grad=True)
    logp_KR = top_and_rest_KR(logits_KV.log_softmax(-1), torch.tensor([[0, 1]]))
    logp_KR.sum().backward()
    assert logits_KV.grad is not None and logits_KV.grad.isfinite().all()


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), GeneralizedJSD()])
def test_merged_outcomes_are_a_lower_bound_that_rises_with_k(divergence):
    student_KV, teacher_KV = random_logp_KV(7, 20, 50), random_logp_KV(8, 20, 50)
    whole_K = divergence(student_KV, teacher_KV)
    order_KV = teacher_KV.argsort(-1, descending=True)
    before_K = torch.zeros_like(whole_K)
    for k in (1, 5, 20, 49):
        token_KC = order_KV[:, :k]
        merged_K = divergence(
            top_and_rest_KR(student_KV, token_KC),
            add_rest_KR(teacher_KV.gather(-1, token_KC), token_KC),
        )
        assert (merged_K >= before_K - 1e-9).all() and (merged_K <= whole_K + 1e-9).all()
        before_K = merged_K
    torch.testing.assert_close(before_K, whole_K, rtol=1e-3, atol=1e-6)  # one token is its own rest
