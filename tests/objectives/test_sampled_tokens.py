"""Advantages of a response with tokens of an environment are those of it without them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from r1lit.batches import Problem, Response, Rollout, Verdict
from r1lit.objectives.advantages import (
    AdvantageEstimator,
    GroupCentered,
    GroupNormalized,
    LeaveOneOut,
    MeanNormalized,
)
from r1lit.objectives.gae import GAE
from r1lit.objectives.no_baseline import NoBaseline, OnlyKept
from r1lit.objectives.step_advantages import ImplicitProcess, ProcessSupervision, TurnReturns
from r1lit.steps import KLInReward

SAMPLED = torch.tensor(
    [[1, 1, 0, 0, 1, 1], [1, 0, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0]]
).bool()
LENGTH = torch.tensor([6, 5, 3, 5])
ESTIMATORS: dict[str, AdvantageEstimator] = {
    **{type(e).__name__: e for e in (GroupNormalized(), GroupCentered(), LeaveOneOut())},
    **{type(e).__name__: e for e in (NoBaseline(), OnlyKept(), MeanNormalized())},
    "ImplicitProcess": ImplicitProcess(0.9),
    "GAE": GAE(gamma=0.9, lambda_policy=0.7),
    "GAE by length": GAE(alpha=0.5),
    "ProcessSupervision": ProcessSupervision(outcome=GroupCentered()),
}


def rollout(sampled_BT: torch.Tensor, length_B: torch.Tensor, values_BT: torch.Tensor) -> Rollout:
    """Two groups of two; log-probs, rewards of tokens and values are ``values_BT``."""
    problem = Problem(uid="p", question="", answer="", source="s")
    verdicts = [
        Verdict(value=float(right), status="right" if right else "wrong", canonical=None, reason="")
        for right in (True, False, False, True)
    ]
    place_T = torch.arange(sampled_BT.shape[1])
    last_BT = place_T == torch.where(sampled_BT, place_T, -1).amax(-1, keepdim=True)
    paid_BT = torch.where(last_BT, values_BT, 0.0 * values_BT)
    return Rollout(
        iteration=0,
        group_size=2,
        prompts=((1,), (2,)),
        responses=tuple(
            Response(text="", problem=problem, verdict=v, num_tokens=int(n), finished=True)
            for v, n in zip(verdicts, length_B, strict=True)
        ),
        response_BT=torch.zeros(values_BT.shape, dtype=torch.long),
        length_B=length_B,
        loss_mask_BT=sampled_BT,
        logp_sampler_BT=values_BT,
        logp_old_BT=values_BT,
        rewards={},
        reward_PG=torch.tensor([[1.0, 0.0], [0.25, 1.0]]),
        advantage_BT=torch.zeros(values_BT.shape),
        reward_BT=paid_BT,
        step_end_BT=last_BT,
        extra_BT={"value_BT": values_BT, "process_reward_BT": paid_BT},
        environment_BT=(place_T < length_B[:, None]) & ~sampled_BT,
    )


def pair() -> tuple[Rollout, Rollout]:
    """With tokens of an environment, NaN in all numbers, and without these tokens."""
    values_BT = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    written = rollout(SAMPLED, LENGTH, torch.where(SAMPLED, values_BT, torch.nan))
    rows = [values_T[mask_T] for values_T, mask_T in zip(values_BT, SAMPLED, strict=True)]
    short_BT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    length_B = SAMPLED.sum(-1)
    mask_BT = torch.arange(short_BT.shape[1]) < length_B[:, None]
    return written, rollout(mask_BT, length_B, short_BT)


def compared(written_BT: torch.Tensor, short_BT: torch.Tensor) -> None:
    assert not written_BT[~SAMPLED].any()
    mask_BT = torch.arange(short_BT.shape[1]) < SAMPLED.sum(-1, keepdim=True)
    torch.testing.assert_close(written_BT[SAMPLED], short_BT[mask_BT], rtol=0, atol=1e-6)
    assert short_BT[mask_BT].any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages_are_those_of_the_sampled_tokens(name):
    estimator = ESTIMATORS[name]
    compared(*(estimator.estimate(r) for r in pair()))
    if isinstance(estimator, GAE):
        compared(*(estimator.returns(r) for r in pair()))


def test_the_penalty_of_the_reward_is_of_the_sampled_tokens():
    written, short = pair()
    run: Any = SimpleNamespace(reference=None, log_probs=lambda r, reference: r.logp_old_BT * 0.5)
    step = KLInReward(0.1)
    found, metrics = zip(*(step(r, run) for r in (written, short)), strict=True)
    paid = [step(replace(r, reward_BT=None), run)[0] for r in (written, short)]
    compared(*(NoBaseline().estimate(r) for r in found))
    compared(*(NoBaseline().estimate(r) for r in paid))
    assert metrics[0] == pytest.approx(metrics[1])


def turns(*rewards: list[float], outcomes: list[float]) -> Rollout:
    """Twice the same group of two; a response has a token of its own a turn, and others between."""
    rewards, outcomes = rewards * 2, [outcomes] * 2
    num = max(map(len, rewards))
    sampled_BT = torch.zeros(len(rewards), 2 * num - 1, dtype=torch.bool)
    paid_BT = torch.zeros(sampled_BT.shape)
    for row, own in enumerate(rewards):
        sampled_BT[row, 0 : 2 * len(own) : 2] = True
        paid_BT[row, 0 : 2 * len(own) : 2] = torch.tensor(own)
    length_B = torch.tensor([2 * len(own) - 1 for own in rewards])
    made = rollout(sampled_BT, length_B, paid_BT)
    return replace(
        made, reward_BT=paid_BT, step_end_BT=sampled_BT, reward_PG=torch.tensor(outcomes)
    )


def test_returns_of_turns_by_hand():
    advantage_BT = TurnReturns().estimate(turns([1.0, 0.0], [0.0], outcomes=[1.0, 0.0]))
    assert advantage_BT[:2].tolist() == [[2.0, 0.0, 1.0], [-2.0, 0.0, 0.0]]


def test_returns_of_turns_refuse_rewards_within_a_turn():
    made = turns([1.0, 0.0], [0.0], outcomes=[1.0, 0.0])
    ends_BT = made.step_end_BT.clone()
    ends_BT[0, 0] = False  # the first token of a turn of two has a reward
    with pytest.raises(ValueError, match=r"leave r1lit\.steps\.KLInReward out"):
        TurnReturns().estimate(replace(made, step_end_BT=ends_BT))


def test_the_gradient_of_returns_of_turns_is_unbiased():
    """A two-turn game: a policy goes on with probability p, and then wins with probability q.

    The mean of A times the score over all pairs of responses is the gradient of the mean reward.
    """
    logits = torch.tensor([0.3, -0.4], dtype=torch.double, requires_grad=True)
    p, q = logits.sigmoid()
    # each response: its rewards of turns, its outcome, the score of each turn, its probability
    stops = ([0.25], 0.0, [(1 - p).log()], 1 - p)
    loses = ([0.0, -0.5], 0.0, [p.log(), (1 - q).log()], p * (1 - q))
    wins = ([0.0, 0.0], 1.0, [p.log(), q.log()], p * q)
    ways = (stops, loses, wins)
    value = sum(chance * (sum(paid) + outcome) for paid, outcome, _, chance in ways)
    (exact,) = torch.autograd.grad(value, logits, retain_graph=True)
    surrogate = torch.zeros((), dtype=torch.double)
    for one, other in product(ways, repeat=2):
        made = turns(one[0], other[0], outcomes=[one[1], other[1]])
        advantage_BT = TurnReturns().estimate(made)[:2].double()
        chance = (one[3] * other[3]).detach()
        for row, way in enumerate((one, other)):
            for turn, score in enumerate(way[2]):
                surrogate = surrogate + chance * advantage_BT[row, 2 * turn] * score / 2
    (found,) = torch.autograd.grad(surrogate, logits)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-6)
