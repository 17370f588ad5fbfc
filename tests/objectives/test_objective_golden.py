"""Exact losses and gradients of every objective on one input, against tests/golden/losses.json.

A change here is a change of the mathematics or of its order of operations: explain it in LOG.md,
then regenerate with

    python tests/objectives/test_objective_golden.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch

from r1lit.objectives import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    DrGRPO,
    GroupCentered,
    GroupNormalized,
    GRPOSequence,
    LeaveOneOut,
    LossInputs,
    Objective,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "losses.json"


def objectives() -> dict[str, Objective]:
    return {
        "GRPO": GRPO(beta=0.001),
        "GRPO k1": GRPO(beta=0.5, kl="k1"),
        "GRPO k2": GRPO(beta=0.5, kl="k2"),
        "GRPO k3": GRPO(beta=0.5, kl="k3"),
        "GRPO epsilon=10 GroupCentered": GRPO(epsilon=10.0, advantage=GroupCentered()),
        "GRPO sample std": GRPO(advantage=GroupNormalized(std="sample")),
        "GRPO LeaveOneOut": GRPO(advantage=LeaveOneOut()),
        "GRPOSequence": GRPOSequence(beta=0.001),
        "GRPOSequence epsilon=0.2": GRPOSequence(epsilon=0.2),
        "DrGRPO": DrGRPO(max_tokens=8),
        "DAPO": DAPO(),
        "GSPO": GSPO(),
        "GSPO wide": GSPO(epsilon_low=0.1, epsilon_high=0.1),
        "CISPO": CISPO(),
        "CISPO tight": CISPO(epsilon_low=0.2, epsilon_high=0.28),
    }


def compute() -> dict[str, dict[str, list[float] | float]]:
    """Two groups of four, up to six tokens; Python's generator, which no torch release changes."""
    r = random.Random(20250120)

    def table(low: float, high: float) -> torch.Tensor:
        rows = [[r.uniform(low, high) for _ in range(6)] for _ in range(8)]
        return torch.tensor(rows, dtype=torch.float64)

    logp_old_BT = table(-3.0, -0.1)
    logp_BT = logp_old_BT + table(-0.6, 0.6)
    logp_ref_BT = logp_old_BT + table(-0.6, 0.6)
    reward_PG = torch.tensor([[1.0, 0.0, 0.1, 0.0], [1.1, 1.1, 1.0, 0.0]], dtype=torch.float64)
    mask_BT = torch.arange(6)[None, :] < torch.tensor([6, 2, 5, 1, 3, 4, 6, 2])[:, None]
    golden: dict[str, dict[str, list[float] | float]] = {}
    for name, objective in objectives().items():
        advantage_PG = objective.advantage(reward_PG)
        leaf_BT = logp_BT.clone().requires_grad_()
        inputs = LossInputs(
            logp_BT=leaf_BT,
            logp_old_BT=logp_old_BT,
            logp_ref_BT=logp_ref_BT,
            advantage_BT=advantage_PG.reshape(-1, 1).expand(8, 6),
            mask_BT=mask_BT,
            num_rows=8,
            num_tokens=float(mask_BT.sum()),
        )
        loss = objective.loss(inputs).loss
        loss.backward()
        assert leaf_BT.grad is not None
        golden[name] = {
            "loss": loss.item(),
            "advantage_B": advantage_PG.flatten().tolist(),
            "gradient_of_tokens": leaf_BT.grad[mask_BT].tolist(),
        }
    return golden


def test_losses_are_the_golden_ones():
    stored = json.loads(GOLDEN.read_text())
    computed = compute()
    assert stored.keys() == computed.keys()
    for name, fields in computed.items():
        for field, value in fields.items():
            torch.testing.assert_close(
                torch.tensor(value, dtype=torch.float64),
                torch.tensor(stored[name][field], dtype=torch.float64),
                rtol=0,
                atol=1e-12,
                msg=lambda text, at=f"{name}, {field}": f"{at}: {text}",
            )


def test_golden_losses_tell_the_objectives_apart():
    losses = [entry["loss"] for entry in json.loads(GOLDEN.read_text()).values()]
    assert len({round(loss, 9) for loss in losses}) == len(losses)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(compute(), indent=1) + "\n")
    print(f"wrote {GOLDEN}")
