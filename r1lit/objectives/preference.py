"""Objectives of preference: pairs and labelled responses for reward models, pairs for DPO.

N examples   K rows of an example (2 of a pair, chosen first; 1 of a labelled response)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from r1lit.errors import check_above


class RewardObjective(ABC):
    """A loss for each example; a minibatch's is their mean, however it is split."""

    rows_per_example: int

    @abstractmethod
    def loss_N(self, reward_NK: Tensor, label_N: Tensor) -> Tensor:
        """Return the loss of each example, in nats."""


class BradleyTerry(RewardObjective):
    """Pairs: -log sigma(r_chosen - r_rejected) (Bradley-Terry; InstructGPT 2203.02155, Eq. 1).

    R1 trains its helpful reward model so (Nature 645:633, Methods: "pair-wise loss"). The
    probability that the chosen response is preferred is sigma of the difference; adding a constant
    to all rewards changes nothing, which is why they are normalised afterwards. Labels are not
    looked at.

    Worked example: rewards [[2, 1], [0, 1]] have differences 1 and -1, and losses 0.3133 and
    1.3133.
    """

    rows_per_example = 2

    def loss_N(self, reward_NK: Tensor, label_N: Tensor) -> Tensor:
        """Return -log sigma(chosen - rejected)."""
        assert reward_NK.ndim == 2 and reward_NK.shape[1] == 2, reward_NK.shape
        return -logsigmoid(reward_NK[:, 0] - reward_NK[:, 1])


class SafeUnsafe(RewardObjective):
    """Point-wise: -[y log sigma(r) + (1 - y) log(1 - sigma(r))], y = 1 for safe.

    R1's safety reward model is trained point-wise to tell safe from unsafe (Nature 645:633,
    Methods), which is binary cross-entropy; sigma(r) is the probability that a response is safe.

    Worked example: rewards [[1], [1]] with labels [1, 0] have losses 0.3133 and 1.3133.
    """

    rows_per_example = 1

    def loss_N(self, reward_NK: Tensor, label_N: Tensor) -> Tensor:
        """Return the binary cross-entropy of each example."""
        assert reward_NK.shape == (len(label_N), 1), (reward_NK.shape, label_N.shape)
        return binary_cross_entropy_with_logits(
            reward_NK[:, 0], label_N.to(reward_NK), reduction="none"
        )


class StepCrossEntropy(SafeUnsafe):
    """Steps: -[y log sigma(r) + (1 - y) log(1 - sigma(r))], y from 0 (wrong) to 1 (right).

    A process reward model's loss (Let's Verify 2305.20050; Math-Shepherd 2312.08935, Eq. 2): an
    example is a step here. With a soft label y it is smallest at sigma(r) = y, the entropy of y.

    Worked example: rewards [[1], [0]] with labels [1, 0.5] have losses 0.3133 and 0.6931.
    """


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
        check_above("beta", beta, 0, "DPO uses 0.1")
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
