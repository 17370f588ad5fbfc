"""An entropy bonus in the loss, also one that adapts its weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.terms import hide_padding
from r1lit.objectives.terms_of_loss import Term
from r1lit.ranks import mean_over_ranks


class EntropyBonus(Term):
    """Adds weight * mean entropy of the minibatch's tokens to J (A3C, 1602.01783).

    With a ``target`` it is the adaptive form of Skywork-OR1 (2505.22312): after an iteration of
    mean entropy at most the target the weight grows by ``step``, else it falls by as much, not
    below 0; and it acts only while the last iteration's entropy was at most the target. The paper
    adapts the weight at each update; here it is once an iteration, and a checkpoint holds it. A
    run resumed with another bonus starts with that one's ``weight``.

    Args:
        weight: of the bonus; at first, with a target.
        target: the entropy to hold, in nats a token; null keeps the weight.
        step: by how much the weight changes.
        largest: of the weights.
    """

    reads_entropy = True

    def __init__(
        self,
        weight: float = 1e-3,
        target: float | None = None,
        step: float = 1e-3,
        largest: float = 0.1,
    ) -> None:
        numbers = {"weight": weight, "target": target, "step": step, "largest": largest}
        for key, value in numbers.items():
            check_at_least(key, value, 0)
        self.weight = weight
        self.target = target
        self.step = step
        self.largest = largest
        self.acts = target is None
        self._settings = numbers

    def state(self) -> dict[str, Any]:
        """Return the bonus's part of a checkpoint: its present weight and its settings."""
        return {"weight": self.weight, "acts": self.acts, "settings": self._settings}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take a state back, unless it is one of other settings."""
        if state["settings"] == self._settings:
            self.weight, self.acts = state["weight"], state["acts"]

    @property
    def acting_weight(self) -> float:
        """The weight of the present iteration's bonus."""
        return self.weight if self.acts else 0.0

    def end_iteration(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Adapt the weight to ``train/entropy`` of all ranks; return the one that has acted.

        A mean of no tokens, NaN, changes nothing, and so does an iteration without updates.
        """
        logged = {"train/entropy_weight": self.acting_weight}
        entropy = mean_over_ranks(metrics.get("train/entropy", math.nan))
        if self.target is not None and not math.isnan(entropy):
            self.acts = entropy <= self.target
            change = self.step if self.acts else -self.step
            self.weight = min(max(self.weight + change, 0.0), self.largest)
        return logged

    def loss(self, inputs: LossInputs, token_BT: Tensor, num_tokens: float) -> Tensor:
        """Return the bonus's summand of the loss of some rows."""
        assert inputs.entropy_BT is not None
        return -self.acting_weight * hide_padding(inputs.entropy_BT, token_BT).sum() / num_tokens
