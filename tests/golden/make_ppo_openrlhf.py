"""Writes ``ppo_openrlhf.json``: what OpenRLHF 0.11.2 makes of the inputs of ``test_ppo_golden``.

    pip download openrlhf==0.11.2 --no-deps && unzip openrlhf-0.11.2*.whl -d openrlhf
    PYTHONPATH=tests python -m golden.make_ppo_openrlhf openrlhf/*/purelib/openrlhf

Its functions are cut out of their files, since the modules around them import DeepSpeed and Ray.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any, Optional

import torch
from objectives.test_ppo_golden import GOLDEN, SETTINGS, inputs
from torch import nn


def cut_out(folder: Path) -> dict[str, Any]:
    """Return the functions and classes that the golden numbers need, of OpenRLHF's own source."""
    found: dict[str, Any] = {"torch": torch, "nn": nn, "Optional": Optional, "Tuple": tuple}
    for path, wanted in (
        ("models/utils.py", {"masked_mean"}),
        ("models/loss.py", {"aggregate_loss", "PolicyLoss", "ValueLoss"}),
        ("trainer/ppo_utils/experience_maker.py", {"get_advantages_and_returns"}),
    ):
        tree = ast.parse((folder / path).read_text())
        named = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef))
        own: list[ast.stmt] = [node for node in named if node.name in wanted]
        if len(own) != len(wanted):
            raise ValueError(f"{folder / path}: {wanted} are not there, each once")
        exec(compile(ast.Module(own, []), path, "exec"), found)
    return found


def main(folder: str) -> None:
    """Write the golden numbers."""
    theirs, given = cut_out(Path(folder)), inputs()
    mask_BT = given["mask_BT"]
    results = []
    for gamma, lam, epsilon in SETTINGS:
        advantage_BT, return_BT = theirs["get_advantages_and_returns"](
            None, given["value_old_BT"], given["reward_BT"], mask_BT, gamma, lam
        )
        logp_BT, value_BT = (given[k].clone().requires_grad_() for k in ("logp_BT", "value_BT"))
        policy_loss = theirs["PolicyLoss"](epsilon, epsilon)(
            logp_BT, given["logp_old_BT"], advantage_BT, mask_BT
        )[0]
        value_loss = theirs["ValueLoss"](epsilon)(
            value_BT, given["value_old_BT"], return_BT, mask_BT
        )
        result = {
            "advantages": advantage_BT[mask_BT],
            "returns": return_BT[mask_BT],
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "policy_gradient": torch.autograd.grad(policy_loss, logp_BT)[0][mask_BT],
            "value_gradient": torch.autograd.grad(value_loss, value_BT)[0][mask_BT],
        }
        results.append({name: value.tolist() for name, value in result.items()})
    GOLDEN.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
