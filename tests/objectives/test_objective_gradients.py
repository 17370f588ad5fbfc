"""Gradients against finite differences and the policy gradient, and who degenerates to whom."""

import pytest
import torch
from objective_cases import FACTORIES, loss_and_grad

from r1lit.objectives import CISPO, DAPO, GMPO, GRPO, GSPO, DrGRPO, GRPOSequence, GSPOToken


@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "unbiased_k3"])
@pytest.mark.parametrize("name", [n for n in FACTORIES if n not in ("CISPO", "GSPOToken")])
def test_gradient_is_that_of_the_loss(name, kl, batch):
    objective = FACTORIES[name](beta=0.3, kl=kl)

    def loss(logp_BT):
        return objective.loss(batch.inputs(logp_BT=logp_BT)).loss

    assert torch.autograd.gradcheck(loss, batch.logp_BT.clone().requires_grad_())


def test_gradient_of_cispo_is_weight_times_advantage(batch):
    # The surrogate holds a stop-gradient, so finite differences of its value do not apply.
    _, grad_BT = loss_and_grad(CISPO(epsilon_low=0.2, epsilon_high=0.28), batch)
    ratio_BT = (batch.logp_BT - batch.logp_old_BT).exp()
    expected_BT = -ratio_BT.clamp(0.8, 1.28) * batch.advantage_BT / 15
    expected_BT[~batch.mask_BT] = 0
    torch.testing.assert_close(grad_BT, expected_BT, rtol=1e-13, atol=1e-16)
    assert ((ratio_BT < 0.8) & batch.mask_BT).any() and ((ratio_BT > 1.28) & batch.mask_BT).any()


LENGTH_B = [5, 3, 1, 4, 1, 2]  # row 4 is empty; any divisor does
ON_POLICY = {
    "GRPO": [1 / (6 * n) for n in LENGTH_B],
    "GSPO": [1 / (6 * n) for n in LENGTH_B],
    "GRPOSequence": [1 / 6] * 6,
    "DrGRPO": [1 / (6 * 9)] * 6,
    "DAPO": [1 / 15] * 6,
    "CISPO": [1 / 15] * 6,
    "PPO": [1 / 15] * 6,
    "ClipCov": [1 / 15] * 6,
    "KLCov": [1 / 15] * 6,
    "GSPOToken": [1 / (6 * n) for n in LENGTH_B],
    "GMPO": [1 / (6 * n) for n in LENGTH_B],
    "SAPO": [1 / (6 * n) for n in LENGTH_B],
    "DPPO": [1 / 15] * 6,
    "DPPO, KL": [1 / 15] * 6,
    "PolicyGradient": [1 / 15] * 6,
    "RLOO": [1 / 6] * 6,
}


@pytest.mark.parametrize("name", FACTORIES)
def test_on_policy_gradient_is_the_policy_gradient(name, batch):
    # Ratio 1, beta 0: dJ / dlogp is A times the weight of a token, for R1's print without 1/|o|.
    here = batch.with_(logp_BT=batch.logp_old_BT)
    _, grad_BT = loss_and_grad(FACTORIES[name](), here)
    scale_B = torch.tensor(ON_POLICY[name], dtype=torch.float64)
    expected_BT = -scale_B[:, None] * batch.advantage_BT * batch.mask_BT
    torch.testing.assert_close(grad_BT, expected_BT, rtol=1e-13, atol=1e-16)


def same(left, right, batch):
    """Both give the same loss and gradient, up to rounding."""
    for a, b in zip(loss_and_grad(left, batch), loss_and_grad(right, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def differ(left, right, batch):
    return not torch.allclose(loss_and_grad(left, batch)[0], loss_and_grad(right, batch)[0])


def first_tokens(batch, width):
    """The rows that have ``width`` tokens or more, cut to exactly that many."""
    rows = batch.mask_BT.sum(1) >= width
    return type(batch)(
        **{n: v[rows][:, :width] if v.ndim == 2 else v[rows] for n, v in vars(batch).items()}
    )


def test_one_token_responses_make_grpo_gspo_and_grpo_sequence_equal(batch):
    ones = first_tokens(batch, 1)
    same(GSPO(epsilon_low=0.2, epsilon_high=0.2), GRPO(), ones)
    same(GRPOSequence(epsilon=0.2), GRPO(), ones)
    assert differ(GSPO(epsilon_low=0.2, epsilon_high=0.2), GRPO(), batch)
    assert differ(GRPOSequence(epsilon=0.2), GRPO(), batch)


def test_equal_lengths_and_epsilons_make_dapo_grpo(batch):
    threes = first_tokens(batch, 3)
    assert len(threes.mask_BT) == 3 and threes.mask_BT.all()
    same(DAPO(epsilon_low=0.2, epsilon_high=0.2, beta=0.1), GRPO(beta=0.1), threes)
    assert differ(DAPO(epsilon_low=0.2, epsilon_high=0.2), GRPO(), batch)


def test_responses_as_long_as_the_budget_make_dr_grpo_grpo(batch):
    threes = first_tokens(batch, 3)
    same(DrGRPO(max_tokens=3, beta=0.1), GRPO(beta=0.1), threes)
    assert differ(DrGRPO(max_tokens=3), GRPO(), batch)


def test_on_policy_r1_print_is_dr_grpo_times_the_budget(batch):
    here = batch.with_(logp_BT=batch.logp_old_BT)
    _, sequence_BT = loss_and_grad(GRPOSequence(), here)
    _, dr_BT = loss_and_grad(DrGRPO(max_tokens=9), here)
    torch.testing.assert_close(sequence_BT, 9 * dr_BT)


def test_unclipped_cispo_has_the_gradient_of_dapo(batch):
    _, cispo_BT = loss_and_grad(CISPO(epsilon_high=99.0), batch)
    _, dapo_BT = loss_and_grad(DAPO(epsilon_low=99.0, epsilon_high=99.0), batch)
    torch.testing.assert_close(cispo_BT, dapo_BT, rtol=1e-13, atol=1e-16)


def test_one_advantage_a_response_makes_gspo_token_gspo(batch):
    for clip in ({"epsilon_low": 0.03, "epsilon_high": 0.04}, {}):
        same(GSPOToken(beta=0.1, **clip), GSPO(beta=0.1, **clip), batch)
    first_BT = batch.advantage_BT * torch.tensor([1.0, 0.5, 1, 1, 1])
    assert differ(GSPOToken(epsilon_low=9.0, epsilon_high=9.0), GSPO(), batch)
    token_BT = loss_and_grad(
        GSPOToken(epsilon_low=9.0, epsilon_high=9.0), batch.with_(advantage_BT=first_BT)
    )[1]
    whole_BT = loss_and_grad(GSPOToken(epsilon_low=9.0, epsilon_high=9.0), batch)[1]
    torch.testing.assert_close(token_BT[:, 1], whole_BT[:, 1] / 2)  # each token by its own


def test_unclipped_gmpo_is_unclipped_gspo(batch):
    same(GMPO(epsilon_low=9.0, epsilon_high=9.0), GSPO(epsilon_low=9.0, epsilon_high=9.0), batch)
    assert differ(GMPO(), GSPO(epsilon_low=9.0, epsilon_high=9.0), batch)
