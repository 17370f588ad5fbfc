"""PPO: the clipped surrogate, and the loss of its critic's values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.errors import check_above
from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.gae import GAE
from r1lit.objectives.loss_inputs import LossOutputs
from r1lit.objectives.objective import SymmetricClip
from r1lit.objectives.terms import hide_padding, per_token_BT, token_log_ratio_BT


class PPO(SymmetricClip):
    """Proximal policy optimisation (1707.06347, Eq. 7), with the step ``r1lit.steps.Critic``.

    J = 1/(sum_i |o_i|) sum_i sum_t min(rho_it A_it, clip(rho_it, 1 - eps, 1 + eps) A_it), A_it from
    a critic (``GAE``).

    Left open, and chosen here: the mean is over the tokens of the minibatch, as in TRL and verl.
    InstructGPT's KL penalty belongs into the reward (the step ``KLInReward``); ``beta`` puts one
    into the loss, as GRPO does. Degenerates: with the advantages of a group it is ``DAPO`` of equal
    epsilons.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon].
        advantage: ``GAE()`` where left out.
        **options: of ``Objective``: beta, kl, terms.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon: float = 0.2, advantage: AdvantageEstimator | None = None, **options: Any
    ) -> None:
        super().__init__(epsilon=epsilon, advantage=advantage or GAE(), **options)


class ValueObjective:
    """The critic's loss: the squared error of its values, clipped around the old ones.

    L = 1/(2M) sum over M tokens of max((V - R)^2, (clip(V, V_old - eps, V_old + eps) - R)^2)

    The value loss of PPO's reference implementation ("Implementation Matters", 2005.12729, §3); the
    max makes it pessimistic: a value that has moved by more than eps towards its return learns no
    more.

    Worked example, eps 0.2, V_old 0, R 1: V 0.1 costs 0.81 / 2 and learns; V 0.5 costs 0.64 / 2, as
    V 0.2 does, and has no gradient; V -0.5 costs 2.25 / 2 and learns.

    Args:
        epsilon: how far a value may move in one iteration; null: not clipped.
    """

    def __init__(self, epsilon: float | None = 0.2) -> None:
        check_above("epsilon", epsilon, 0, "null does not clip", finite=False)
        self.epsilon = epsilon

    def loss(
        self,
        value_BT: Tensor,
        value_old_BT: Tensor,
        return_BT: Tensor,
        mask_BT: Tensor,
        num_tokens: float,
    ) -> LossOutputs:
        """Return the loss of some rows, their share of the minibatch's, and metrics.

        Only ``value_BT`` is differentiated. ``num_tokens`` (M) is the whole minibatch's.
        """
        value_BT, old_BT = hide_padding(value_BT, mask_BT), hide_padding(value_old_BT, mask_BT)
        target_BT = hide_padding(return_BT, mask_BT)
        error_BT = (value_BT - target_BT).square()
        worst_BT = error_BT
        if self.epsilon is not None:
            near_BT = old_BT + (value_BT - old_BT).clamp(-self.epsilon, self.epsilon)
            worst_BT = torch.maximum(error_BT, (near_BT - target_BT).square())
        clipped = (worst_BT > error_BT).sum()
        return LossOutputs(
            loss=0.5 * worst_BT.sum() / num_tokens, metrics={"value_clip_fraction": clipped}
        )
