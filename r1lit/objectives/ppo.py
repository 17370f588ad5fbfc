"""PPO: the clipped objective with a critic's advantages, every token of the minibatch alike.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from typing import Any

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.aggregation import per_token_BT
from r1lit.objectives.clipping import SymmetricClip
from r1lit.objectives.gae import GAE
from r1lit.objectives.ratios import token_log_ratio_BT


class PPO(SymmetricClip):
    """Proximal policy optimisation (1707.06347, Eq. 7), for ``r1lit.modules.PPOModule``.

    J = 1/(sum_i |o_i|) sum_i sum_t min(rho_it A_it, clip(rho_it, 1 - eps, 1 + eps) A_it), A_it from
    a critic (``GAE``).

    Left open, and chosen here: the mean is over the tokens of the minibatch, as in TRL and verl.
    InstructGPT's KL penalty belongs into the reward (``PPOModule.kl_in_reward``); ``beta`` puts one
    into the loss, as GRPO does. Degenerates: with the advantages of a group it is ``DAPO`` of equal
    epsilons.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon].
        advantage: ``GAE()`` where left out.
        **options: of ``Objective``: beta, kl, positive_nll.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon: float = 0.2, advantage: AdvantageEstimator | None = None, **options: Any
    ) -> None:
        super().__init__(epsilon=epsilon, advantage=advantage or GAE(), **options)
