"""Decoding with Hugging Face's own caches, or without any, and a trial of a decoding method.

P prompts   R rows   V vocabulary
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

from r1lit.policy import Policy
from r1lit.policy.source import first_line
from r1lit.policy.support import FAILURES, LOW_PRECISION_TOLERANCE, TOLERANCE

PROMPTS = (tuple(range(22, 36)), (9, 10), (11, 12, 13))
TOKENS = ((14, 15, 16, 17), (18, 19, 20, 21))  # of the two rows of each prompt


class Decoding(ABC):
    """Rows that are being decoded together, each one token a step."""

    first_logits_RV: Tensor

    @abstractmethod
    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to each row; return the logits [R, V] of the next."""

    @abstractmethod
    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these, given as ascending indices."""


class CachedDecoding(Decoding):
    """Prefills each prompt once, copies its cache for each row of its group, and decodes.

    Prompts are padded on the left.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], group_size: int, pad: int
    ) -> None:
        self.model = policy.model
        device = policy.device
        width = max(len(prompt) for prompt in prompts)
        ids_PS = torch.full((len(prompts), width), pad, device=device)
        seen_PS = torch.zeros(len(prompts), width, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            ids_PS[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
            seen_PS[row, width - len(prompt) :] = 1
        self.cache = make_cache(policy.config)
        takes_cache = "cache" in inspect.signature(self.model.forward).parameters
        # transformers 5.24 renamed it; an earlier one would swallow the new name
        self.cached = {"cache" if takes_cache else "past_key_values": self.cache, "use_cache": True}
        logits_PV = policy.model(
            input_ids=ids_PS,
            attention_mask=None if bool(seen_PS.all()) else seen_PS,
            position_ids=(seen_PS.cumsum(-1) - 1).clamp(min=0),
            **self.cached,
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
            **self.cached,
        ).logits[:, -1]
        self.position_R = self.position_R + 1
        return logits_RV

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]
        self.seen_RL, self.position_R = self.seen_RL[rows], self.position_R[rows]


class UncachedDecoding(Decoding):
    """Runs the whole of each row again for each token: slow, and right for every causal policy.

    Rows are padded on the right; each takes the logits of its own last token.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], group_size: int, pad: int
    ) -> None:
        self.model = policy.model
        device = policy.device
        lengths_P = torch.tensor([len(prompt) for prompt in prompts], device=device)
        ids_PS = torch.full((len(prompts), int(lengths_P.max())), pad, device=device)
        for row, prompt in enumerate(prompts):
            ids_PS[row, : len(prompt)] = torch.tensor(prompt, device=device)
        expand_R = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
        self.first_logits_RV = self._last_logits(ids_PS, lengths_P)[expand_R]
        self.ids_RL, self.length_R = ids_PS[expand_R], lengths_P[expand_R]

    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to each row; return the logits of the next."""
        if int(self.length_R.max()) == self.ids_RL.shape[1]:
            self.ids_RL = torch.nn.functional.pad(self.ids_RL, (0, 1))
        self.ids_RL.scatter_(1, self.length_R[:, None], token_R[:, None])
        self.length_R = self.length_R + 1
        return self._last_logits(self.ids_RL, self.length_R)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.length_R = self.length_R[rows]
        self.ids_RL = self.ids_RL[rows, : int(self.length_R.max())]

    def _last_logits(self, ids_RL: Tensor, length_R: Tensor) -> Tensor:
        logits_RLV = self.model(input_ids=ids_RL, use_cache=False).logits
        return logits_RLV[torch.arange(len(ids_RL), device=ids_RL.device), length_R - 1]


@torch.no_grad()
def find_decoding_error(
    policy: Policy,
    decoding_of: Callable[[Sequence[Sequence[int]], int], Decoding],
    exact: bool = True,
) -> str | None:
    """Try whether a decoding method gives the log-probs of a plain forward pass.

    Prompts of several lengths, two rows each, of which some leave on the way.

    Args:
        policy: what is decoded.
        decoding_of: decodes prompts, that many rows each.
        exact: whether every log-prob must be right to ``TOLERANCE``; otherwise, where all is in a
            lower dtype, their mean to ``LOW_PRECISION_TOLERANCE``.

    Returns:
        None if it does, otherwise what went wrong.
    """
    vocabulary = int(policy.config.get_text_config(decoder=True).vocab_size)
    prompts = [tuple(token % vocabulary for token in prompt) for prompt in PROMPTS]
    device = policy.device
    token_RT = torch.tensor(TOKENS, device=device).repeat(len(prompts), 1) % vocabulary
    plain_RTV = _plain_log_probs(policy, prompts, token_RT)
    if not bool(plain_RTV.isfinite().all()):
        return None  # broken weights are the engine's to report
    left_R, kept = torch.arange(len(token_RT)), torch.tensor([0, 2, 3])
    changes = []
    try:
        decoding = decoding_of(prompts, len(TOKENS))
        logits_RV = decoding.first_logits_RV
        for step in range(token_RT.shape[1]):
            changes.append(logits_RV.float().log_softmax(-1) - plain_RTV[left_R, step])
            if step == 2:
                left_R = left_R[kept]
                decoding.keep_rows(kept.to(device))
            logits_RV = decoding.step(token_RT[left_R, step])
        changes.append(logits_RV.float().log_softmax(-1) - plain_RTV[left_R, -1])
    except FAILURES as error:
        return f"{type(error).__name__} ({first_line(error)})"
    change_KV = torch.cat(changes).abs()
    right = change_KV.max() < TOLERANCE if exact else change_KV.mean() < LOW_PRECISION_TOLERANCE
    return None if bool(right) else "its log-probs would change"


def _plain_log_probs(policy: Policy, prompts: Sequence[Sequence[int]], token_RT: Tensor) -> Tensor:
    """Return log-probs [R, T + 1, V] of what follows each prompt and token, a row at a time."""
    group_size = len(token_RT) // len(prompts)
    rows = []
    for row, token_T in enumerate(token_RT.tolist()):
        prompt = prompts[row // group_size]
        ids = torch.tensor([[*prompt, *token_T]], device=token_RT.device)
        logits_LV = policy.model(input_ids=ids, use_cache=False).logits[0]
        rows.append(logits_LV[len(prompt) - 1 :].float().log_softmax(-1))
    return torch.stack(rows)


BLOCK = 128


class InPlaceLayer(DynamicLayer):
    """Keys and values of one layer, in buffers with room to grow by blocks of 128 tokens.

    ``DynamicLayer`` copies everything for each new token; this copies once a block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values ``[rows, heads, tokens, size]``; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._buffers = (self._grow(self.keys, key_states, end),
                             self._grow(self.values, value_states, end))  # fmt: skip
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = states
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    @staticmethod
    def _grow(old: Tensor, states: Tensor, end: int) -> Tensor:
        rows, heads, _, size = states.shape
        room = (end // BLOCK + 1) * BLOCK
        buffer = torch.empty(rows, heads, room, size, dtype=states.dtype, device=states.device)
        if old.numel():
            buffer[..., : old.shape[-2], :] = old
        return buffer

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Make the rows at ``beam_idx``, which may repeat or leave out some, the cache's rows."""
        self._buffers = None
        super().reorder_cache(beam_idx)


def make_cache(config: PretrainedConfig) -> DynamicCache:
    """Return an empty cache for a policy, with in-place layers for full attention.

    Sliding windows and linear attention keep the library's own layers. Change the cache's rows
    with ``reorder_cache`` alone: the ``batch_…`` methods leave out the states of linear attention.
    """
    cache = DynamicCache(config=config)
    cache.layers = [
        InPlaceLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
