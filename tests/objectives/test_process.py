"""Advantages from rewards of steps and of tokens, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from test_batches import rollout

from r1lit.objectives import GroupCentered, ImplicitProcess, ProcessSupervision, StepCrossEntropy

NAN = math.nan
LENGTHS = torch.tensor([4, 2, 4, 4, 3, 1])


def made(reward_BT, **changes):
    options = {"length_B": LENGTHS, "reward_BT": torch.tensor(reward_BT), **changes}
    return rollout(**options)


def test_process_supervision_by_hand():
    """Group 0: steps 1, 0 and 1, as in the docstring; group 1: all equal; group 2: one step."""
    ends = torch.tensor([[0, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0],
                         [0, 0, 0, 0]]).bool()  # fmt: skip
    rewards = [[0, 1, 0, 0], [0, 1, NAN, NAN], [0.3, 0, 0, 0.3], [0, 0, 0, 0.3], [0, 0, 0.9, NAN],
               [0, NAN, NAN, NAN]]  # fmt: skip
    given = made(rewards, step_end_BT=ends)
    up, down = 1 / math.sqrt(2), -math.sqrt(2)
    expected = torch.zeros(6, 4)
    expected[0] = torch.tensor([up + down, up + down, down, down])
    expected[1, :2] = up
    torch.testing.assert_close(
        ProcessSupervision(std_epsilon=0).estimate(given), expected, atol=1e-6, rtol=0
    )
    reward_PG = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    both = ProcessSupervision(outcome=GroupCentered(), std_epsilon=0)
    expected[0] += 0.5
    expected[1, :2] -= 0.5
    found = both.estimate(made(rewards, step_end_BT=ends, reward_PG=reward_PG))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    rewards[0][0] = 0.5  # of a KL, say
    with pytest.raises(ValueError, match=r"leave r1lit\.steps\.KLInReward out"):
        both.estimate(made(rewards, step_end_BT=ends))


def test_implicit_process_by_hand():
    rewards = torch.zeros(6, 4)
    rewards[0] = torch.tensor([1.0, 3.0, NAN, NAN])
    rewards[1] = torch.tensor([1.0, NAN, NAN, NAN])
    reward_PG = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    length_B = torch.tensor([2, 1, 4, 4, 4, 4])
    written = {"process_reward_BT": rewards}
    given = rollout(length_B=length_B, reward_PG=reward_PG, extra_BT=written)
    found = ImplicitProcess().estimate(given)
    assert found[:2].tolist() == [[3.0, 3.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0]]
    halved = ImplicitProcess(gamma=0.5).estimate(given)
    assert halved[:2].tolist() == [[2.0, 3.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0]]
    assert not found[2:].any()


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (ProcessSupervision(), "advantage: ProcessSupervision needs"),
        (ImplicitProcess(), "ImplicitProcess reads process_reward_BT .* written nothing"),
    ],
)
def test_without_rewards_of_tokens_there_is_an_error(estimator, words):
    with pytest.raises(ValueError, match=words):
        estimator.estimate(rollout())


def test_soft_labels_cost_least_at_themselves():
    objective = StepCrossEntropy()
    rewards = torch.tensor([[1.0], [0.0]], requires_grad=True)
    losses = objective.loss_N(rewards, torch.tensor([1.0, 0.5]))
    assert losses.tolist() == pytest.approx([0.313262, 0.693147], abs=1e-6)
    losses.sum().backward()
    assert float(rewards.grad[1]) == 0.0 and float(rewards.grad[0]) < 0
