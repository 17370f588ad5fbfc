"""Worked 2 x 2 examples, the arithmetic written out.

pi_old is 0.4 at every token; pi is 0.6 or 0.2, so ratios are 1.5 or 0.5: above and below every
clip here. Row 0 has two tokens, row 1 one token and one of padding.
"""

import math

import pytest
import torch

from r1lit.objectives import (
    CISPO,
    DAPO,
    DPPO,
    GMPO,
    GRPO,
    GSPO,
    SAPO,
    DrGRPO,
    GRPOSequence,
    GSPOToken,
    LossInputs,
    Objective,
)

LOGP_BT = torch.tensor([[0.6, 0.2], [0.6, 0.9]], dtype=torch.float64).log()
LOGP_OLD_BT = torch.tensor([[0.4, 0.4], [0.4, 0.1]], dtype=torch.float64).log()
LOGP_REF_BT = torch.tensor([[0.3, 0.3], [0.3, 0.7]], dtype=torch.float64).log()
MASK_BT = torch.tensor([[True, True], [True, False]])


def evaluate(objective: Objective, advantages: list, mask_BT: torch.Tensor = MASK_BT):
    """J, and its gradient by the log-probs, over the minibatch of these two rows."""
    logp_BT = LOGP_BT.clone().requires_grad_()
    inputs = LossInputs(
        logp_BT=logp_BT,
        logp_old_BT=LOGP_OLD_BT,
        logp_ref_BT=LOGP_REF_BT,
        advantage_BT=torch.tensor(advantages, dtype=torch.float64).view(2, -1).expand(2, 2),
        mask_BT=mask_BT,
        num_rows=2,
        num_tokens=float(mask_BT.sum()),
    )
    loss = objective.loss(inputs).loss
    loss.backward()
    return -loss.item(), [-g for g in logp_BT.grad.flatten().tolist()]


ROOT = math.sqrt(1.5 * 0.5)  # the geometric mean of row 0's ratios, 0.866
# Row 0 of GMPO with A > 0: log 1.5 = 0.405 is clipped to 0.4, log 0.5 is not clipped.
MIXED = math.exp((0.4 + math.log(0.5)) / 2)


def gate(ratio: float, tau: float) -> tuple[float, float]:
    """SAPO's f and its derivative by log rho."""
    s = 1 / (1 + math.exp(-tau * (ratio - 1)))
    return 4 / tau * s, 4 * s * (1 - s) * ratio


CASES = {
    # A = +2: 1.5 is clipped to 1.2, 0.5 is not. A = -1: 1.5 is not clipped.
    "GRPO": (
        GRPO(),
        [2.0, -1.0],
        ((1.2 * 2 + 0.5 * 2) / 2 + (1.5 * -1) / 1) / 2,
        [0.0, 0.5 * 2 / 2 / 2, 1.5 * -1 / 1 / 2, 0.0],
    ),
    # A = -2: 1.5 is not clipped, 0.5 is clipped to 0.8. A = +1: 1.5 is clipped to 1.2.
    "GRPO, signs swapped": (
        GRPO(),
        [-2.0, 1.0],
        ((1.5 * -2 + 0.8 * -2) / 2 + (1.2 * 1) / 1) / 2,
        [1.5 * -2 / 2 / 2, 0.0, 0.0, 0.0],
    ),
    # Each token of three counts 1 / (2 rows * budget 4).
    "DrGRPO": (
        DrGRPO(max_tokens=4),
        [2.0, -1.0],
        (1.2 * 2 + 0.5 * 2 + 1.5 * -1) / 8,
        [0.0, 0.5 * 2 / 8, 1.5 * -1 / 8, 0.0],
    ),
    # The upper clip is 1.28; each token of three counts 1 / 3.
    "DAPO": (
        DAPO(),
        [2.0, -1.0],
        (1.28 * 2 + 0.5 * 2 + 1.5 * -1) / 3,
        [0.0, 0.5 * 2 / 3, 1.5 * -1 / 3, 0.0],
    ),
    "DAPO, signs swapped": (
        DAPO(),
        [-2.0, 1.0],
        (1.5 * -2 + 0.8 * -2 + 1.28 * 1) / 3,
        [1.5 * -2 / 3, 0.0, 0.0, 0.0],
    ),
    # Row 0: 0.866 and A > 0, not clipped; its gradient reaches both tokens by half.
    # Row 1: 1.5 and A < 0, not clipped.
    "GSPO": (
        GSPO(),
        [2.0, -1.0],
        (ROOT * 2 + 1.5 * -1) / 2,
        [ROOT * 2 / 2 / 2, ROOT * 2 / 2 / 2, 1.5 * -1 / 2, 0.0],
    ),
    # Row 0: 0.866 < 0.9997 and A < 0. Row 1: 1.5 > 1.0004 and A > 0. All is clipped.
    "GSPO, signs swapped": (
        GSPO(),
        [-2.0, 1.0],
        (0.9997 * -2 + 1.0004 * 1) / 2,
        [0.0, 0.0, 0.0, 0.0],
    ),
    # As GSPO; in row 0 the second token has A = 0.5, and each token's gradient is its own.
    "GSPOToken": (
        GSPOToken(epsilon_low=0.2, epsilon_high=0.2),
        [[2.0, 0.5], [-1.0, 0.0]],
        ((ROOT * 2 + ROOT * 0.5) / 2 + 1.5 * -1) / 2,
        [ROOT * 2 / 2 / 2, ROOT * 0.5 / 2 / 2, 1.5 * -1 / 2, 0.0],
    ),
    # Row 1: A < 0 and log 1.5 is above the lower bound. A clipped token has no gradient.
    "GMPO": (
        GMPO(),
        [2.0, -1.0],
        (MIXED * 2 + 1.5 * -1) / 2,
        [0.0, MIXED * 2 / 2 / 2, 1.5 * -1 / 2, 0.0],
    ),
    "SAPO": (
        SAPO(tau_positive=1.0, tau_negative=2.0),
        [2.0, -1.0],
        ((gate(1.5, 1)[0] + gate(0.5, 1)[0]) / 2 * 2 + gate(1.5, 2)[0] * -1) / 2,
        [gate(1.5, 1)[1] * 2 / 4, gate(0.5, 1)[1] * 2 / 4, gate(1.5, 2)[1] * -1 / 2, 0.0],
    ),
    # |0.6 - 0.4| = 0.2 > 0.15 leads away where A > 0; |0.2 - 0.4| leads back there.
    "DPPO": (
        DPPO(threshold=0.15),
        [2.0, -1.0],
        (0 + 0.5 * 2 + 1.5 * -1) / 3,
        [0.0, 0.5 * 2 / 3, 1.5 * -1 / 3, 0.0],
    ),
    "DPPO, within the threshold": (
        DPPO(threshold=0.25),
        [2.0, -1.0],
        (1.5 * 2 + 0.5 * 2 + 1.5 * -1) / 3,
        [1.5 * 2 / 3, 0.5 * 2 / 3, 1.5 * -1 / 3, 0.0],
    ),
    # KL(0.4 || 0.6) = 0.4 log(2/3) + 0.6 log(1.5) = 0.0811 of the first and third token,
    # KL(0.4 || 0.2) = 0.4 log 2 + 0.6 log 0.75 = 0.1046 of the second.
    "DPPO, KL": (
        DPPO(divergence="kl", threshold=0.09),
        [-2.0, 1.0],
        (1.5 * -2 + 0 + 1.5 * 1) / 3,
        [1.5 * -2 / 3, 0.0, 1.5 * 1 / 3, 0.0],
    ),
    # A ratio above the bound weighs as much as the bound, and keeps its gradient.
    "DPPO, largest weight": (
        DPPO(threshold=0.25, max_ratio=1.2),
        [2.0, -1.0],
        (1.2 * 2 + 0.5 * 2 + 1.2 * -1) / 3,
        [1.2 * 2 / 3, 0.5 * 2 / 3, 1.2 * -1 / 3, 0.0],
    ),
    # Row 0: 1.5 * 0.5 = 0.75 and A > 0, not clipped. Row 1: 1.5 and A < 0, not clipped.
    "GRPOSequence": (
        GRPOSequence(epsilon=0.2),
        [2.0, -1.5],
        (0.75 * 2 + 1.5 * -1.5) / 2,
        [0.75 * 2 / 2, 0.75 * 2 / 2, 1.5 * -1.5 / 2, 0.0],
    ),
    # Row 0: 0.75 < 0.8 and A < 0. Row 1: 1.5 > 1.2 and A > 0.
    "GRPOSequence, signs swapped": (
        GRPOSequence(epsilon=0.2),
        [-2.0, 1.0],
        (0.8 * -2 + 1.2 * 1) / 2,
        [0.0, 0.0, 0.0, 0.0],
    ),
    # Weights 1.28, 0.5 (no lower bound), 1.28; the gradient is the weight times A at every token.
    "CISPO": (
        CISPO(epsilon_high=0.28),
        [2.0, -1.0],
        (1.28 * 2 * math.log(0.6) + 0.5 * 2 * math.log(0.2) + 1.28 * -1 * math.log(0.6)) / 3,
        [1.28 * 2 / 3, 0.5 * 2 / 3, 1.28 * -1 / 3, 0.0],
    ),
    # A lower bound of 0.8, whatever the sign of A.
    "CISPO, bounded below": (
        CISPO(epsilon_high=4.0, epsilon_low=0.2),
        [2.0, -1.0],
        (1.5 * 2 * math.log(0.6) + 0.8 * 2 * math.log(0.2) + 1.5 * -1 * math.log(0.6)) / 3,
        [1.5 * 2 / 3, 0.8 * 2 / 3, 1.5 * -1 / 3, 0.0],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_example(case):
    objective, advantages, value, gradient = CASES[case]
    got_value, got_gradient = evaluate(objective, advantages)
    assert got_value == pytest.approx(value, abs=1e-14)
    assert got_gradient == pytest.approx(gradient, abs=1e-14)


# pi_ref = 0.3. At pi = 0.6: d = log 0.5. At pi = 0.2: d = log 1.5.
K1 = {0.6: -math.log(0.5), 0.2: -math.log(1.5)}
K2 = {0.6: math.log(0.5) ** 2 / 2, 0.2: math.log(1.5) ** 2 / 2}
K3 = {0.6: 0.5 - math.log(0.5) - 1, 0.2: 1.5 - math.log(1.5) - 1}


@pytest.mark.parametrize(("name", "k"), [("k1", K1), ("k2", K2), ("k3", K3)])
def test_penalty_of_each_estimator(name, k):
    # With A = 0 only -beta * KL is left, averaged over a response, then over rows.
    value, _ = evaluate(GRPO(beta=0.1, kl=name), [0.0, 0.0])
    assert value == pytest.approx(-0.1 * ((k[0.6] + k[0.2]) / 2 + k[0.6]) / 2, abs=1e-14)


def test_penalty_gradient_of_k3():
    # d/dlogp of k3 is 1 - pi_ref / pi: 1 - 0.5, 1 - 1.5, 1 - 0.5.
    _, gradient = evaluate(GRPO(beta=0.1), [0.0, 0.0])
    expected = [-0.1 * 0.5 / 4, -0.1 * -0.5 / 4, -0.1 * 0.5 / 2, 0.0]
    assert gradient == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (GRPOSequence(beta=0.1), ((K3[0.6] + K3[0.2]) / 2 + K3[0.6]) / 2),
        (GSPO(beta=0.1), ((K3[0.6] + K3[0.2]) / 2 + K3[0.6]) / 2),
        (DrGRPO(max_tokens=4, beta=0.1), (K3[0.6] + K3[0.2] + K3[0.6]) / 8),
        (DAPO(beta=0.1), (K3[0.6] + K3[0.2] + K3[0.6]) / 3),
        (CISPO(beta=0.1), (K3[0.6] + K3[0.2] + K3[0.6]) / 3),
    ],
    ids=lambda v: type(v).__name__,
)
def test_penalty_is_normalised_like_the_surrogate(objective, expected):
    assert evaluate(objective, [0.0, 0.0])[0] == pytest.approx(-0.1 * expected, abs=1e-14)


def test_weights():
    # Responses of 1 and 3 tokens, in a minibatch of 2 rows and 4 tokens.
    mask_BT = torch.tensor([[True, False, False], [True, True, True]])
    totals = {"num_rows": 2.0, "num_tokens": 4.0, "dtype": torch.float32}
    response = [[1 / 2, 0, 0], [1 / 6, 1 / 6, 1 / 6]]
    token = [[1 / 4, 0, 0], [1 / 4, 1 / 4, 1 / 4]]
    budget = [[1 / 8, 0, 0], [1 / 8, 1 / 8, 1 / 8]]
    for objective, expected in [
        (GRPO(), response),
        (GRPOSequence(), response),
        (GSPO(), response),
        (DAPO(), token),
        (CISPO(), token),
        (DrGRPO(max_tokens=4), budget),
    ]:
        weight_BT = objective.aggregation_BT(mask_BT, **totals)
        assert weight_BT.dtype == torch.float32
        torch.testing.assert_close(weight_BT, torch.tensor(expected))
