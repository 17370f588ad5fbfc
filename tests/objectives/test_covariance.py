"""Clip-Cov and KL-Cov: which tokens they select, and what they do with them, by hand."""

import math

import numpy as np
import pytest
import torch

from r1lit.batches import Rollout
from r1lit.modules.selected_tokens import with_selection
from r1lit.objectives import GRPO, ClipCov, KLCov, LossInputs
from r1lit.objectives.loss_inputs import SELECTED
from r1lit.objectives.terms import covariance_N

# pi_old is 0.4 everywhere; pi is 0.6 or 0.2, so ratios are 1.5 or 0.5; one token of padding
LOGP_BT = torch.tensor([[0.6, 0.2], [0.6, 0.9]], dtype=torch.float64).log()
OLD_BT = torch.tensor([[0.4, 0.4], [0.4, 0.1]], dtype=torch.float64).log()
MASK_BT = torch.tensor([[True, True], [True, False]])
FIRST_BT = torch.tensor([[True, False], [False, True]])  # the second is padding


def value_and_gradient(objective, selected_BT):
    logp_BT = LOGP_BT.clone().requires_grad_()
    inputs = LossInputs(
        logp_BT=logp_BT,
        logp_old_BT=OLD_BT,
        advantage_BT=torch.tensor([[2.0], [-1.0]], dtype=torch.float64).expand(2, 2),
        mask_BT=MASK_BT,
        num_rows=2,
        num_tokens=3,
        extra_BT={} if selected_BT is None else {SELECTED: selected_BT},
    )
    outputs = objective.loss(inputs)
    outputs.loss.backward()
    gradient = [-g for g in logp_BT.grad.flatten().tolist()]
    return -outputs.loss.item(), gradient, outputs.metrics["clip_fraction"].item()


@pytest.mark.parametrize(
    ("objective", "selected_BT", "value", "gradient", "clipped"),
    [
        # A = 2: 1.5 is clipped to 1.2; A = -1: 1.5 is not
        (ClipCov(), None, (1.2 * 2 + 0.5 * 2 - 1.5) / 3, [0, 0.5 * 2 / 3, -1.5 / 3, 0], 1),
        # the ratio of the first token is within 2.0, but it is held back
        (
            ClipCov(epsilon_high=1.0),
            FIRST_BT,
            (0 + 0.5 * 2 - 1.5) / 3,
            [0, 0.5 * 2 / 3, -1.5 / 3, 0],
            1,
        ),
        (KLCov(), None, (1.5 * 2 + 0.5 * 2 - 1.5) / 3, [1.5 * 2 / 3, 1 / 3, -1.5 / 3, 0], 0),
        # less 0.5 |log 1.5| at the first token, whose gradient is 0.5
        (
            KLCov(kl_weight=0.5),
            FIRST_BT,
            (1.5 * 2 + 0.5 * 2 - 1.5 - 0.5 * math.log(1.5)) / 3,
            [(1.5 * 2 - 0.5) / 3, 1 / 3, -1.5 / 3, 0],
            0,
        ),
    ],
)
def test_worked_example(objective, selected_BT, value, gradient, clipped):
    got = value_and_gradient(objective, selected_BT)
    assert got[0] == pytest.approx(value, abs=1e-14)
    assert got[1] == pytest.approx(gradient, abs=1e-14)
    assert got[2] == clipped


def test_gradient_is_that_of_the_loss_where_tokens_are_selected(batch):
    selected_BT = torch.arange(30).reshape(6, 5) % 3 == 0

    def loss(logp_BT):
        changes = {"logp_BT": logp_BT, "extra_BT": {SELECTED: selected_BT}}
        return KLCov(kl_weight=0.7).loss(batch.inputs(**changes)).loss

    assert torch.autograd.gradcheck(loss, batch.logp_BT.clone().requires_grad_())


def test_on_policy_rounding_pushes_no_token(batch):
    logp_BT = batch.logp_BT.clone().requires_grad_()
    rounding_BT = torch.where(torch.arange(30).reshape(6, 5) % 2 == 0, 1e-6, -1e-6)
    gradients = [
        torch.autograd.grad(
            KLCov(kl_weight=weight)
            .loss(
                batch.inputs(
                    logp_BT=logp_BT,
                    logp_old_BT=logp_BT.detach() + rounding_BT,
                    extra_BT={SELECTED: torch.ones(6, 5, dtype=torch.bool)},
                )
            )
            .loss,
            logp_BT,
        )[0]
        for weight in (0.0, 1.0)
    ]
    torch.testing.assert_close(gradients[1], gradients[0])


def test_covariance_by_hand():
    logp_N, advantage_N = torch.tensor([[-1.0, -3.0, -1.0, -3.0], [2.0, 2.0, -2.0, -2.0]])
    assert covariance_N(logp_N, advantage_N).tolist() == [2, -2, -2, 2]
    logp_N, advantage_N = torch.tensor([[-1.0, -2.0, -6.0], [1.0, 1.0, -2.0]])
    # means -3 and 0
    assert covariance_N(logp_N, advantage_N).tolist() == [2, 1, 6]


def test_clip_cov_draws_among_those_within_the_bounds():
    cov_N = torch.tensor([0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0, -2.0, -math.inf, 1.5])
    within = {2, 3, 4, 9}
    drawn = set()
    for seed in range(40):
        chosen_N = ClipCov(selected_share=0.25).select_tokens(cov_N, np.random.default_rng(seed))
        chosen = set(chosen_N.nonzero()[:, 0].tolist())
        assert len(chosen) == 2 and chosen <= within
        drawn |= chosen
    assert drawn == within
    all_N = ClipCov(selected_share=1.0).select_tokens(cov_N, np.random.default_rng(0))
    assert set(all_N.nonzero()[:, 0].tolist()) == within
    assert ClipCov().select_tokens(cov_N, np.random.default_rng(0)).sum() == 1, "one at least"
    assert not ClipCov().select_tokens(torch.zeros(5), np.random.default_rng(0)).any()


def test_kl_cov_takes_the_highest():
    cov_N = torch.tensor([0.5, 7.0, -1.0, 7.0, 3.0, -math.inf])
    random = np.random.default_rng(0)
    chosen = [KLCov(selected_share=s).select_tokens(cov_N, random).tolist() for s in (1e-3, 0.5)]
    assert chosen[0] == [False, True, False, False, False, False]
    assert chosen[1] == [False, True, False, True, True, False]
    assert not KLCov().select_tokens(torch.full((3,), -math.inf), random).any()


def rollout() -> Rollout:
    """Four tokens that count of two responses, and two that do not."""
    shape = (2, 3)
    mask_BT = torch.tensor([[True, True, False], [True, True, True]])
    return Rollout(
        iteration=3,
        group_size=2,
        prompts=((1,),),
        responses=(None, None),  # type: ignore[arg-type]
        response_BT=torch.zeros(shape, dtype=torch.long),
        length_B=torch.tensor([2, 3]),
        loss_mask_BT=mask_BT & torch.tensor([[True, True, True], [True, True, False]]),
        logp_sampler_BT=torch.zeros(shape),
        logp_old_BT=torch.tensor([[-1.0, -3.0, math.nan], [-1.0, -3.0, -9.0]]),
        rewards={},
        reward_PG=torch.tensor([[1.0, 0.0]]),
        advantage_BT=torch.tensor([[2.0, 2.0, math.nan], [-2.0, 0.0, 5.0]]),
    )


def test_a_rollout_is_selected_from_as_a_whole():
    """Means -2 and 0.5: covariances 1.5, -1.5, -2.5, 0.5; the last token has no advantage."""
    before = rollout()
    after, metrics = with_selection(before, KLCov(selected_share=0.5), seed=0)
    assert after.extra_BT[SELECTED].tolist() == [[True, True, False], [False, False, False]]
    assert metrics == {
        "train/covariance/mean": -0.5,
        "train/covariance/top_0.2_percent": 1.5,
        "train/covariance/top_2_percent": 1.5,
        "train/covariance/top_20_percent": 1.5,
        "train/covariance/selected": 0.5,
    }
    same, metrics = with_selection(before, GRPO(), seed=0)
    assert same is before and "train/covariance/selected" not in metrics


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ClipCov(selected_share=0), "selected_share=0: must be above 0"),
        (lambda: KLCov(selected_share=1.5), "selected_share=1.5"),
        (lambda: ClipCov(covariance_low=6.0), "covariance_low=6.0: must be below"),
        (lambda: KLCov(kl_weight=-1.0), "kl_weight: -1.0"),
    ],
)
def test_bad_arguments_are_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()
