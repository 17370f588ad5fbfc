"""Bradley-Terry and safe/unsafe against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from r1lit.objectives import DPO, BradleyTerry, SafeUnsafe


def test_bradley_terry_by_hand():
    reward_NK = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 3.0]])
    loss_N = BradleyTerry().loss_N(reward_NK, torch.ones(3))
    expected = [math.log(1 + math.exp(-1)), math.log(1 + math.exp(1)), math.log(2)]
    assert loss_N.tolist() == pytest.approx(expected)
    assert loss_N.tolist() == pytest.approx([0.31326, 1.31326, 0.69315], abs=1e-5)


def test_bradley_terry_moves_both_rewards_by_the_chance_of_being_wrong():
    reward_NK = torch.tensor([[2.0, 1.0]], requires_grad=True)
    BradleyTerry().loss_N(reward_NK, torch.ones(1)).sum().backward()
    wrong = 1 / (1 + math.e)
    assert reward_NK.grad[0].tolist() == pytest.approx([-wrong, wrong])


def test_bradley_terry_does_not_see_a_constant_and_stays_finite():
    reward_NK = torch.tensor([[2.0, 1.0], [-500.0, 500.0]])
    loss_N = BradleyTerry().loss_N(reward_NK, torch.ones(2))
    assert torch.allclose(BradleyTerry().loss_N(reward_NK + 7, torch.ones(2)), loss_N)
    assert loss_N[1].item() == pytest.approx(1000)


def test_safe_unsafe_by_hand():
    reward_NK = torch.tensor([[1.0], [1.0], [0.0], [-800.0]])
    loss_N = SafeUnsafe().loss_N(reward_NK, torch.tensor([1.0, 0.0, 1.0, 0.0]))
    expected = [math.log(1 + math.exp(-1)), math.log(1 + math.exp(1)), math.log(2), 0.0]
    assert loss_N.tolist() == pytest.approx(expected)


def test_safe_unsafe_moves_a_reward_by_probability_less_label():
    reward_NK = torch.tensor([[1.0], [1.0]], requires_grad=True)
    SafeUnsafe().loss_N(reward_NK, torch.tensor([1.0, 0.0])).sum().backward()
    p = 1 / (1 + math.exp(-1))
    assert reward_NK.grad[:, 0].tolist() == pytest.approx([p - 1, p])


def test_dpo_by_hand_and_that_it_is_bradley_terry_of_implicit_rewards():
    reward_N2 = torch.tensor([[0.5, -0.5], [0.2, 0.9]])
    assert DPO().loss_N(reward_N2)[0].item() == pytest.approx(0.31326, abs=1e-5)
    assert torch.equal(DPO().loss_N(reward_N2), BradleyTerry().loss_N(reward_N2, torch.ones(2)))
    smoothed = DPO(label_smoothing=0.1).loss_N(reward_N2)[0].item()
    assert smoothed == pytest.approx(0.9 * 0.313262 + 0.1 * 1.313262, abs=1e-5)
    for wrong in ({"beta": 0.0}, {"label_smoothing": 0.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DPO(**wrong)


@pytest.mark.parametrize(("objective", "rows"), [(BradleyTerry, 1), (SafeUnsafe, 2)])
def test_the_wrong_kind_of_example_is_noticed(objective, rows):
    with pytest.raises(AssertionError):
        objective().loss_N(torch.zeros(3, rows), torch.ones(3))
