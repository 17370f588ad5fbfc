"""The steps without a model of their own, by hand: what they write, log, and leave as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_batches import rollout

from r1lit.modules.grpo import joined
from r1lit.objectives import MaskedImportanceSampling, TruncatedImportanceSampling
from r1lit.steps import Correction, KLInReward, MaskTruncated, TopEntropy

CUT = (1, 4)


def with_cut_responses():
    made = rollout()
    responses = tuple(
        replace(response, finished=row not in CUT) for row, response in enumerate(made.responses)
    )
    return replace(made, responses=responses)


def run_of(logp_BT: torch.Tensor, **also: Any) -> Any:
    """What offers the policy's log-probs, and says which model was asked for them."""
    asked: list[str] = []

    def log_probs(rollout: Any, model: str) -> torch.Tensor:
        asked.append(model)
        return logp_BT

    return SimpleNamespace(
        policy="policy", reference="reference", log_probs=log_probs, asked=asked, **also
    )


def test_truncated_responses_leave_the_loss_and_stay_rows() -> None:
    made = with_cut_responses()
    made.loss_mask_BT[2, 1] = False
    found, logged = MaskTruncated()(made, run_of(made.logp_old_BT))
    wanted_BT = made.loss_mask_BT.clone()
    wanted_BT[list(CUT)] = False
    assert torch.equal(found.loss_mask_BT, wanted_BT) and logged == {}
    assert made.loss_mask_BT.sum() == 23, "the rollout given is as it was"
    assert len(found.responses) == 6 and torch.equal(found.reward_PG, made.reward_PG)


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_correction_starts_ratios_from_the_trainer_and_weighs_tokens(is_fresh: bool) -> None:
    """rho is 4 at one token, 1/4 at another, 1 elsewhere; one token does not count."""
    logp_BT = torch.full((6, 4), -1.0)
    logp_BT[0, 0] += math.log(4)
    logp_BT[3, 2] -= math.log(4)
    logp_BT[5, 3] = math.nan
    mask_BT = torch.ones(6, 4, dtype=torch.bool)
    mask_BT[5, 3] = False
    sampled = {"logp_sampler_BT": torch.full((6, 4), -1.0), "logp_old_BT": torch.zeros(6, 4)}
    made = rollout(loss_mask_BT=mask_BT, **sampled)
    run = run_of(logp_BT, is_fresh=is_fresh)
    if is_fresh:  # log-probs of the same weights should agree
        with pytest.warns(UserWarning, match="train/mismatch/mean_abs is above"):
            found, logged = Correction(TruncatedImportanceSampling(2.0))(made, run)
    else:
        found, logged = Correction(TruncatedImportanceSampling(2.0))(made, run)
    assert run.asked == ["policy"] and found.logp_old_BT is logp_BT
    wanted_BT = torch.ones(6, 4)
    wanted_BT[0, 0], wanted_BT[3, 2], wanted_BT[5, 3] = 2.0, 0.25, 0.0
    assert found.weight_BT is not None
    torch.testing.assert_close(found.weight_BT, wanted_BT)
    assert logged["train/mismatch/max_abs"] == pytest.approx(math.log(4))
    assert logged["train/mismatch/mean_abs"] == pytest.approx(2 * math.log(4) / 23)
    assert logged["train/mismatch/share_outside"] == pytest.approx(2 / 23)
    sums = 21 + 4 + 0.25, 21 + 16 + 1 / 16
    assert logged["train/mismatch/effective_sample_size"] == pytest.approx(
        sums[0] ** 2 / (23 * sums[1])
    )


def test_weights_that_are_there_stay_where_entropy_is_high() -> None:
    logp_BT = torch.zeros(6, 4)
    logp_BT[0] = math.log(8)  # masked out by MIS
    entropy_BT = torch.zeros(6, 4)
    entropy_BT[:2] = 1.0
    run = run_of(logp_BT, is_fresh=False, entropies=lambda rollout: entropy_BT)
    weighed, _ = Correction(MaskedImportanceSampling())(rollout(), run)
    found, logged = TopEntropy(8 / 24)(weighed, run)
    assert found.weight_BT is not None
    assert found.weight_BT.sum(-1).tolist() == [0.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    assert logged == {"train/entropy_least": 1.0}


def test_the_penalty_is_paid_beside_other_rewards_of_tokens() -> None:
    logp_ref_BT = torch.full((6, 4), -0.5)
    made = rollout(reward_BT=torch.full((6, 4), 0.25), length_B=torch.full((6,), 3))
    run = run_of(logp_ref_BT)
    found, logged = KLInReward(0.2)(made, run)
    assert run.asked == ["reference"] and found.reward_BT is not None
    torch.testing.assert_close(found.reward_BT[:, :3], torch.full((6, 3), 0.25 - 0.1))
    torch.testing.assert_close(found.reward_BT[:, 3], torch.full((6,), 0.25))
    assert logged["train/kl_per_response"] == pytest.approx(1.5)
    nothing = replace(made, loss_mask_BT=torch.zeros(6, 4, dtype=torch.bool))
    found, other = KLInReward(0.2)(nothing, run)
    assert other.keys() == logged.keys() and math.isnan(other["train/kl_in_reward"])
    with pytest.raises(ValueError, match=r"beta: 0 is not above 0"):
        KLInReward(0)


def test_two_that_log_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^KLInReward logs train/kl, which is logged already"):
        joined({"train/kl": 0.0}, {"train/kl": 1.0}, "KLInReward")


def test_what_no_step_has_written_is_named_with_its_reader() -> None:
    made = rollout(extra_BT={"value_BT": torch.zeros(6, 4)})
    assert made.extra("value_BT", "GAE") is made.extra_BT["value_BT"]
    with pytest.raises(ValueError, match=r"^GAE reads novelty_BT .* have written value_BT; put"):
        made.extra("novelty_BT", "GAE")
