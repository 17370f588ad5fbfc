"""GRPO iterations and their updates, and supervised updates, beside TRL's trainers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks import peers, sizes
from benchmarks.context import Context
from benchmarks.problems import prompt_loader
from benchmarks.results import Comparison, Entry, compare
from benchmarks.vllm_rollout import SERVER_ENVIRONMENT, SERVER_FLAGS
from benchmarks.work import SupervisedWork, Work
from benchmarks.worker import Worker
from experiments.real_model.fetch import FOLDER
from r1lit.policy import load_tokenizer
from r1lit.policy.flops import training_flops, update_flops

OURS = "benchmarks.ours:run_iterations"
THEIRS = "benchmarks.trl_side:run_iterations"
PEER = "TRL GRPOTrainer"
MEASURED = 1  # the first iteration whose steps count
PARTS = ("sync_s", "rollout_s", "grade_s", "update_s")
Row = tuple[str, str, float | None]
"""What an entry is of, the number of a step that it compares, and its goal."""


def iterate(
    context: Context, work: Work, theirs: dict[str, Any], own: dict[str, Any], **options: Any
) -> Comparison:
    """Make iterations of both sides by turns; TRL's micro-batches are no larger than an update."""
    rows = min(theirs["micro_rows"], work.train_batch_size)
    return context.alternate(
        partial(Worker, OURS, work=work, **own, **context.own),
        partial(Worker, THEIRS, work=work, **{**theirs, "micro_rows": rows}),
        **options,
    )


def parts(comparison: Comparison) -> dict[str, Any]:
    """Return the seconds by part of each side's last iteration."""
    last = {"parts_ours": comparison.ours[-1], "parts_theirs": comparison.theirs[-1]}
    return {
        side: {name: round(step[name], 3) for name in PARTS if name in step}
        for side, step in last.items()
    }


def prompt_lengths(work: Work, iteration: int = MEASURED) -> list[int]:
    """Return the tokens of each prompt of an iteration."""
    loader = prompt_loader(work, load_tokenizer(work.model), iteration + 1)
    return [len(prompt) for prompt in loader.batch(iteration).prompts]


def grpo_entries(
    context: Context,
    comparison: Comparison,
    work: Work,
    rows: Sequence[Row],
    *,
    model: str,
    theirs: dict[str, Any],
    peer: str = PEER,
) -> list[Entry]:
    """Return entries of iterations; an update's and a rollout's say how near the limits it is."""
    prompts = prompt_lengths(work)
    labels: dict[str, Any] = {"model": model, "peer": peer, "unit": "s"}
    labels |= {"num_tokens": sum(work.forced), "settings": work.describe() | {"trl": theirs}}
    entries = []
    for name, key, goal in rows:
        more = parts(comparison) if key == "seconds" else {}
        entry = compare(comparison, work=name, key=key, goal=goal, **labels, **more)
        if key == "rollout_s":
            entry = entry.with_rates(roofline=context.roofline(model, work, prompts))
        if key == "update_s":
            flops = update_flops(context.shape(model), prompts, work.forced)
            entry = entry.with_rates(mfu=context.mfu(flops, work.precision))
        entries.append(entry)
    return entries


def grpo_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base."""
    work = sizes.grpo_mini(context.folder, peers.TRL_GRPO_MINI_PRECISION, context.tiny)
    theirs = peers.TRL_GRPO_MINI
    comparison = iterate(context, work, theirs, {}, most=2)
    rows = [("GRPO iteration, 16 x 16, up to 512 tokens", "seconds", 5.0)]
    return grpo_entries(context, comparison, work, rows, model="mini", theirs=theirs)


def grpo_135m(context: Context) -> list[Entry]:
    """4 x 8 responses of a 135M model: the whole iteration, and its update."""
    work = sizes.grpo_135m(context.folder, tiny=context.tiny)
    theirs = peers.TRL_GRPO_135M
    # in its second step a process still touches pages for the first time, for seconds on a
    # virtual machine
    comparison = iterate(context, work, theirs, {}, most=3, warmups=2)
    rows = [
        ("GRPO iteration, 4 x 8, up to 256 tokens", "seconds", 3.0),
        ("update only, 4 x 8, up to 256 tokens", "update_s", 2.5),
    ]
    return grpo_entries(context, comparison, work, rows, model="135M", theirs=theirs)


def grpo_real(context: Context) -> list[Entry]:
    """The work of ``configs/real.yaml`` with a real model, whose responses end by themselves.

    CPU seconds are those of each process: on a machine that other programs share, these can be
    compared. Memory is that of the whole process.
    """
    work = sizes.real_work(str(context.real_model or FOLDER))
    comparison = iterate(context, work, peers.TRL_GRPO_REAL, {"micro_batch_tokens": 512})
    settings = work.describe() | {"trl": peers.TRL_GRPO_REAL}
    rows = (
        ("GRPO iteration of configs/real.yaml", "seconds", "s"),
        ("rollout of configs/real.yaml", "rollout_s", "s"),
        ("updates of configs/real.yaml", "update_s", "s"),
        ("CPU time of an iteration of configs/real.yaml", "cpu_s", "s"),
        ("peak memory of an iteration of configs/real.yaml", "peak_rss_mb", "MB"),
    )
    labels: dict[str, Any] = {"model": "SmolLM2-135M-Instruct", "peer": PEER, "settings": settings}
    return [
        compare(comparison, work=name, key=key, unit=unit, **labels) for name, key, unit in rows
    ]


def iteration_vllm(context: Context) -> list[Entry]:
    """GRPO iterations on rollouts from a vLLM server, and on those drawn in process.

    The server's weights are in bfloat16, in which rollouts in process compute too.
    """
    if context.vllm_python is None:
        return []
    flags = SERVER_FLAGS | {"dtype": "bfloat16"}
    server = {"python": context.vllm_python, "flags": flags}
    pieces = (
        ("mini", sizes.grpo_mini, "16 x 16, up to 512 tokens"),
        ("135M", sizes.grpo_135m, "4 x 8, up to 256 tokens"),
    )
    entries = []
    for model, make, size in pieces:
        settings: dict[str, Any] = {"work": make(context.folder, tiny=context.tiny), **context.own}
        comparison = context.alternate(
            partial(Worker, OURS, **settings),
            partial(Worker, OURS, server=server, environment=SERVER_ENVIRONMENT, **settings),
            most=2,
        )
        entry = compare(
            comparison,
            work=f"GRPO iteration in process, {size}",
            model=model,
            peer="r1lit with a vLLM server",
            unit="s",
            settings=settings["work"].describe(),
            **parts(comparison),
        )
        entries.append(entry)
    return entries


def compare_sft(
    context: Context,
    work: SupervisedWork,
    theirs: dict[str, Any],
    own: dict[str, Any],
    *,
    model: str,
    title: str,
    goal: float,
    **options: Any,
) -> tuple[Comparison, Entry]:
    """Make supervised updates of both sides by turns; return them and their entry."""
    comparison = context.alternate(
        partial(Worker, "benchmarks.ours:run_updates", work=work, **own),
        partial(Worker, "benchmarks.trl_side:run_updates", work=work, **theirs),
        **options,
    )
    entry = compare(
        comparison,
        work=f"SFT, {title}",
        model=model,
        peer="TRL SFTTrainer",
        goal=goal,
        unit="s per 1,000 tokens",
        key="seconds_per_1000_tokens",
        settings=work.describe() | {"trl": theirs},
    )
    flops = 1000 * training_flops(context.shape(model), work.lengths) / sum(work.lengths)
    return comparison, entry.with_rates(
        mfu=context.mfu(flops, work.precision),
        tokens_per_s=lambda seconds: round(1000 / seconds, 1),
    )


def sft_135m(context: Context) -> list[Entry]:
    """Documents as long as R1's chains, 135M, which needs 12 GB a side."""
    work = sizes.sft_work("135M", context.folder, tiny=context.tiny)
    title = "the same six documents an update, lengths of R1's chains"
    labels: dict[str, Any] = {"model": "135M", "title": title, "goal": 1.5}
    return [compare_sft(context, work, peers.TRL_SFT, {}, **labels, most=2, alone=True)[1]]
