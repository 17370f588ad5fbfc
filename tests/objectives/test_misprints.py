"""Misprints in circulation about R1: docs/EQUATIONS.md names them, and the right signs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from objective_cases import Minibatch

from r1lit.objectives import GRPO
from r1lit.objectives.terms import token_log_ratio_BT

PAGE = (Path(__file__).parents[2] / "docs" / "EQUATIONS.md").read_text()
MISPRINTS = PAGE.split("## Misprints in circulation")[1].split("\n## ")[0]


def test_the_page_names_them():
    for text in ("ρ = π_θ/π_old", "J = … − β D_KL", "177,812 documents of 1,419.8 tokens"):
        assert text in MISPRINTS
    assert round(177_812 * 1_419.8 / 1e9, 2) == 0.25 and round(804_745 * 5_355.3 / 1e9, 1) == 4.3


def test_the_ratio_is_of_the_policy_over_the_old_one():
    """An update raises the probability of a right response; the inverted ratio would lower it."""
    logp_BT = torch.zeros(1, 1, requires_grad=True)
    mask_BT = torch.ones(1, 1, dtype=torch.bool)
    old_BT, advantage_BT = torch.zeros(1, 1), torch.ones(1, 1)
    for ratio_BT, sign in (
        (token_log_ratio_BT(logp_BT, old_BT, mask_BT).exp(), 1.0),
        (token_log_ratio_BT(old_BT, logp_BT, mask_BT).exp(), -1.0),  # as it circulates
    ):
        [gradient] = torch.autograd.grad((ratio_BT * advantage_BT).sum(), logp_BT)
        assert gradient.item() == sign


def test_the_kl_penalty_is_subtracted_from_what_is_maximised():
    """The loss, -J, rises by beta times the KL when the policy leaves its reference."""

    def loss(beta: float, logp_ref: float) -> float:
        rows = Minibatch(
            logp_BT=torch.tensor([[-1.0]]), logp_old_BT=torch.tensor([[-1.0]]),
            logp_ref_BT=torch.tensor([[logp_ref]]),
            advantage_BT=torch.zeros(1, 1), mask_BT=torch.ones(1, 1, dtype=torch.bool),
        )  # fmt: skip
        return GRPO(beta=beta).loss(rows.inputs()).loss.item()

    assert loss(0.5, -1.0) == pytest.approx(0.0)
    d = -2.0 - -1.0
    assert loss(0.5, -2.0) == pytest.approx(0.5 * (torch.tensor(d).exp().item() - d - 1))
