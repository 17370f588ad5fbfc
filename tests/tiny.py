"""A run of the real command line on a policy of a few thousand parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.cli.composition import find
from r1lit.files import Record, read_records
from r1lit.rewards import RewardFunction
from r1lit.verifiers import DefaultVerifiers, Grader, Verifier

ROOT = Path(__file__).resolve().parents[1]


class DigitShare(RewardFunction):
    """Pays for digits: a reward that a random policy earns now and then."""

    name = "digits"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [sum(c.isdigit() for c in r.text) / max(1, len(r.text)) for r in responses]


class ManyDigits(RewardFunction):
    """Pays for responses with at least two digits, which few groups have both with and without."""

    name = "many"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [float(sum(c.isdigit() for c in r.text) > 1) for r in responses]


class Exploding(RewardFunction):
    """Pays a number that is not finite from the call ``after`` on."""

    name = "exploding"

    def __init__(self, after: int, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.after = after
        self.calls = 0

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        self.calls += 1
        bad = float("nan") if self.calls > self.after else 1.0
        return [bad * (row % 2) for row in range(len(responses))]


class TiredVerifier(Verifier):
    """Runs out of time on a response with a digit, and fails on any other that is long."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        status: Status = "wrong"
        if any(c.isdigit() for c in response):
            status = "timeout"
        elif len(response) > 6:
            status = "error"
        return Verdict(value=0.0, status=status, canonical=None, reason="tired")


class TiredJudge(Grader):
    """Has every problem judged by a ``TiredVerifier``."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(DefaultVerifiers(), TiredVerifier()))


def save_policy(directory: Path, layers: int = 2, seed: int = 0, width: int = 32) -> Path:
    """Save a small random Llama with the mini tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def save_policy_that_ends(directory: Path) -> Path:
    """Save one whose responses all end within a few tokens: EOS has a third of the probability.

    The first hidden dimension is large for every token, and the head reads EOS from it.
    """
    save_policy(directory)
    policy = LlamaForCausalLM.from_pretrained(directory)
    eos = policy.config.eos_token_id
    with torch.no_grad():
        policy.model.embed_tokens.weight[:, 0] = 100.0
        policy.lm_head.weight[:, 0] = 0.0
        policy.lm_head.weight[eos] = 0.0
        share_of_others = float(policy.config.vocab_size) / 2
        policy.lm_head.weight[eos, 0] = (
            torch.tensor(share_of_others).log() / policy.config.hidden_size**0.5
        )
    policy.save_pretrained(directory)
    return directory


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``change`` merged in, mapping by mapping; ``key+`` appends to a list."""
    merged = dict(base)
    for key, value in change.items():
        if str(key).endswith("+") and isinstance(merged.get(key[:-1]), list):
            merged[key[:-1]] = [*merged[key[:-1]], *value]
            continue
        old = merged.get(key)
        if key == "policy" and {type(old), type(value)} == {str, dict}:
            old, value = ({"path": x} if isinstance(x, str) else x for x in (old, value))
        both = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = merge(old, value) if both else value
    return merged


def callbacks(run: Path, draw: int = 0) -> list[dict[str, Any]]:
    """Every callback of a run, writing to ``run``: figures only by ``draw``, half of the time."""
    return [
        {"class_path": "r1lit.callbacks.EvaluateFirst"},
        {"class_path": "r1lit.callbacks.ResponseLength"},
        {"class_path": "r1lit.callbacks.MajorityVoteEvaluation"},
        {"class_path": "r1lit.callbacks.ReflectionWords"},
        {"class_path": "r1lit.callbacks.GroupHealth"},
        {
            "class_path": "r1lit.callbacks.ResponseTable",
            "init_args": {"dirpath": str(run), "every_n_iterations": 1, "num_responses": 64},
        },
        {
            "class_path": "r1lit.callbacks.CurveWriter",
            "init_args": {"dirpath": str(run), "draw_every_n_iterations": draw},
        },
        {
            "class_path": "r1lit.callbacks.IterationCheckpoint",
            "init_args": {"dirpath": str(run / "checkpoints"), "every_n_iterations": 1},
        },
        {
            "class_path": "r1lit.callbacks.ExportHuggingFace",
            "init_args": {"dirpath": str(run / "policy")},
        },
        {"class_path": "r1lit.callbacks.R1ProgressBar"},
    ]


def no_figures(*configs: str | Path) -> dict[str, Any]:
    """The change with which a run of these configurations draws no curves, half of its time."""
    names = map(str, configs)
    paths = [find(name) if name.startswith("r1lit:") else Path(name) for name in names]
    read = [yaml.safe_load(path.read_text()) for path in paths]
    lists = [one["trainer"]["callbacks"] for one in read if "callbacks" in one.get("trainer", {})]
    for callback in lists[-1]:
        if callback["class_path"].endswith("CurveWriter"):
            callback["init_args"] = {"draw_every_n_iterations": 0}
    return {"trainer": {"callbacks": lists[-1]}}


def grpo_config(run: Path, policy: Path, change: dict[str, Any] | None = None) -> Path:
    """Write the YAML of a GRPO run of 6 short iterations; return its path."""
    world = "r1lit.worlds."
    config: dict[str, Any] = {
        "seed_everything": 0,
        "model": {
            "class_path": "r1lit.modules.GRPOModule",
            "init_args": {
                "policy": str(policy),
                "objective": {"class_path": "r1lit.objectives.GRPO"},
                "rewards": [{"class_path": "tiny.DigitShare"}],
                "sampling": {"max_tokens": 8},
                "train_batch_size": 8,
                "micro_batch_tokens": 256,
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "train": [
                    {"class_path": world + "WorldCountdown", "init_args": {"num_problems": 12}},
                    {"class_path": world + "WorldChain", "init_args": {"num_problems": 4}},
                ],
                "validation": [
                    {
                        "class_path": world + "WorldCountdown",
                        "init_args": {"split": "held_out", "num_problems": 3},
                    }
                ],
                "prompts": {"template": "small_world"},
                "rollout": {"prompts_per_iteration": 4, "group_size": 4},
                "num_iterations": 6,
                "evaluation": {"num_samples": 4},
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "val_check_interval": 2,
            "log_every_n_steps": 1,
            "enable_model_summary": False,
            "default_root_dir": str(run),
            "logger": {
                "class_path": "lightning.pytorch.loggers.TensorBoardLogger",
                "init_args": {"save_dir": str(run.parent), "name": run.name, "version": ""},
            },
            "callbacks": callbacks(run),
        },
    }
    path = run.parent / f"{run.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(merge(config, change or {})))
    return path


def metrics(run: Path) -> list[Record]:
    """Return what a run logged, iteration by iteration."""
    return read_records(run / "metrics.jsonl")


def ahead(max_staleness: int) -> dict[str, Any]:
    """A collector of rollouts that are generated so many iterations before."""
    return {
        "class_path": "r1lit.collect.Ahead",
        "init_args": {"max_staleness": max_staleness},
    }


def step(name: str, **init_args: Any) -> dict[str, Any]:
    """A step of an iteration."""
    return {"class_path": f"r1lit.steps.{name}", "init_args": init_args}


CORRECTION = step("Correction", weighting="r1lit.objectives.TruncatedImportanceSampling")


def model(**init_args: Any) -> dict[str, Any]:
    """A change of the model's arguments."""
    return {"model": {"init_args": init_args}}


def data(**init_args: Any) -> dict[str, Any]:
    """A change of the data's arguments."""
    return {"data": {"init_args": init_args}}
