"""GRPO as DeepSeekMath prints it: the ratio per token, the mean over a response, then over rows.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from r1lit.objectives.aggregation import per_response_BT
from r1lit.objectives.clipping import SymmetricClip
from r1lit.objectives.ratios import token_log_ratio_BT


class GRPO(SymmetricClip):
    """Group Relative Policy Optimization (DeepSeekMath 2402.03300, Eq. 3).

    J = 1/G sum_i 1/|o_i| sum_t [ min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_it = pi_theta(o_it) / pi_old(o_it), A_i group-normalised, D_KL the k3 estimator (Eq. 4).

    Left open, and chosen here: the mean over questions and over the G responses is one mean over
    the rows of a minibatch (the same where every group is whole or rows are shuffled); eps, which
    the paper does not print, is PPO's 0.2. DeepSeekMath trains with beta = 0.04, R1 with 0.001 and
    eps = 10; beta is 0 here by default, without a reference. R1 prints the ratio per whole output
    instead: that is ``GRPOSequence``.

    Degenerates: on policy (rho = 1, beta = 0) to REINFORCE with 1/|o_i|. With equal lengths it is
    ``DAPO`` of equal epsilons, and ``DrGRPO`` whose max_tokens is that length.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)
