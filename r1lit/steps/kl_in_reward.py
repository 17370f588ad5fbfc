"""A penalty on the distance to the reference, in the reward of every token."""

from __future__ import annotations

from dataclasses import replace

from r1lit.batches import Rollout
from r1lit.errors import check_above
from r1lit.objectives.terms import hide_padding, k1_BT
from r1lit.steps.base import REFERENCE, Run, Step


class KLInReward(Step):
    """Adds -beta (log pi_old - log pi_ref) to the reward of each token.

    The KL of InstructGPT's reward (2203.02155, Eq. 2), of RLOO and of REINFORCE++, by k1;
    ``objective.beta`` puts one into the loss. Logged are means: of the penalty over the tokens that
    count, NaN where none does, and of the KL over responses.

    Args:
        beta: the penalty's weight.
    """

    reads = ("logp_old_BT", "loss_mask_BT", "reward_BT", REFERENCE)
    writes = ("reward_BT",)

    def __init__(self, beta: float) -> None:
        check_above("beta", beta, 0, "InstructGPT uses 0.02; leave the step out for none")
        self.beta = beta

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout with the penalty in the rewards of its tokens."""
        logp_ref_BT = run.log_probs(rollout, run.reference)
        kl_BT = k1_BT(rollout.logp_old_BT, logp_ref_BT)
        penalty_BT = hide_padding(self.beta * kl_BT, rollout.sampled_BT)
        paid_BT = 0.0 if rollout.reward_BT is None else rollout.reward_BT
        return replace(rollout, reward_BT=paid_BT - penalty_BT), {
            "train/kl_in_reward": float(penalty_BT[rollout.loss_mask_BT].mean()),
            "train/kl_per_response": float(penalty_BT.sum(-1).mean()) / self.beta,
        }
