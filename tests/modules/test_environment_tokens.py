"""Tokens that an environment wrote: log-probs of them may be anything and change no weight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import yaml
from safetensors.torch import load_file
from tiny_distillation import on_policy
from torch import nn

from r1lit.cli import main
from r1lit.policy import Policy, Responses
from r1lit.policy.scalar_head import ScalarModel
from r1lit.rollout import Completion, InProcessEngine
from r1lit.rollout.stored_completions import as_tensors, completions_of


class Interrupted(InProcessEngine):
    """Says of the third and fourth token of a response that an environment wrote them.

    Args:
        logp: the log-prob that it gives for them.
    """

    def __init__(self, logp: float = 0.0) -> None:
        super().__init__(compile=False)
        self.logp = logp

    def stream(self, requests, on_finished):
        def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            on_finished(indices, [self.interrupted(completion) for completion in completions])

        super().stream(requests, finished)

    def interrupted(self, completion: Completion) -> Completion:
        place_T = torch.arange(completion.num_tokens)
        written_T = (place_T == 2) | (place_T == 3)
        return Completion(
            token_ids=completion.token_ids,
            logps=torch.where(written_T, self.logp, completion.logps),
            finish_reason=completion.finish_reason,
            version=completion.version,
            environment_T=written_T,
        )


def with_nan(model: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a model's outputs be NaN at the tokens of an environment."""
    forward = model.forward

    def broken(self: nn.Module, inputs: Any, *args: Any) -> Any:
        output = forward(self, inputs, *args)
        if not isinstance(inputs, Responses) or inputs.environment_BT is None:
            return output
        nan_K = torch.where(inputs.environment_BT[inputs.mask_BT], torch.nan, 0.0)
        if isinstance(output, torch.Tensor):
            return output + nan_K
        return output._replace(
            **{
                name: value + nan_K
                for name, value in output._asdict().items()
                if isinstance(value, torch.Tensor) and value.shape == nan_K.shape
            }
        )

    monkeypatch.setattr(model, "forward", broken)


ADAMW = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}


def module(objective: dict[str, Any], advantage: str, **init_args: Any) -> Any:
    advantage_of = {"advantage": {"class_path": f"r1lit.objectives.{advantage}"}}
    chosen = tiny.merge({"init_args": advantage_of}, objective)
    return {"init_args": {"objective": chosen, **init_args}}


CASES: dict[str, dict[str, Any]] = {
    "GRPO with KL, correction and whitening": {
        "init_args": {
            "objective": {
                "init_args": {
                    "beta": 0.1,
                    "advantage": {"class_path": "r1lit.objectives.Whitened"},
                }
            },
            "steps": [tiny.CORRECTION, tiny.step("KLInReward", beta=0.1)],
        }
    },
    "GRPO with a selection of tokens": {
        "init_args": {"objective": {"class_path": "r1lit.objectives.KLCov"}}
    },
    "PPO": module(
        {"class_path": "r1lit.objectives.PPO"},
        "GAE",
        steps=[tiny.step("KLInReward", beta=0.1), tiny.step("Critic", optimizer=ADAMW)],
    ),
    "PRIME": module(
        {"class_path": "r1lit.objectives.GRPO"},
        "ImplicitProcess",
        steps=[tiny.step("ProcessModel")],
    ),
    "online DPO": {"class_path": "r1lit.modules.OnlineDPOModule"},
    "distillation": {"class_path": "r1lit.modules.DistillationModule"},
}


def weights(run: Path, policy: Path, case: dict[str, Any], logp: float) -> dict[str, torch.Tensor]:
    """Return the weights after two iterations."""
    change = tiny.data(num_iterations=2, validation=None)
    if "Distillation" in case.get("class_path", ""):
        teacher = {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(policy)}}
        path = on_policy(run, policy, change, teacher=teacher, temperature=1.5)
    else:
        path = tiny.grpo_config(run, policy, tiny.merge({"model": case}, change))
    config = yaml.safe_load(path.read_text())
    config["model"]["init_args"]["engine"] = {
        "class_path": "test_environment_tokens.Interrupted",
        "init_args": {"logp": logp},
    }
    if "DPO" in case.get("class_path", ""):
        del config["model"]["init_args"]["objective"]
    folder = {"dirpath": str(run / "policy")}
    config["trainer"]["callbacks"] = [
        {"class_path": "r1lit.callbacks.ExportHuggingFace", "init_args": folder}
    ]
    path.write_text(yaml.safe_dump(config))
    main(["fit", "-c", str(path)])
    return load_file(run / "policy" / "model.safetensors")


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_log_probs_of_environment_tokens_change_no_weight(case, tmp_path, monkeypatch):
    policy = tiny.save_policy(tmp_path / "base")
    fine = weights(tmp_path / "fine", policy, case, logp=0.0)
    for model in (Policy, ScalarModel):
        with_nan(model, monkeypatch)
    broken = weights(tmp_path / "broken", policy, case, logp=torch.nan)
    before = load_file(policy / "model.safetensors")
    assert any(not torch.equal(before[name], x) for name, x in fine.items()), "nothing was learnt"
    assert all(torch.equal(x, broken[name]) for name, x in fine.items())


def test_a_checkpoint_keeps_which_tokens_were_sampled():
    completion = Interrupted(logp=-1.0).interrupted(
        Completion(token_ids=torch.arange(6), logps=torch.ones(6), finish_reason="stop")
    )
    [back] = completions_of(as_tensors([completion]))
    assert back.environment_T.tolist() == completion.environment_T.tolist()
