"""GAE by hand, against its definition as a sum, and the critic's clipped loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from test_batches import rollout

from r1lit.objectives import GAE, PPO, GroupCentered, ValueObjective
from r1lit.objectives.gae import gae_BT, monte_carlo_returns_BT, token_rewards_BT

LENGTHS = torch.tensor([2, 1, 4, 4, 3, 4])


def random_rollout(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return rollout(
        length_B=LENGTHS,
        loss_mask_BT=torch.arange(4) < LENGTHS[:, None],
        extra_BT={"value_BT": torch.randn(6, 4, generator=g)},
        reward_BT=torch.randn(6, 4, generator=g).where(torch.arange(4) < LENGTHS[:, None], 0.0),
        reward_PG=torch.randn(3, 2, generator=g),
    )


def test_by_hand():
    """gamma = 1/2, lambda = 1/2: deltas (1/2 * 3 - 2, 1 - 3) = (-1/2, -2), A = (-1, -2)."""
    value_BT = torch.zeros(6, 4)
    value_BT[:2] = torch.tensor([[2.0, 3.0, math.nan, math.nan], [5.0, 7.0, 7.0, 7.0]])
    estimator = GAE(gamma=0.5, lambda_policy=0.5, lambda_critic=1.0)
    made = rollout(extra_BT={"value_BT": value_BT}, length_B=torch.tensor([2, 1, 4, 4, 4, 4]))
    advantage_BT = estimator.estimate(made)
    assert advantage_BT[:2].tolist() == [[-1.0, -2.0, 0.0, 0.0], [-4.0, 0.0, 0.0, 0.0]]
    # without values, rewards of 1 at the last of four tokens: (gamma lambda)^3, ..., 1
    assert advantage_BT[2].tolist() == [1 / 64, 1 / 16, 1 / 4, 1.0]
    # lambda 1: the discounted reward, whatever the values are
    assert estimator.returns(made)[:3].tolist() == [
        [0.5, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1 / 8, 1 / 4, 1 / 2, 1.0],
    ]  # fmt: skip


@pytest.mark.parametrize("alpha", [None, 0.6])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (0.7, 0.0)])
def test_the_sum_of_its_definition(gamma: float, lam: float, alpha: float | None):
    made = random_rollout()
    estimator = GAE(gamma=gamma, lambda_policy=lam, lambda_critic=0.8, alpha=alpha)
    value_BT, reward_BT = made.extra_BT["value_BT"], token_rewards_BT(made)

    def expected(b: int, t: int, decay: float) -> float:
        end = int(LENGTHS[b])
        total = 0.0
        for k in range(t, end):
            after = float(value_BT[b, k + 1]) if k + 1 < end else 0.0
            delta = float(reward_BT[b, k]) + gamma * after - float(value_BT[b, k])
            total += (gamma * decay) ** (k - t) * delta
        return total

    advantage_BT, return_BT = estimator.estimate(made), estimator.returns(made)
    for b in range(6):
        own = lam if alpha is None else max(0.0, 1 - 1 / (alpha * int(LENGTHS[b])))
        for t in range(4):
            exists = t < int(LENGTHS[b])
            wanted = expected(b, t, own) if exists else 0.0
            assert float(advantage_BT[b, t]) == pytest.approx(wanted, abs=1e-5)
            wanted = expected(b, t, 0.8) + float(value_BT[b, t]) if exists else 0.0
            assert float(return_BT[b, t]) == pytest.approx(wanted, abs=1e-5)


def test_rewards_come_with_the_last_token_beside_those_of_tokens():
    made = random_rollout()
    assert made.reward_BT is not None
    paid_BT = token_rewards_BT(made) - made.reward_BT
    for b, reward in enumerate(made.reward_PG.flatten().tolist()):
        last = int(LENGTHS[b]) - 1
        assert [t for t, paid in enumerate(paid_BT[b].tolist()) if paid] == [last]
        assert float(paid_BT[b, last]) == pytest.approx(reward, abs=1e-6)
    returns_BT = monte_carlo_returns_BT(made, 1.0)
    torch.testing.assert_close(returns_BT[:, 0], token_rewards_BT(made).sum(-1))


def test_values_that_are_right_leave_no_advantage():
    made = random_rollout()
    right = replace(made, extra_BT={"value_BT": monte_carlo_returns_BT(made, 0.9)})
    for lam in (0.0, 0.5, 1.0):
        advantage_BT = GAE(gamma=0.9, lambda_policy=lam).estimate(right)
        torch.testing.assert_close(advantage_BT, torch.zeros(6, 4), atol=1e-5, rtol=0)


def test_a_critic_of_zeros_and_lambda_one_is_the_reward():
    nothing = {"value_BT": torch.zeros(6, 4)}
    made = rollout(length_B=LENGTHS, extra_BT=nothing, reward_PG=torch.randn(3, 2))
    advantage_BT = GAE(lambda_policy=1.0).estimate(made)
    wanted_BT = torch.where(made.mask_BT, made.reward_PG.reshape(-1, 1), 0.0)
    assert torch.equal(advantage_BT, wanted_BT)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [({"gamma": 1.1}, "gamma: 1.1"), ({"lambda_policy": -0.1}, "lambda_policy: -0.1"),
     ({"lambda_critic": math.nan}, "lambda_critic: nan"), ({"alpha": 0.0}, "alpha: 0.0")],
)  # fmt: skip
def test_numbers_that_cannot_be(wrong, key):
    with pytest.raises(ValueError, match=key):
        GAE(**wrong)


def test_without_values_it_says_what_would_have_them():
    with pytest.raises(ValueError, match=r"GAE reads value_BT .* the step that writes it"):
        GAE().estimate(rollout())


def test_ppo_has_gae_and_takes_another():
    assert isinstance(PPO().advantage, GAE)
    assert isinstance(PPO(advantage=GroupCentered()).advantage, GroupCentered)


def test_value_loss_by_hand():
    """Old values 0, returns 1: (0.9, 0.8 for 0.5, 1.5) squared; the middle one is clipped."""
    value_BT = torch.tensor([[0.1, 0.5, -0.5, math.nan]], requires_grad=True)
    mask_BT = torch.tensor([[True, True, True, False]])
    inputs = (torch.zeros(1, 4), torch.ones(1, 4), mask_BT)
    outputs = ValueObjective(epsilon=0.2).loss(value_BT, *inputs, num_tokens=3.0)
    outputs.loss.backward()
    assert float(outputs.loss) == pytest.approx((0.81 + 0.64 + 2.25) / 6)
    assert value_BT.grad is not None
    torch.testing.assert_close(value_BT.grad, torch.tensor([[-0.9 / 3, 0.0, -1.5 / 3, 0.0]]))
    assert float(outputs.metrics["value_clip_fraction"]) == 1.0
    free = ValueObjective(epsilon=None).loss(value_BT, *inputs, num_tokens=3.0)
    assert float(free.loss) == pytest.approx((0.81 + 0.25 + 2.25) / 6)
    with pytest.raises(ValueError, match=r"epsilon: 0\.0 is not above 0"):
        ValueObjective(epsilon=0.0)


def test_value_loss_of_micro_batches_adds_up():
    g = torch.Generator().manual_seed(1)
    value_BT, old_BT, return_BT = (torch.randn(6, 4, generator=g) for _ in range(3))
    mask_BT = torch.arange(4) < LENGTHS[:, None]
    rows = (value_BT, old_BT, return_BT, mask_BT)
    objective, num_tokens = ValueObjective(), float(mask_BT.sum())
    whole = objective.loss(*rows, num_tokens).loss
    parts = sum(
        objective.loss(*(x[part] for x in rows), num_tokens).loss for part in ([0, 3], [1, 2, 4, 5])
    )
    torch.testing.assert_close(parts, whole)


def test_a_mask_with_holes_keeps_time():
    """The recursion runs over the tokens that exist; which of them count is the losses' matter."""
    made = random_rollout()
    holes = rollout(**{**vars(made), "loss_mask_BT": torch.zeros(6, 4, dtype=torch.bool)})
    assert torch.equal(GAE().estimate(made), GAE().estimate(holes))
    torch.testing.assert_close(
        gae_BT(
            torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.6]]),
            torch.ones(1, 2, dtype=torch.bool), gamma=1.0, lambda_B=0.5,
        ),
        torch.tensor([[0.3, 0.4]]),
    )  # fmt: skip
