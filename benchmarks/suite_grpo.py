"""GRPO iterations and their updates, beside TRL's ``GRPOTrainer``."""

from __future__ import annotations

from typing import Any

from benchmarks import peers, sizes
from benchmarks.context import Context
from benchmarks.problems import prompt_loader
from benchmarks.results import Entry, compare
from benchmarks.timing import Comparison
from benchmarks.work import Work
from benchmarks.worker import Worker
from r1lit.policy import load_tokenizer

OURS = "benchmarks.ours:run_iterations"
THEIRS = "benchmarks.trl_grpo:run_iterations"
PEER = "TRL GRPOTrainer"
MEASURED = 1  # the first iteration whose steps count


def trl_rows(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    """Return TRL's settings with micro-batches no larger than the work's updates."""
    return {**settings, "micro_rows": min(settings["micro_rows"], work.train_batch_size)}


def iterate(
    context: Context, work: Work, settings: dict[str, Any], *, most: int, warmups: int = 1
) -> Comparison:
    """Make iterations of both sides by turns."""
    with (
        Worker(OURS, work=work, **context.own) as ours,
        Worker(THEIRS, work=work, **trl_rows(settings, work)) as theirs,
    ):
        return context.alternate(ours, theirs, most=most, warmups=warmups)


def prompt_lengths(work: Work, iteration: int = MEASURED) -> list[int]:
    """Return the tokens of each prompt of an iteration."""
    loader = prompt_loader(work, load_tokenizer(work.model), iteration + 1)
    return [len(prompt) for prompt in loader.batch(iteration).prompts]


def parts(comparison: Comparison, work: Work, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what an entry says besides its ratio: seconds by part, and settings."""
    names = ("rollout_s", "grade_s", "update_s")
    return {
        "parts_ours": {name: round(comparison.ours[-1][name], 3) for name in names},
        "parts_theirs": {name: round(comparison.theirs[-1][name], 3) for name in names},
        "num_tokens": sum(work.forced),
        "settings": work.describe() | {"trl": settings},
    }


def grpo_mini(context: Context) -> list[Entry]:
    """16 x 16 responses of the shipped base."""
    work = sizes.grpo_mini(context.folder, peers.TRL_GRPO_MINI_PRECISION, context.tiny)
    comparison = iterate(context, work, peers.TRL_GRPO_MINI, most=2)
    return [
        compare(
            comparison,
            work="GRPO iteration, 16 x 16, up to 512 tokens",
            model="mini",
            peer=PEER,
            goal=5.0,
            unit="s",
            **parts(comparison, work, peers.TRL_GRPO_MINI),
        )
    ]


def grpo_135m(context: Context) -> list[Entry]:
    """4 x 8 responses of a 135M model: the whole iteration, and its update."""
    work = sizes.grpo_135m(context.folder, "bf16-mixed", context.tiny)
    # in its second step a process still touches pages for the first time, for seconds on a
    # virtual machine
    comparison = iterate(context, work, peers.TRL_GRPO_135M, most=3, warmups=2)
    more = parts(comparison, work, peers.TRL_GRPO_135M)
    whole = compare(
        comparison,
        work="GRPO iteration, 4 x 8, up to 256 tokens",
        model="135M",
        peer=PEER,
        goal=3.0,
        unit="s",
        **more,
    )
    name = "tiny" if context.tiny else "135M"
    prompts = prompt_lengths(work)
    update = compare(
        comparison,
        work="update only, 4 x 8, up to 256 tokens",
        model="135M",
        peer=PEER,
        goal=2.5,
        unit="s",
        key="update_s",
        num_tokens=sum(work.forced),
        settings=more["settings"],
    )
    update.extra["mfu_ours"] = context.mfu(name, work, prompts, update.ours)
    update.extra["mfu_theirs"] = context.mfu(name, work, prompts, update.theirs)
    return [whole, update]
