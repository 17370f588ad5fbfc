"""Decoding with Hugging Face's own caches: any causal language model that takes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from r1lit.policy import Policy
from r1lit.rollout.cache import make_cache


class Decoding(ABC):
    """Rows that are being decoded together, each one token a step.

    P prompts   R rows   V vocabulary
    """

    first_logits_RV: Tensor

    @abstractmethod
    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to each row; return the logits [R, V] of the next."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these, given as ascending indices."""


class CachedDecoding(Decoding):
    """Prefills each prompt once, copies its cache for each row of its group, and decodes.

    Prompts are padded on the left.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], group_size: int, pad: int
    ) -> None:
        self.model = policy.model
        device = next(policy.parameters()).device
        width = max(len(prompt) for prompt in prompts)
        ids_PS = torch.full((len(prompts), width), pad, device=device)
        seen_PS = torch.zeros(len(prompts), width, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            ids_PS[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
            seen_PS[row, width - len(prompt) :] = 1
        self.cache = make_cache(policy.config)
        logits_PV = policy.model(
            input_ids=ids_PS,
            attention_mask=None if bool(seen_PS.all()) else seen_PS,
            position_ids=(seen_PS.cumsum(-1) - 1).clamp(min=0),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        expand_R = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
        self.cache.reorder_cache(expand_R)  # type: ignore[arg-type]
        self.first_logits_RV = logits_PV[expand_R]
        self.seen_RL = seen_PS[expand_R]
        self.position_R = self.seen_RL.sum(-1)
        self.padded = not bool(self.seen_RL.all())

    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to each row; return the logits of the next."""
        if self.padded:
            self.seen_RL = torch.cat([self.seen_RL, self.seen_RL.new_ones(len(token_R), 1)], -1)
        logits_RV = self.model(
            input_ids=token_R[:, None],
            position_ids=self.position_R[:, None],
            attention_mask=self.seen_RL if self.padded else None,
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]
        self.position_R = self.position_R + 1
        return logits_RV

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]
        self.seen_RL, self.position_R = self.seen_RL[rows], self.position_R[rows]
