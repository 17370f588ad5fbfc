"""Rollouts of the in-process engine, as completions and as padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from r1lit.rollout import Completion, InProcessEngine, ModelSpec, Request, RolloutEngine, Sampling
from r1lit.rollout.worker import pad


def requests_for(
    prompts: Sequence[Sequence[int]],
    group_size: int,
    sampling: Sampling,
    *,
    seed: int = 0,
    iteration: int = 0,
    samples: Sequence[int] | None = None,
) -> list[Request]:
    """One request a prompt; row ``b`` is sample ``samples[b]``."""
    named = range(len(prompts) * group_size) if samples is None else samples
    return [
        Request(
            prompt=tuple(prompt),
            samples=tuple(named[p * group_size : (p + 1) * group_size]),
            sampling=sampling,
            seed=seed,
            iteration=iteration,
        )
        for p, prompt in enumerate(prompts)
    ]


def bound(engine: RolloutEngine, policy: Any, tokenizer: Any) -> RolloutEngine:
    engine.bind(ModelSpec(name="tiny", tokenizer=tokenizer, policy=policy))
    return engine


@dataclass
class Drawn:
    """The rows of ``completions``, padded to the longest."""

    completions: list[Completion]
    response_BT: Tensor
    mask_BT: Tensor
    logp_BT: Tensor
    finished_B: Tensor

    def tokens(self) -> list[list[int]]:
        return [completion.token_ids.tolist() for completion in self.completions]


def draw(
    policy: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    group_size: int = 1,
    *,
    samples: Sequence[int] | None = None,
    seed: int = 0,
    iteration: int = 0,
    max_rows: int | None = None,
    compile: bool = True,
    **sampling: Any,
) -> Drawn:
    engine = bound(InProcessEngine(max_rows, compile), policy, tokenizer)
    completions = engine.generate(
        requests_for(
            prompts, group_size, Sampling(**sampling), seed=seed, iteration=iteration,
            samples=samples,
        )
    )  # fmt: skip
    response_BT, mask_BT, logp_BT = pad(completions, tokenizer, torch.device("cpu"))
    finished_B = torch.tensor([completion.finished for completion in completions])
    return Drawn(completions, response_BT, mask_BT, logp_BT, finished_B)
