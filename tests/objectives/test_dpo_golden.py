"""DPO's loss and gradients against those of TRL 1.16 on the same random log-probs.

``tests/golden/dpo_trl.json`` is what its ``DPOTrainer`` gave for ``inputs()``; made again, with TRL
installed, by

    python tests/objectives/test_dpo_golden.py
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

from r1lit.objectives import DPO

GOLDEN = Path(__file__).parents[1] / "golden" / "dpo_trl.json"
SETTINGS = [("sigmoid", 0.1, 0.0), ("sigmoid", 0.5, 0.0), ("aot", 0.3, 0.2)]
"""TRL's loss, beta, label smoothing; of one pair "aot" is the smoothed loss without sorting."""


def inputs(num_pairs: int) -> dict[str, Tensor]:
    """Log-probs ``[N, 2, T]`` of up to six tokens; Python's generator, which no release changes."""
    r = random.Random(2305)

    def table(low: float, high: float) -> Tensor:
        return torch.tensor(
            [[[r.uniform(low, high) for _ in range(6)] for _ in range(2)] for _ in range(4)],
            dtype=torch.float64,
        )

    logp_ref = table(-4.0, -0.1)
    lengths = torch.tensor([[6, 3], [1, 5], [4, 4], [2, 6]])
    return {
        "logp": (logp_ref + table(-1.0, 1.0))[:num_pairs],
        "logp_ref": logp_ref[:num_pairs],
        "mask": (torch.arange(6) < lengths[..., None])[:num_pairs],
    }


def ours(beta: float, smoothing: float, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logp = given["logp"].clone().requires_grad_()
    ratio_N2 = ((logp - given["logp_ref"]) * given["mask"]).sum(-1)
    loss = DPO(beta=beta, label_smoothing=smoothing).loss_N(beta * ratio_N2).mean()
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.detach(), gradient


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_loss_and_gradient(index: int):
    kind, beta, smoothing = SETTINGS[index]
    theirs = json.loads(GOLDEN.read_text())[index]
    loss, gradient = ours(beta, smoothing, inputs(1 if kind == "aot" else 4))
    assert float(loss) == pytest.approx(theirs["loss"], abs=1e-12)
    wanted = torch.tensor(theirs["gradient"], dtype=torch.float64)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)


def trl(kind: str, beta: float, smoothing: float) -> dict[str, Any]:
    """Return what TRL's loss and its gradient are."""
    from trl import DPOTrainer

    given = inputs(1 if kind == "aot" else 4)
    logp = given["logp"].clone().requires_grad_()
    mask = given["mask"]
    flat = torch.cat([mask[:, 0], mask[:, 1]])  # all chosen, then all rejected
    log_probs = torch.cat([logp[:, 0], logp[:, 1]]) * flat
    ref_N2 = (given["logp_ref"] * mask).sum(-1)

    def model(**_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            log_probs=log_probs, entropy=log_probs, is_top1=flat, mean_logits=log_probs
        )

    trainer: Any = SimpleNamespace(
        model=SimpleNamespace(training=False), aux_loss_enabled=False, ld_alpha=None,
        accelerator=SimpleNamespace(
            device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x
        ),
        precompute_ref_logps=True, f_divergence_type="reverse_kl", loss_types=[kind],
        loss_weights=[1.0], beta=beta, label_smoothing=smoothing, use_weighting=False,
        _metrics={"eval": defaultdict(list)}, _total_train_tokens=0,
    )  # fmt: skip
    first = torch.zeros(len(flat), 1, dtype=torch.bool)  # a token of the prompt
    completion_mask = torch.cat([first, flat], 1).long()
    batch = {
        "input_ids": torch.ones_like(completion_mask),
        "attention_mask": torch.ones_like(completion_mask),
        "completion_mask": completion_mask,
        "ref_chosen_logps": ref_N2[:, 0],
        "ref_rejected_logps": ref_N2[:, 1],
    }
    loss = DPOTrainer._compute_loss(trainer, model, batch, False)
    (gradient,) = torch.autograd.grad(loss, logp)
    return {"loss": float(loss), "gradient": gradient.tolist()}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps([trl(*setting) for setting in SETTINGS], indent=1) + "\n")
