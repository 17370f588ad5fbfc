"""PPO's losses, values and gradients against those of OpenRLHF 0.11.2 on the same random inputs.

``tests/golden/ppo_openrlhf.json`` is what its ``PolicyLoss``, ``ValueLoss`` and
``get_advantages_and_returns`` gave for ``inputs()`` (``make_ppo_openrlhf.py`` beside it).
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from r1lit.objectives import PPO, LossInputs, ValueObjective
from r1lit.objectives.gae import gae_BT

GOLDEN = Path(__file__).parents[1] / "golden" / "ppo_openrlhf.json"
SETTINGS = [(1.0, 0.95, 0.2), (0.99, 0.9, 0.1), (1.0, 1.0, 0.5)]
"""gamma, lambda, clip of ratio and value."""


def inputs() -> dict[str, Tensor]:
    """Six responses of up to seven tokens; Python's generator, which no torch release changes."""
    r = random.Random(20260)

    def table(low: float, high: float) -> Tensor:
        rows = [[r.uniform(low, high) for _ in range(7)] for _ in range(6)]
        return torch.tensor(rows, dtype=torch.float64)

    mask_BT = torch.arange(7)[None, :] < torch.tensor([7, 2, 5, 1, 3, 6])[:, None]
    logp_old_BT, value_old_BT = table(-3.0, -0.1), table(-1.0, 2.0)
    return {
        "logp_old_BT": logp_old_BT,
        "logp_BT": logp_old_BT + table(-0.6, 0.6),
        "value_old_BT": value_old_BT,
        "value_BT": value_old_BT + table(-0.6, 0.6),
        "reward_BT": table(-0.2, 0.2) * mask_BT,
        "mask_BT": mask_BT,
    }


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_advantages_returns_losses_and_gradients(index: int):
    gamma, lam, epsilon = SETTINGS[index]
    theirs = json.loads(GOLDEN.read_text())[index]
    given = inputs()
    mask_BT = given["mask_BT"]
    num_tokens = float(mask_BT.sum())
    advantage_BT = gae_BT(
        given["reward_BT"], given["value_old_BT"], mask_BT, gamma=gamma, lambda_B=lam
    )
    return_BT = advantage_BT + given["value_old_BT"] * mask_BT
    logp_BT = given["logp_BT"].clone().requires_grad_()
    loss = PPO(epsilon=epsilon).loss(
        LossInputs(
            logp_BT=logp_BT, logp_old_BT=given["logp_old_BT"], advantage_BT=advantage_BT,
            mask_BT=mask_BT, num_rows=6.0, num_tokens=num_tokens,
        )
    ).loss  # fmt: skip
    value_BT = given["value_BT"].clone().requires_grad_()
    value_loss = ValueObjective(epsilon=epsilon).loss(
        value_BT, given["value_old_BT"], return_BT, mask_BT, num_tokens
    ).loss  # fmt: skip
    (logp_grad_BT,) = torch.autograd.grad(loss, logp_BT)
    (value_grad_BT,) = torch.autograd.grad(value_loss, value_BT)
    ours = {
        "advantages": advantage_BT[mask_BT],
        "returns": return_BT[mask_BT],
        "policy_loss": loss.detach(),
        "value_loss": value_loss.detach(),
        "policy_gradient": logp_grad_BT[mask_BT],
        "value_gradient": value_grad_BT[mask_BT],
    }
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        wanted = torch.tensor(theirs[name], dtype=torch.float64)
        torch.testing.assert_close(value, wanted, rtol=0, atol=1e-12, msg=lambda m, n=name: n + m)
