"""Classes that plant the faults of ``faults_round4.yaml`` which no key of a configuration can."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Problem
from r1lit.data import ProblemSource
from r1lit.objectives import DrGRPO, LossInputs, LossOutputs


class Negated(DrGRPO):
    """Dr. GRPO of one's own that returns J where the loss -J is wanted."""

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Return the loss with the wrong sign."""
        outputs = super().loss(inputs)
        return replace(outputs, loss=-outputs.loss)


class NormsAlone(torch.optim.AdamW):
    """AdamW that gets the norms' weights alone, as a filter by name may leave them."""

    def __init__(self, params: Iterable[Tensor], **options: Any) -> None:
        super().__init__([p for p in params if p.dim() < 2], **options)


class UnderManyNames(ProblemSource):
    """A few problems of another source, each under many names.

    Args:
        source: whose first problems these are.
        num_problems: how many of them.
        num_names: of each.
    """

    def __init__(self, source: ProblemSource, num_problems: int = 6, num_names: int = 20) -> None:
        self.source, self.num_problems, self.num_names = source, num_problems, num_names

    def problems(self) -> list[Problem]:
        """Return them."""
        few = self.source.problems()[: self.num_problems]
        return [replace(p, uid=f"{p.uid}-{n}") for n in range(self.num_names) for p in few]
