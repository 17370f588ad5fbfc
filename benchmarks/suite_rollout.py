"""Rollouts alone, beside Hugging Face ``generate`` and vLLM."""

from __future__ import annotations

from typing import Any

from benchmarks import peers, sizes
from benchmarks.context import Context
from benchmarks.problems import prompt_loader
from benchmarks.results import Entry, compare
from benchmarks.vllm_rollout import ENVIRONMENT
from benchmarks.work import Work
from benchmarks.worker import Worker
from r1lit.policy import load_tokenizer

OURS = "benchmarks.ours:run_rollout"
GENERATE = "benchmarks.hf_generate:run_rollout"
VLLM = "benchmarks.vllm_rollout:run_rollout"
NUM_BATCHES = 8


def vllm_worker(python: str, work: Work, **settings: Any) -> Worker:
    """Return vLLM in its own Python, with the prompts of the first iterations."""
    loader = prompt_loader(work, load_tokenizer(work.model), NUM_BATCHES)
    prompts = [loader.batch(i).prompts for i in range(NUM_BATCHES)]
    environment = {**ENVIRONMENT, **settings.pop("environment", {})}
    return Worker(
        VLLM, python=python, environment=environment, work=work, prompts=prompts, **settings
    )


def _entry(
    context: Context, name: str, given: Work, theirs: Worker, most: int, **labels: Any
) -> Entry:
    with Worker(OURS, work=given, **context.own) as ours, theirs:
        comparison = context.alternate(ours, theirs, most=most)
    assert all(step["lengths"] == list(given.forced) for step in comparison.ours)
    assert all(step["lengths"] == list(given.forced) for step in comparison.theirs)
    entry = compare(comparison, unit="s", num_tokens=sum(given.forced), **labels)
    prompts = comparison.ours[-1]["prompt_lengths"]
    entry.extra["roofline_ours"] = context.roofline(name, given, prompts, entry.ours)
    entry.extra["roofline_theirs"] = context.roofline(name, given, prompts, entry.theirs)
    entry.extra["tokens_per_s_ours"] = round(sum(given.forced) / entry.ours, 1)
    entry.extra["tokens_per_s_theirs"] = round(sum(given.forced) / entry.theirs, 1)
    return entry


def rollout_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base with ``generate``."""
    work = sizes.rollout_mini(context.folder, peers.GENERATE_MINI_PRECISION, context.tiny)
    return [
        _entry(
            context,
            "mini",
            work,
            Worker(GENERATE, work=work, **peers.GENERATE_MINI),
            2,
            work="rollout, 16 x 16, up to 512 tokens",
            model="mini",
            peer="HF generate",
            goal=4.0,
            settings=work.describe() | {"generate": peers.GENERATE_MINI},
        )
    ]


def rollout_135m(context: Context) -> list[Entry]:
    """64 responses of a 135M model in bfloat16 with ``generate``."""
    work = sizes.rollout_135m(context.folder, "bf16", context.tiny)
    return [
        _entry(
            context,
            "tiny" if context.tiny else "135M",
            work,
            Worker(GENERATE, work=work, **peers.GENERATE_135M),
            3,
            work="rollout, 64 responses, up to 256 tokens",
            model="135M",
            peer="HF generate",
            goal=2.5,
            settings=work.describe() | {"generate": peers.GENERATE_135M},
        )
    ]


def vllm_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base with vLLM."""
    if context.vllm_python is None:
        return []
    work = sizes.rollout_mini(context.folder, peers.VLLM_MINI_PRECISION, context.tiny)
    return [
        _entry(
            context,
            "mini",
            work,
            vllm_worker(context.vllm_python, work, **peers.VLLM_MINI),
            3,
            work="rollout, 16 x 16, up to 512 tokens",
            model="mini",
            peer="vLLM",
            goal=1.5,
            settings=work.describe() | {"vllm": peers.VLLM_MINI},
        )
    ]


def vllm_135m(context: Context) -> list[Entry]:
    """64 responses of a 135M model in bfloat16 with vLLM."""
    if context.vllm_python is None:
        return []
    work = sizes.rollout_135m(context.folder, "bf16", context.tiny)
    return [
        _entry(
            context,
            "tiny" if context.tiny else "135M",
            work,
            vllm_worker(context.vllm_python, work, **peers.VLLM_135M),
            3,
            work="rollout, 64 responses, up to 256 tokens",
            model="135M",
            peer="vLLM",
            goal=1.2,
            settings=work.describe() | {"vllm": peers.VLLM_135M},
        )
    ]
