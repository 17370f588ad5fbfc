"""Terms that a YAML may add to an objective's loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from r1lit.errors import check_above
from r1lit.objectives.terms import hide_padding

if TYPE_CHECKING:
    from r1lit.batches import Rollout
    from r1lit.objectives.loss_inputs import LossInputs


class Term(ABC):
    """Something added to the loss beside the surrogate: a weighted mean over some tokens."""

    reads: tuple[str, ...] = ()
    """Names of ``extra_BT`` that it needs."""
    reads_entropy: bool = False
    """True where ``LossInputs.entropy_BT`` must carry a gradient."""

    def tokens_BT(self, rollout: Rollout) -> Tensor:
        """Return the tokens that it is a mean over, as booleans; those that count if not written.

        They are counted over the minibatch and all ranks, so that micro-batches add up to the mean.
        """
        return rollout.loss_mask_BT

    @abstractmethod
    def loss(self, inputs: LossInputs, token_BT: Tensor, num_tokens: float) -> Tensor:
        """Return the term's summand of the loss of some rows.

        Args:
            inputs: the rows, as an objective gets them.
            token_BT: ``tokens_BT`` of these rows.
            num_tokens: how many such tokens the whole minibatch has, the mean over ranks.
        """

    def end_iteration(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Adapt to an iteration's metrics; return numbers to log. All ranks call it."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the term's part of a checkpoint; empty if it has none."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore the state that ``state`` returned."""


class PositiveNLL(Term):
    """Adds weight * the mean negative log-likelihood of the tokens of right responses.

    VAPO's imitation of its own right answers (2504.05118, §4.3).

    Args:
        weight: of the mean; the paper: 0.1.
    """

    def __init__(self, weight: float = 0.1) -> None:
        check_above("weight", weight, 0, "VAPO uses 0.1")
        self.weight = weight

    def tokens_BT(self, rollout: Rollout) -> Tensor:
        """Return the tokens that count of right responses."""
        return rollout.loss_mask_BT & rollout.is_right_B[:, None]

    def loss(self, inputs: LossInputs, token_BT: Tensor, num_tokens: float) -> Tensor:
        """Return weight * -log pi of these rows' share."""
        return self.weight * (-hide_padding(inputs.logp_BT, token_BT).sum() / num_tokens)
