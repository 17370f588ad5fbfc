"""DPO: a policy learns from preference pairs directly, without a reward model.

N pairs   2 responses of a pair, chosen first
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import logsigmoid

from r1lit.objectives.preference import RewardObjective


class DPO(RewardObjective):
    """Direct preference optimisation (Rafailov et al. 2305.18290, Eq. 7), for ``DPOModule``.

    L = -log sigma(r_chosen - r_rejected), r = beta log pi(o)/pi_ref(o), the implicit reward: the
    log-prob of a response is the sum over its tokens. So it is ``BradleyTerry`` of a policy. With
    label smoothing s (cDPO, Mitchell 2023) a share of the pairs is taken to be the wrong way round:
    -(1 - s) log sigma(margin) - s log sigma(-margin).

    Worked example, beta 0.5, log-ratios (1, -1): rewards (0.5, -0.5), a margin of 1, loss 0.3133;
    with s = 0.1 it is 0.9 * 0.3133 + 0.1 * 1.3133 = 0.4133.

    Args:
        beta: how closely the policy stays to the reference; the paper's is 0.1 to 0.5.
        label_smoothing: s, from 0 to below 0.5.
    """

    rows_per_example = 2

    def __init__(self, beta: float = 0.1, label_smoothing: float = 0.0) -> None:
        if not (math.isfinite(beta) and beta > 0):
            raise ValueError(f"beta={beta}: must be above 0 (DPO: 0.1)")
        if not 0 <= label_smoothing < 0.5:
            raise ValueError(f"label_smoothing={label_smoothing}: must be from 0 to below 0.5")
        self.beta = beta
        self.label_smoothing = label_smoothing

    def loss_N(self, reward_NK: Tensor, label_N: Tensor | None = None) -> Tensor:
        """Return the loss of each pair from its implicit rewards; labels are not looked at."""
        assert reward_NK.ndim == 2 and reward_NK.shape[1] == 2, reward_NK.shape
        margin_N = reward_NK[:, 0] - reward_NK[:, 1]
        smoothing = self.label_smoothing
        return -(1 - smoothing) * logsigmoid(margin_N) - smoothing * logsigmoid(-margin_N)
