"""Minibatches with fewer counted tokens than ranks."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from r1lit.modules import GRPOModule
from r1lit.modules.ppo import PPOModule

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
            loss_of.args[2].append(torch.tensor(0.0))
        return 0.0, 0.0

    objective = SimpleNamespace(positive_nll=0.1, skips_zero_advantage=lambda: False)
    module: Any = SimpleNamespace(
        mean_over_ranks=of_ranks, objective=objective, update_rows=update_rows, _loss=None.__eq__,
        policy_optimizer=None, policy=SimpleNamespace(model=SimpleNamespace(config=None)),
        optimizers=lambda: (None, None), _value_loss=None.__eq__, critic_max_grad_norm=None,
    )  # fmt: skip
    rows_b = torch.tensor([0])
    expected = tokens / RANKS or 1.0
    if which == "critic":
        PPOModule._update_critic(module, rollout, rows_b)
        assert taken[0].args[1] == expected
    else:
        GRPOModule.update_minibatch(module, rollout, rows_b, None, False)
        name = "num_tokens" if which == "policy" else "num_right_tokens"
        assert taken[0].keywords[name] == expected
