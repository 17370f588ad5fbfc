"""GRPO as DeepSeek-R1 prints it: one ratio per whole output.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from typing import Any

from r1lit.objectives.aggregation import per_response_BT
from r1lit.objectives.clipping import SymmetricClip
from r1lit.objectives.ratios import output_log_ratio_BT


class GRPOSequence(SymmetricClip):
    """GRPO with one ratio per whole output (DeepSeek-R1 2501.12948v1, Eq. 1; Nature 645:633).

    J = 1/G sum_i [ min(rho_i A_i, clip(rho_i, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_i = pi_theta(o_i|q) / pi_old(o_i|q), the product of the token ratios.

    Left open, and chosen here: D_KL is printed for the output. Read as one sample of k3 for the
    whole output it would hold exp of a sum over thousands of tokens, and overflow; summed over
    tokens its weight would grow with the length. It is *averaged over the tokens* of the output, as
    in DeepSeekMath's Eq. 3, so that one beta means the same in both classes. (Multiply beta by the
    typical length for the sum.) epsilon is R1's 10: a product of ratios strays much further from 1
    than a token's ratio, and 0.2 would clip nearly every long output after one update.

    The product may overflow its float where A < 0 (where A > 0 the clip caps it at 1 + eps): the
    loss is then infinite, as in the equation, and not hidden.

    Degenerates: on policy (rho = 1) the gradient is A_i sum_t grad log pi, *without* 1/|o_i|: with
    the same advantages max_tokens times that of ``DrGRPO``, and so R1's print, read literally, does
    not have GRPO's length bias. With one-token responses it is ``GRPO`` and ``GSPO``.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(output_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)  # over a response they sum it up once

    def __init__(self, *, epsilon: float = 10.0, **options: Any) -> None:
        super().__init__(epsilon=epsilon, **options)
