"""An entropy bonus in the loss, also one that adapts its weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.objectives.terms import hide_padding

if TYPE_CHECKING:
    from r1lit.objectives.loss_inputs import LossInputs


class EntropyBonus:
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
        """Return what a checkpoint holds: the present weight, and the settings it came from."""
        return {"weight": self.weight, "acts": self.acts, "settings": self._settings}

    def load(self, state: dict[str, Any]) -> None:
        """Take a state back, unless it is one of other settings."""
        if state["settings"] == self._settings:
            self.weight, self.acts = state["weight"], state["acts"]

    def end_iteration(self, entropy: float) -> None:
        """Adapt the weight to an iteration's mean entropy; NaN, of no tokens, changes nothing."""
        if self.target is None or math.isnan(entropy):
            return
        self.acts = entropy <= self.target
        change = self.step if self.acts else -self.step
        self.weight = min(max(self.weight + change, 0.0), self.largest)

    def loss(self, inputs: LossInputs) -> Tensor:
        """Return what the bonus adds to the loss of some rows."""
        assert inputs.entropy_BT is not None
        total = hide_padding(inputs.entropy_BT, inputs.mask_BT).sum()
        return -(self.weight if self.acts else 0.0) * total / inputs.num_tokens
