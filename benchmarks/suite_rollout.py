"""Rollouts alone, beside ``generate`` and vLLM, and handing weights to a vLLM server."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from benchmarks import peers, sizes
from benchmarks.context import Context, Piece
from benchmarks.models import model_directory
from benchmarks.results import Entry, Side, compare, of_numbers
from benchmarks.vllm_rollout import SERVER_ENVIRONMENT, SERVER_FLAGS, vllm_worker
from benchmarks.work import Precision
from benchmarks.worker import Worker

GOAL_S = 3.0  # of handing over, for 135M
TRANSFERS = ("folder", "gloo")
SIZES = {
    "mini": (sizes.rollout_mini, "rollout, 16 x 16, up to 512 tokens"),
    "135M": (sizes.rollout_135m, "rollout, 64 responses, up to 256 tokens"),
}


def rollout(
    context: Context,
    *,
    model: str,
    peer: str,
    settings: dict[str, Any],
    precision: Precision,
    goal: float,
    most: int,
) -> list[Entry]:
    """Compare the rollouts of one piece of work, in ``precision`` on both sides."""
    make, name = SIZES[model]
    work = make(context.folder, precision, context.tiny)
    theirs: Side = partial(Worker, "benchmarks.hf_generate:run_rollout", work=work, **settings)
    if peer == "vLLM":
        if context.vllm_python is None:
            return []
        theirs = partial(vllm_worker, context.vllm_python, work, **settings)
    ours = partial(Worker, "benchmarks.ours:run_rollout", work=work, **context.own)
    comparison = context.alternate(ours, theirs, most=most)
    for step in (*comparison.ours, *comparison.theirs):
        assert step["lengths"] == list(work.forced)
    num_tokens = sum(work.forced)
    entry = compare(
        comparison,
        work=name,
        model=model,
        peer=peer,
        goal=goal,
        unit="s",
        num_tokens=num_tokens,
        settings=work.describe() | {peer.split()[-1].lower(): settings},
    )
    prompts = comparison.ours[-1]["prompt_lengths"]
    return [
        entry.with_rates(
            roofline=context.roofline(model, work, prompts),
            tokens_per_s=lambda seconds: round(num_tokens / seconds, 1),
        )
    ]


def _piece(model: str, peer: str, settings: dict[str, Any], **labels: Any) -> Piece:
    return partial(rollout, model=model, peer=peer, settings=settings, **labels)


OF_GENERATE, OF_VLLM = peers.GENERATE_MINI_PRECISION, peers.VLLM_MINI_PRECISION
ROLLOUTS: dict[str, Piece] = {
    "rollout-mini": _piece(
        "mini", "HF generate", peers.GENERATE_MINI, precision=OF_GENERATE, goal=4.0, most=2
    ),
    "rollout-135M": _piece(
        "135M", "HF generate", peers.GENERATE_135M, precision="bf16", goal=2.5, most=3
    ),
    "vllm-mini": _piece("mini", "vLLM", peers.VLLM_MINI, precision=OF_VLLM, goal=1.5, most=3),
    "vllm-135M": _piece("135M", "vLLM", peers.VLLM_135M, precision="bf16", goal=1.2, most=3),
}


def sync(context: Context) -> list[Entry]:
    """Seconds from new weights in the trainer to a vLLM server that draws with them, in float32."""
    if context.vllm_python is None:
        return []
    return [_sync(context, model, transfer) for model in ("mini", "135M") for transfer in TRANSFERS]


def _sync(context: Context, model: str, transfer: str) -> Entry:
    name = "tiny" if context.tiny and model != "mini" else model
    server = {"python": context.vllm_python, "flags": SERVER_FLAGS, "transfer": transfer}
    steps = context.steps(
        "benchmarks.ours:run_sync",
        context.repeats,
        environment=SERVER_ENVIRONMENT,
        model=model_directory(name, context.folder),
        server=server,
    )
    seconds = [step["seconds"] for step in steps]
    context.show(f"{name} by {transfer}: {median(seconds):.2f} s")
    return of_numbers(
        seconds,
        [GOAL_S] * len(seconds),
        work=f"hand-over of weights to a vLLM server, {transfer}",
        model=model,
        peer=f"{GOAL_S:g} s",
        goal=1.0 if model == "135M" else None,
        unit="s",
        repeats=len(seconds),
        megabytes=round(steps[0]["megabytes"], 1),
    )
