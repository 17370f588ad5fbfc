"""Rewards as advantages: without a baseline, and of right responses alone.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.errors import check_one_of
from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.step_advantages import sum_to_end_BT
from r1lit.objectives.terms import hide_padding


class NoBaseline(AdvantageEstimator):
    """A_it = what is still paid from token t on, of REINFORCE (Williams 1992); G may be 1.

    That is r_i, and less the penalties to come where the KL is in the reward. With ``Whitened``
    around it and the step ``KLInReward`` it is REINFORCE++ (2501.03262, §3.2), whose baseline is
    the mean of the iteration.

    Worked example, rewards (1, 0, 0, 0): advantages (1, 0, 0, 0). With penalties of (0.1, 0.2) at
    two tokens the first response's are (0.7, 0.8).
    """

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return each response's reward at every one of its tokens, and the tokens' yet to come."""
        return_BT = rollout.reward_PG.reshape(-1, 1)
        if rollout.reward_BT is not None:
            token_BT = hide_padding(rollout.reward_BT, rollout.sampled_BT)
            return_BT = return_BT + sum_to_end_BT(token_BT)
        return torch.where(rollout.sampled_BT, return_BT, 0.0)


class OnlyKept(AdvantageEstimator):
    """A_i = 1 for responses that are kept and 0 for others: fine-tuning on one's own best.

    With ``PolicyGradient`` each update is one of supervised fine-tuning on the kept responses of
    its minibatch, a mean over tokens times the share of them that is kept. RAFT (2304.06767, §3)
    keeps the best of each group, expert iteration (STaR, ReST) what is right.

    Worked example, rewards (0, 2, 2, 1), the first two right: "best" keeps (0, 1, 0, 0), the first
    of equals, and "right" (1, 1, 0, 0).

    Args:
        keep: "right" responses, or the "best" of each group, right or wrong.
    """

    reads = ("reward_PG",)

    def __init__(self, keep: Literal["right", "best"] = "right") -> None:
        check_one_of("keep", keep, ("right", "best"))
        self.keep = keep

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return 1 at every token of the kept responses."""
        kept_B = rollout.is_right_B
        if self.keep == "best":
            best_P1 = rollout.reward_PG.argmax(-1, keepdim=True)
            kept_B = torch.zeros_like(rollout.reward_PG).scatter(-1, best_P1, 1.0).flatten() > 0
        return (rollout.sampled_BT & kept_B[:, None]).to(rollout.advantage_BT.dtype)
