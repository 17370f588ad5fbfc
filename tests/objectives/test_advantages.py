import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_batches import rollout

from r1lit.batches import Rollout
from r1lit.objectives import (
    AdvantageEstimator,
    GroupCentered,
    GroupNormalized,
    LeaveOneOut,
    LossInputs,
    MeanNormalized,
    NoBaseline,
    NormalizedPerReward,
    OnlyKept,
    PolicyGradient,
    Whitened,
)
from r1lit.steps import KLInReward

ESTIMATORS = [GroupNormalized(), GroupNormalized(std="sample"), GroupCentered(), LeaveOneOut()]
REWARD_PG = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.1, 0.1, 1.1, 0.1]], dtype=torch.float64)


def test_population_std_and_its_epsilon():
    # Group 0: mean 1/4, squares 9/16 + 3/16 = 12/16, over G = 4: 3/16. Group 1: mean 0.6, std 0.5.
    std = math.sqrt(3 / 16)
    expected = [
        [0.75 / (std + 0.1), *[-0.25 / (std + 0.1)] * 3],
        [0.5 / 0.6, -0.5 / 0.6, 0.5 / 0.6, -0.5 / 0.6],
    ]
    got = GroupNormalized(std_epsilon=0.1)(REWARD_PG)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


def test_population_is_the_default_and_gives_unit_root_mean_square():
    got = GroupNormalized(std_epsilon=0.0)(REWARD_PG)
    torch.testing.assert_close(got.square().mean(1), torch.ones(2, dtype=torch.float64))


def test_sample_std():
    # Group 0: over G - 1 = 3 the squares 12/16 give 1/4, whose root is 1/2.
    got = GroupNormalized(std_epsilon=0.0, std="sample")(REWARD_PG)[0]
    torch.testing.assert_close(got, torch.tensor([1.5, -0.5, -0.5, -0.5], dtype=torch.float64))


def test_default_epsilon_is_1e_6():
    # Rewards (1e-6, -1e-6): std 1e-6, so std + 1e-6 halves the advantage.
    reward_PG = torch.tensor([[1e-6, -1e-6]], dtype=torch.float64)
    expected = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(GroupNormalized()(reward_PG), expected)


def test_centered():
    expected = torch.tensor([[0.75, -0.25, -0.25, -0.25], [0.5, -0.5, 0.5, -0.5]]).double()
    torch.testing.assert_close(GroupCentered()(REWARD_PG), expected)


def test_leave_one_out():
    # Group 1: 1.1 against (0.1 + 1.1 + 0.1) / 3 = 1.3 / 3, and 0.1 against 2.3 / 3.
    high, low = 1.1 - 1.3 / 3, 0.1 - 2.3 / 3
    expected = torch.tensor(
        [[1.0, -1 / 3, -1 / 3, -1 / 3], [high, low, high, low]], dtype=torch.float64
    )
    torch.testing.assert_close(LeaveOneOut()(REWARD_PG), expected)


def test_mean_normalized():
    expected = torch.tensor([[3.0, -1.0, -1.0, -1.0], [5 / 6, -5 / 6, 5 / 6, -5 / 6]]).double()
    torch.testing.assert_close(MeanNormalized()(REWARD_PG), expected, rtol=0, atol=1e-7)
    assert torch.equal(MeanNormalized()(torch.zeros(1, 3)), torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"one is -0\.5"):
        MeanNormalized()(torch.tensor([[-0.5, 1.0]]))


@pytest.mark.parametrize("group_size", [2, 3, 5])
def test_mean_normalized_climbs_the_log_likelihood_up_to_order_g_minus_1(group_size):
    """Exactly: over all 2^G outcomes of a response that is right with probability p = sigma(x)."""
    p, got = 0.3, 0.0
    for right in itertools.product([1.0, 0.0], repeat=group_size):
        chance = math.prod(p if r else 1 - p for r in right)
        grads = [1 - p if r else -p for r in right]  # d log pi / dx
        advantage_G = MeanNormalized()(torch.tensor([right], dtype=torch.float64))[0].tolist()
        terms = [a * g for a, g in zip(advantage_G, grads, strict=True)]
        got += chance * sum(terms) / group_size
    # d/dx of pass@k / k = (1 - (1-p)^k) / k
    assert got == pytest.approx(sum((1 - p) ** (k - 1) * p * (1 - p) for k in range(1, group_size)))


def test_each_reward_normalised_apart():
    # accuracy (1, 0 | 1, 1 | 0, 0), format (1, 0 | 1, 0 | 1, 1). Apart within a group: accuracy
    # (1, -1 | 0, 0 | 0, 0), format (1, -1 | 1, -1 | 0, 0) times 0.5: S = (1.5, -1.5, .5, -.5, 0, 0)
    # of mean 0 and population std sqrt((2.25 * 2 + 0.25 * 2) / 6).
    accuracy_PG = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    format_PG = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    three = rollout(rewards={"accuracy": accuracy_PG, "format": format_PG})
    advantage_BT = NormalizedPerReward({"format": 0.5}, std_epsilon=0.0).estimate(three)
    expected_B = torch.tensor([1.5, -1.5, 0.5, -0.5, 0.0, 0.0]) / math.sqrt(5 / 6)
    torch.testing.assert_close(advantage_BT, expected_B[:, None].expand(6, 4))
    assert not NormalizedPerReward().estimate(rollout()).any()
    with pytest.raises(ValueError, match="weights has acuracy, and the rewards are accuracy"):
        NormalizedPerReward({"acuracy": 1.0}).estimate(rollout())
    with pytest.raises(ValueError, match=r"leave r1lit\.steps\.KLInReward out"):
        NormalizedPerReward().estimate(rollout(reward_BT=torch.zeros(6, 4)))


def test_a_group_that_is_left_out_does_not_change_the_advantages_of_each_reward_apart():
    """Its rewards are 0, and would lower the std over the iteration."""
    accuracy_PG = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    mask_BT = torch.ones(6, 4, dtype=torch.bool)
    mask_BT[4:] = False
    three = rollout(rewards={"accuracy": accuracy_PG}, loss_mask_BT=mask_BT)
    advantage_BT = NormalizedPerReward(std_epsilon=0.0).estimate(three)
    torch.testing.assert_close(advantage_BT[:4, 0], torch.tensor([1.0, -1.0, -1.0, 1.0]))
    none = replace(three, loss_mask_BT=torch.zeros_like(mask_BT))
    assert not NormalizedPerReward().estimate(none).any()


def test_leave_one_out_is_centered_times_g_over_g_minus_1():
    torch.testing.assert_close(LeaveOneOut()(REWARD_PG), GroupCentered()(REWARD_PG) * 4 / 3)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, -0.7])
@pytest.mark.parametrize("group_size", [2, 3, 7, 16])
def test_equal_rewards_give_exactly_zero(estimator: AdvantageEstimator, value, group_size):
    # 0.1 summed and divided is not 0.1 in floats, so a plain r - mean would not do.
    advantage_PG = estimator(torch.full((2, group_size), value))
    assert torch.equal(advantage_PG, torch.zeros(2, group_size))


def test_a_plain_mean_would_not_give_exactly_zero():
    reward_PG = torch.full((1, 7), 0.1)
    assert (reward_PG - reward_PG.mean(1, keepdim=True)).abs().max() > 0


def test_an_equal_group_does_not_silence_its_neighbour():
    got = GroupCentered()(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    assert got.tolist() == [[0.0, 0.0], [0.5, -0.5]]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_group_of_one_is_refused_by_name(estimator):
    with pytest.raises(ValueError, match="group_size=1"):
        estimator(torch.zeros(3, 1))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"std_epsilon: -1\.0 is not at least 0"):
        GroupNormalized(std_epsilon=-1.0)
    with pytest.raises(ValueError, match="std: 'both' is not one of"):
        GroupNormalized(std="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep: 'all' is not one of"):
        OnlyKept("all")  # type: ignore[arg-type]


def test_without_a_baseline_it_is_the_reward():
    made = rollout(
        length_B=torch.tensor([2, 1, 4, 4, 3, 4]),
        reward_PG=torch.tensor([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]]),
    )
    advantage_BT = NoBaseline().estimate(made)
    assert advantage_BT[0].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert advantage_BT[3].tolist() == [2.0] * 4 and not advantage_BT[5].any()


def ragged(seed: int = 0):
    """Three groups of two, of 1 to 4 tokens, with random rewards and log-probs."""
    g = torch.Generator().manual_seed(seed)
    length_B = torch.tensor([2, 1, 4, 4, 3, 4])
    made = rollout(
        length_B=length_B,
        loss_mask_BT=torch.arange(4) < length_B[:, None],
        reward_PG=torch.randn(3, 2, generator=g),
        logp_old_BT=torch.randn(6, 4, generator=g),
    )
    return made, torch.randn(6, 4, generator=g)


def with_kl_in_reward(made: Rollout, logp_ref_BT: torch.Tensor, beta: float):
    """What the step makes of a rollout, with these log-probs of the reference."""
    run: Any = SimpleNamespace(reference="the reference", log_probs=lambda *asked: logp_ref_BT)
    return KLInReward(beta)(made, run)


class Given(AdvantageEstimator):
    """Advantages that are given."""

    def __init__(self, advantage_BT: torch.Tensor) -> None:
        self.advantage_BT = advantage_BT

    def estimate(self, rollout: Rollout) -> torch.Tensor:
        return self.advantage_BT


def test_reinforce_plus_plus_is_the_papers_formula():
    """2501.03262: A_t = r - beta * sum over i >= t of KL(i), normalised over the global batch."""
    made, logp_ref_BT = ragged()
    paid, logged = with_kl_in_reward(made, logp_ref_BT, 0.3)
    got_BT = Whitened(NoBaseline()).estimate(paid)
    raw = {}
    for b, length in enumerate(made.length_B.tolist()):
        kl = (made.logp_old_BT[b] - logp_ref_BT[b])[:length]
        for t in range(length):
            raw[b, t] = float(made.reward_PG.flatten()[b] - 0.3 * kl[t:].sum())
    values = torch.tensor(list(raw.values()))
    for (b, t), value in raw.items():
        wanted = (value - values.mean()) / values.std(correction=0)
        assert float(got_BT[b, t]) == pytest.approx(float(wanted), abs=1e-5)
    assert logged["train/kl_in_reward"] == pytest.approx(
        float(0.3 * (made.logp_old_BT - logp_ref_BT)[made.mask_BT].mean()), abs=1e-6
    )
    assert not got_BT[~made.mask_BT].any()


def test_leave_one_out_with_the_kl_in_the_reward_is_rloo():
    """2402.14740: R = r - beta log pi/pi_ref of the response, less the others' mean R."""
    made, logp_ref_BT = ragged()
    paid, _ = with_kl_in_reward(made, logp_ref_BT, 0.3)
    ratio_B = ((made.logp_old_BT - logp_ref_BT) * made.mask_BT).sum(-1)
    total_PG = made.reward_PG - 0.3 * ratio_B.view(3, 2)
    wanted_B = (total_PG - total_PG.flip(1)).flatten()  # of two responses the other is the mean
    advantage_BT = LeaveOneOut().estimate(paid)
    torch.testing.assert_close(advantage_BT, wanted_B[:, None] * made.mask_BT)


def test_rejection_fine_tuning_is_cross_entropy_on_what_is_kept():
    made, logp_BT = ragged()
    best_BT = OnlyKept("best").estimate(made)
    kept = [2 * p + int(made.reward_PG[p, 1] > made.reward_PG[p, 0]) for p in range(3)]
    assert sorted(set(best_BT.any(-1).nonzero().flatten().tolist())) == kept
    assert torch.equal(OnlyKept().estimate(made), made.mask_BT.float())  # all are right
    logp_BT.requires_grad_()
    inputs = LossInputs(
        logp_BT=logp_BT, logp_old_BT=made.logp_old_BT, advantage_BT=best_BT,
        mask_BT=made.loss_mask_BT, num_rows=6.0, num_tokens=18.0,
    )  # fmt: skip
    (got_BT,) = torch.autograd.grad(PolicyGradient().loss(inputs).loss, logp_BT)
    kept_BT = best_BT > 0
    (wanted_BT,) = torch.autograd.grad(-logp_BT[kept_BT].mean(), logp_BT)
    torch.testing.assert_close(got_BT, wanted_BT * kept_BT.sum() / 18)


def test_whitening_counts_fewer_tokens_than_ranks(monkeypatch):
    """Two tokens on one of four ranks: their mean is 0 and their variance 1 all the same."""
    mask_BT = torch.zeros(6, 4, dtype=torch.bool)
    mask_BT[0, :2] = True
    advantage_BT = torch.zeros(6, 4)
    advantage_BT[0, :2] = torch.tensor([1.0, 5.0])
    monkeypatch.setattr("r1lit.objectives.whitened.mean_over_ranks", lambda x: float(x) / 4)
    made_BT = Whitened(Given(advantage_BT)).estimate(rollout(loss_mask_BT=mask_BT))
    torch.testing.assert_close(made_BT[0, :2], torch.tensor([-1.0, 1.0]))


def test_whitened_by_hand():
    """Advantages 1, 1, 3 at the tokens that count: mean 5/3, variance 8/9."""
    mask_BT = torch.zeros(6, 4, dtype=torch.bool)
    mask_BT[0, :2] = mask_BT[4, 3] = True
    advantage_BT = torch.full((6, 4), 7.0)
    advantage_BT[0, :2], advantage_BT[4, 3] = 1.0, 3.0
    made_BT = Whitened(Given(advantage_BT)).estimate(rollout(loss_mask_BT=mask_BT))
    wanted = torch.tensor([-2 / 3, -2 / 3, 4 / 3]) / (8 / 9) ** 0.5
    torch.testing.assert_close(made_BT[mask_BT], wanted)
    assert not made_BT[~mask_BT].any()
    none = rollout(loss_mask_BT=torch.zeros(6, 4, dtype=torch.bool))
    assert not Whitened(Given(torch.zeros(6, 4))).estimate(none).any()


def test_whitened_is_what_it_scales():
    """It reads what the inner estimator reads, and asks for groups as large."""
    inner = NormalizedPerReward()
    scaled = Whitened(Whitened(inner))
    assert scaled.unscaled is inner
    assert (scaled.reads, scaled.min_group_size) == (("reward_PG",), 2)
    assert isinstance(Whitened().unscaled, GroupNormalized)
