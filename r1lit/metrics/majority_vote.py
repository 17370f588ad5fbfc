"""pass@k and cons@k over many problems and several ranks, as a torchmetric."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from r1lit.batches import Rollout
from r1lit.metrics.estimates import Graded, cons_at_k, mean, pass_at_k
from r1lit.metrics.intervals import standard_error


class MajorityVote(Metric):
    """pass@1 with its standard error, pass@k and cons@k, averaged over problems.

    ``update`` takes rollouts with the same number n of responses to each problem; ``compute``
    returns

    - ``pass_at_1``: mean over problems of the share of right responses (R1's pass@1);
    - ``pass_at_1_stderr``: its standard error over problems, the sample standard deviation (n - 1)
      of the per-problem shares over sqrt(num_problems); NaN for a single problem. It
      estimates the spread over samples of *problems*: responses to one problem are dependent;
    - ``pass_at_<k>`` and ``cons_at_<k>`` for all k = 1..n (see `pass_at_k`, `cons_at_k`);
    - ``num_problems``, and ``num_samples``, the n responses to each problem.

    States are one row a problem and are concatenated over ranks.
    """

    full_state_update = False
    num_right: list[Tensor]
    cons: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("num_right", default=[], dist_reduce_fx="cat")
        self.add_state("cons", default=[], dist_reduce_fx="cat")

    def update(self, rollout: Rollout) -> None:
        """Add the groups of ``rollout``.

        Raises:
            ValueError: If its group size differs from that of an earlier update.
        """
        if self.cons and self.cons[0].shape[1] != rollout.group_size:
            raise ValueError(
                f"group_size={rollout.group_size} differs from {self.cons[0].shape[1]} in an "
                "earlier update: an evaluation has as many responses to every problem"
            )
        groups = [[Graded.of(response) for response in group] for group in rollout.groups()]
        num_right = [sum(graded.right for graded in group) for group in groups]
        cons = [cons_at_k(group) for group in groups]
        self.num_right.append(torch.tensor(num_right, device=self.device))
        self.cons.append(torch.tensor(cons, dtype=torch.float32, device=self.device))

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name, as scalars.

        Raises:
            ValueError: If there was no update.
        """
        if isinstance(self.cons, list) and not self.cons:
            raise ValueError("MajorityVote has no rollout: call update before compute")
        cons_PK = dim_zero_cat(self.cons)
        num_right_P = [int(count) for count in dim_zero_cat(self.num_right)]
        num_problems, num_samples = cons_PK.shape
        mean_cons_K = cons_PK.cpu().double().mean(0)
        values = {
            "pass_at_1_stderr": standard_error([c / num_samples for c in num_right_P]),
            "num_problems": float(num_problems),
            "num_samples": float(num_samples),
        }
        for k in range(1, num_samples + 1):
            values[f"pass_at_{k}"] = mean([pass_at_k(num_samples, c, k) for c in num_right_P])
            values[f"cons_at_{k}"] = float(mean_cons_K[k - 1])
        return {name: torch.tensor(value) for name, value in values.items()}
