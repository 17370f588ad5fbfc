"""Losses and gradients of GRPO's variants against those of TRL 1.16 on the same random log-probs.

``tests/golden/grpo_trl.json`` is what its ``GRPOTrainer`` gave for ``inputs()``; made again, with
TRL installed, by

    python tests/objectives/test_grpo_golden.py
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from r1lit.objectives import GMPO, GRPO, SAPO, LossInputs, Objective

GOLDEN = Path(__file__).parents[1] / "golden" / "grpo_trl.json"
CASES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "GRPO": (GRPO(beta=0.3), {"use_bias_correction_kl": False}),
    "unbiased KL": (GRPO(beta=0.3, kl="unbiased_k3"), {"use_bias_correction_kl": True}),
    "off-policy masking": (
        GRPO(beta=0.3, off_policy_threshold=0.05),
        {"use_bias_correction_kl": False, "off_policy_mask_threshold": 0.05},
    ),
    "SAPO": (SAPO(tau_negative=1.5), {"beta": 0, "loss_type": "sapo", "sapo_temperature_neg": 1.5}),
    "GMPO": (GMPO(beta=0.3), {"epsilon_low": 0.4, "epsilon_high": 0.4}),
}
"""Ours, and the settings of TRL's that differ from ``trl()``'s."""


def inputs() -> dict[str, Tensor]:
    """Six rows of up to six tokens; Python's generator, which no release changes."""
    r = random.Random(2512)

    def table(low: float, high: float) -> Tensor:
        rows = [[r.uniform(low, high) for _ in range(6)] for _ in range(6)]
        return torch.tensor(rows, dtype=torch.float64)

    logp_old_BT = table(-3.0, -0.1)
    return {
        "logp_BT": logp_old_BT + table(-0.8, 0.6),
        "logp_old_BT": logp_old_BT,
        "logp_sampler_BT": logp_old_BT + table(-0.1, 0.1),
        "logp_ref_BT": logp_old_BT + table(-0.6, 0.6),
        "entropy_BT": table(0.1, 2.0),
        "mask_BT": torch.arange(6) < torch.tensor([6, 2, 5, 1, 3, 4])[:, None],
        "advantage_B": torch.tensor([1.2, -0.8, -0.3, 0.0, -1.5, 1.4], dtype=torch.float64),
    }


def ours(objective: Objective) -> tuple[Tensor, Tensor]:
    given = inputs()
    logp_BT = given["logp_BT"].requires_grad_()
    loss = objective.loss(
        LossInputs(
            logp_BT=logp_BT,
            logp_old_BT=given["logp_old_BT"],
            logp_sampler_BT=given["logp_sampler_BT"],
            logp_ref_BT=given["logp_ref_BT"],
            advantage_BT=given["advantage_B"][:, None].expand(6, 6),
            mask_BT=given["mask_BT"],
            num_rows=6,
            num_tokens=float(given["mask_BT"].sum()),
        )
    ).loss
    (gradient_BT,) = torch.autograd.grad(loss, logp_BT)
    return loss.detach(), gradient_BT


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(case: str):
    theirs = json.loads(GOLDEN.read_text())[case]
    loss, gradient_BT = ours(CASES[case][0])
    assert float(loss) == pytest.approx(theirs["loss"], abs=1e-12)
    wanted_BT = torch.tensor(theirs["gradient"], dtype=torch.float64)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=0, atol=1e-12)


def test_the_cases_differ_from_one_another():
    golden = json.loads(GOLDEN.read_text())
    assert golden.keys() == CASES.keys()
    assert len({round(entry["loss"], 9) for entry in golden.values()}) == len(golden)


def trl(case: str, **changes: Any) -> dict[str, Any]:
    """Return what TRL's loss and its gradient are."""
    from trl import GRPOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    given = inputs()
    logp_BT = given["logp_BT"].requires_grad_()
    settings = {
        "beta": 0.3, "loss_type": "grpo", "importance_sampling_level": "token",
        "epsilon_low": 0.2, "epsilon_high": 0.2, "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0, "use_bias_correction_kl": True,
        "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "delta": None,
    } | changes  # fmt: skip
    trainer: Any = SimpleNamespace(
        **settings, args=SimpleNamespace(**settings), aux_loss_enabled=False, use_vllm=False,
        model=SimpleNamespace(training=False), _entropy_bonus_enabled=False,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_high_entropy_mask=lambda *args: GRPOTrainer.get_high_entropy_mask(trainer, *args),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp_BT, given["entropy_BT"], None),
        _metrics={"eval": defaultdict(list)}, current_gradient_accumulation_steps=1,
        accelerator=SimpleNamespace(
            gather=lambda x: x, gather_for_metrics=lambda x: x, num_processes=1,
            pad_across_processes=lambda x, **_: x, reduce=lambda x, **_: x,
        ),
    )  # fmt: skip
    mask_BT = given["mask_BT"].long()
    batch = {
        "prompt_ids": torch.zeros(6, 1).long(), "prompt_mask": torch.ones(6, 1).long(),
        "completion_ids": torch.zeros(6, 6).long(), "completion_mask": mask_BT,
        "advantages": given["advantage_B"], "num_items_in_batch": mask_BT.sum(),
        "old_per_token_logps": given["logp_old_BT"],
        "sampling_per_token_logps": given["logp_sampler_BT"],
        "ref_per_token_logps": given["logp_ref_BT"],
    }  # fmt: skip
    cls = GMPOTrainer if case == "GMPO" else GRPOTrainer
    loss = cls._compute_loss(trainer, None, batch)
    (gradient_BT,) = torch.autograd.grad(loss, logp_BT)
    return {"loss": float(loss), "gradient": gradient_BT.tolist()}


if __name__ == "__main__":
    golden = {case: trl(case, **changes) for case, (_, changes) in CASES.items()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
