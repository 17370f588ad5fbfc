"""Minibatches with fewer counted tokens than ranks."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from r1lit.modules import GRPOModule
from r1lit.objectives import PositiveNLL
from r1lit.steps import Critic

RANKS = 4


def of_ranks(count: torch.Tensor) -> float:
    """The mean over ranks of which one has this count and the others have 0."""
    return float(count) / RANKS


@pytest.mark.parametrize("tokens", [0, 1, 8])
@pytest.mark.parametrize("which", ["policy", "right", "critic"])
def test_losses_are_divided_by_the_mean_over_ranks_below_1_too(which, tokens):
    """A rank's only token weighed as much as if each of four ranks had had one."""
    mask_BT = torch.arange(8)[None] < tokens
    rollout = SimpleNamespace(loss_mask_BT=mask_BT, is_right_B=torch.tensor([True]))
    taken: list[partial[Any]] = []

    def update_rows(optimizer, rollout, rows_b, loss_of, **options):
        taken.append(loss_of)
        if which == "critic":
            loss_of.args[3].append(torch.tensor(0.0))
        return 0.0, 0.0

    nll = PositiveNLL()
    objective = SimpleNamespace(terms=[nll], skips_zero_advantage=lambda: False)
    module: Any = SimpleNamespace(
        mean_over_ranks=of_ranks, objective=objective, update_rows=update_rows, _loss=None.__eq__,
        policy_optimizer=None, policy=SimpleNamespace(model=SimpleNamespace(config=None)),
        optimizer_of=lambda step: None,
    )  # fmt: skip
    module._num_tokens = partial(GRPOModule._num_tokens, module)
    rows_b = torch.tensor([0])
    expected = tokens / RANKS or 1.0
    if which == "critic":
        Critic()._update(rollout, mask_BT, rows_b, module)
        assert taken[0].args[2] == expected
    else:
        GRPOModule.update_minibatch(module, rollout, rows_b, None, None)
        [(term, token_BT, num_right)] = taken[0].keywords["terms"]
        assert term is nll and torch.equal(token_BT, mask_BT)
        found = taken[0].keywords["num_tokens"] if which == "policy" else num_right
        assert found == expected
