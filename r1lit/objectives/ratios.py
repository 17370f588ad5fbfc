"""Log-ratios of the policy to the old policy: per token, per whole output, per geometric mean.

    B rows (responses)   T response tokens

All three return B x T, the last two with one value a row; 0, a ratio of 1, is what padding gives.

Worked example, one response with token log-ratios (0.1, 0.3): per token (0.1, 0.3), per output
(0.4, 0.4), geometric mean (0.2, 0.2).
"""

from __future__ import annotations

from torch import Tensor

from r1lit.objectives.masking import hide_padding, row_length_B1, row_sum_B1


def token_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log pi_theta(o_t) / pi_old(o_t), of GRPO (2402.03300, Eq. 3)."""
    return hide_padding(logp_BT, mask_BT) - hide_padding(logp_old_BT, mask_BT)


def output_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log pi_theta(o) / pi_old(o) of the whole output, the sum over its tokens (R1)."""
    log_ratio_BT = token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)
    return row_sum_B1(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)


def mean_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean over tokens of the log-ratio, log s of GSPO (2507.18071, Eq. 7)."""
    log_ratio_BT = token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)
    mean_B1 = row_sum_B1(log_ratio_BT, mask_BT) / row_length_B1(mask_BT)
    return mean_B1.expand_as(log_ratio_BT)
