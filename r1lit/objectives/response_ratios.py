"""Ratios of whole responses.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from torch import Tensor

from r1lit.objectives.terms import hide_padding, row_length_B1, row_sum_B1, token_log_ratio_BT


def output_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log pi_theta(o) / pi_old(o) of the whole output, the sum over its tokens (R1)."""
    log_ratio_BT = token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)
    return row_sum_B1(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)


def mean_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean over tokens of the log-ratio, log s of GSPO (2507.18071, Eq. 7)."""
    log_ratio_BT = token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)
    mean_B1 = row_sum_B1(log_ratio_BT, mask_BT) / row_length_B1(mask_BT)
    return mean_B1.expand_as(log_ratio_BT)


def mean_and_token_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log s_it of GSPO-token (2507.18071, Eq. 14): value of the mean, gradient of one."""
    here_BT = hide_padding(logp_BT, mask_BT)
    return mean_log_ratio_BT(logp_BT.detach(), logp_old_BT, mask_BT) + (here_BT - here_BT.detach())
