"""The paper's own GPU-hours, compared with those of `r1lit.modules.compute_plan` for its model.

The paper's Table 7 has 101K H800-hours of R1-Zero, 5K of SFT data and 41K of R1. Its model has 37
of 671 billion parameters active. An update takes 6 FLOPs an active parameter and token, x 4/3 with
gradient checkpointing, + 1/3 for the reference's forward where there is one. Tokens are sampled at
the rate that DeepSeek's service reported. Attention and all waiting are left out, and
the paper prints neither mean lengths nor RL-1's steps: both are assumed, as in full.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from r1lit.modules.compute_plan import Gpu

ACTIVE_PARAMETERS = 37e9
RESPONSES_A_STEP = 512


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the paper's Table 7, with the tokens that it takes here.

    ``sampled`` and ``updated`` are of reinforcement learning (a reference included), ``learnt`` of
    supervised training, over all epochs.
    """

    name: str
    hours_of_paper: float
    sampled: float = 0.0
    updated: float = 0.0
    learnt: float = 0.0

    def hours(self, gpu: Gpu, tokens_per_s: float) -> float:
        """Return the GPU-hours of the formulas."""
        flops = 6 * ACTIVE_PARAMETERS * (self.updated * (4 / 3 + 1 / 3) + self.learnt * 4 / 3)
        return (flops / gpu.flops_per_second + self.sampled / tokens_per_s) / 3600


def parts_of(mean_tokens: float, rejected: float, rl_1_steps: int) -> tuple[Part, ...]:
    """Return the three parts.

    Args:
        mean_tokens: of a response in reinforcement learning; assumed.
        rejected: tokens of the rejection sampling; assumed.
        rl_1_steps: of RL-1, which the paper does not print.
    """
    zero = 10_400 * RESPONSES_A_STEP * mean_tokens
    rl = (rl_1_steps + 1_700) * RESPONSES_A_STEP * mean_tokens
    sft = 804_745 * 5_355.3 * 2.5  # 2 to 3 epochs
    return (
        Part(name="R1-Zero", hours_of_paper=101e3, sampled=zero, updated=zero),
        Part(name="SFT data", hours_of_paper=5e3, sampled=rejected),
        Part(name="R1", hours_of_paper=41e3, sampled=rl, updated=rl, learnt=sft),
    )


def paper_table(
    gpu: Gpu, tokens_per_s: float, mean_tokens: float, rejected: float, rl_1_steps: int
) -> Iterator[str]:
    """Yield both beside each other, as Markdown."""
    yield "## The paper's own hours, and these formulas for its model"
    yield ""
    yield "| part | the paper, H800-hours | the formulas | the paper is |"
    yield "|---|---:|---:|---:|"
    total = ours = 0.0
    for part in parts_of(mean_tokens, rejected, rl_1_steps):
        hours = part.hours(gpu, tokens_per_s)
        total, ours = total + part.hours_of_paper, ours + hours
        yield _row(part.name, part.hours_of_paper, hours)
    yield _row("all", total, ours)
    yield ""
    yield (
        f"37 of 671 billion parameters active; responses of {mean_tokens:,.0f} tokens and"
        f" {rl_1_steps:,} steps of RL-1 are assumed; {tokens_per_s:,.0f} tokens a second and GPU"
        " are DeepSeek's service's. Attention, waiting for the longest response, communication and"
        " failed tries are not in the formulas, so read their hours as a lower bound."
    )


def _row(name: str, paper: float, hours: float) -> str:
    return f"| {name} | {paper:,.0f} | {hours:,.0f} | {paper / hours:.1f} times |"
