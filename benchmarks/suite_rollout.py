"""Rollouts alone, beside Hugging Face ``generate`` and vLLM."""

from __future__ import annotations

from typing import Any

from benchmarks import peers, sizes
from benchmarks.context import Context
from benchmarks.results import Entry, compare
from benchmarks.vllm_worker import vllm_worker
from benchmarks.work import Work
from benchmarks.worker import Worker

OURS = "benchmarks.ours:run_rollout"
GENERATE = "benchmarks.hf_generate:run_rollout"


def _entry(
    context: Context,
    name: str,
    given: Work,
    theirs: Worker,
    settings: dict[str, Any],
    *,
    most: int,
    **labels: Any,
) -> list[Entry]:
    """Compare the rollouts of one piece of work; ``labels`` go into the entry."""
    with Worker(OURS, work=given, **context.own) as ours, theirs:
        comparison = context.alternate(ours, theirs, most=most)
    assert all(step["lengths"] == list(given.forced) for step in comparison.ours)
    assert all(step["lengths"] == list(given.forced) for step in comparison.theirs)
    entry = compare(
        comparison,
        unit="s",
        num_tokens=sum(given.forced),
        settings=given.describe() | settings,
        **labels,
    )
    prompts = comparison.ours[-1]["prompt_lengths"]
    entry.extra["roofline_ours"] = context.roofline(name, given, prompts, entry.ours)
    entry.extra["roofline_theirs"] = context.roofline(name, given, prompts, entry.theirs)
    entry.extra["tokens_per_s_ours"] = round(sum(given.forced) / entry.ours, 1)
    entry.extra["tokens_per_s_theirs"] = round(sum(given.forced) / entry.theirs, 1)
    return [entry]


def _mini(
    context: Context, given: Work, theirs: Worker, settings: dict[str, Any], **labels: Any
) -> list[Entry]:
    work = "rollout, 16 x 16, up to 512 tokens"
    return _entry(context, "mini", given, theirs, settings, work=work, model="mini", **labels)


def _135m(
    context: Context, given: Work, theirs: Worker, settings: dict[str, Any], **labels: Any
) -> list[Entry]:
    work = "rollout, 64 responses, up to 256 tokens"
    name = "tiny" if context.tiny else "135M"
    return _entry(context, name, given, theirs, settings, work=work, model="135M", **labels)


def rollout_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base with ``generate``."""
    work = sizes.rollout_mini(context.folder, peers.GENERATE_MINI_PRECISION, context.tiny)
    theirs = Worker(GENERATE, work=work, **peers.GENERATE_MINI)
    settings = {"generate": peers.GENERATE_MINI}
    return _mini(context, work, theirs, settings, peer="HF generate", goal=4.0, most=2)


def rollout_135m(context: Context) -> list[Entry]:
    """64 responses of a 135M model in bfloat16 with ``generate``."""
    work = sizes.rollout_135m(context.folder, "bf16", context.tiny)
    theirs = Worker(GENERATE, work=work, **peers.GENERATE_135M)
    settings = {"generate": peers.GENERATE_135M}
    return _135m(context, work, theirs, settings, peer="HF generate", goal=2.5, most=3)


def vllm_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base with vLLM."""
    if context.vllm_python is None:
        return []
    work = sizes.rollout_mini(context.folder, peers.VLLM_MINI_PRECISION, context.tiny)
    theirs = vllm_worker(context.vllm_python, work, **peers.VLLM_MINI)
    return _mini(context, work, theirs, {"vllm": peers.VLLM_MINI}, peer="vLLM", goal=1.5, most=3)


def vllm_135m(context: Context) -> list[Entry]:
    """64 responses of a 135M model in bfloat16 with vLLM."""
    if context.vllm_python is None:
        return []
    work = sizes.rollout_135m(context.folder, "bf16", context.tiny)
    theirs = vllm_worker(context.vllm_python, work, **peers.VLLM_135M)
    return _135m(context, work, theirs, {"vllm": peers.VLLM_135M}, peer="vLLM", goal=1.2, most=3)
