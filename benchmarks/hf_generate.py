"""Hugging Face ``generate`` with forced lengths: a peer by itself, and the inside of TRL.

B rows   S prompt tokens   T response tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList, set_seed

from benchmarks import problems
from benchmarks.models import autocast, load_plain
from benchmarks.work import Work
from benchmarks.worker import Gate
from r1lit.policy import load_tokenizer

NEVER = -1
WARMUP_TOKENS = 16
MANY = 10_000


class RecordedLengths(StoppingCriteria):
    """Ends row ``b`` once it has ``lengths[b]`` response tokens."""

    def __init__(self, lengths: Sequence[int], prompt_tokens: int) -> None:
        self.length_B = torch.tensor(lengths)
        self.prompt_tokens = prompt_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """Return which rows have ended."""
        self.length_B = self.length_B.to(input_ids.device)
        return self.length_B <= input_ids.shape[1] - self.prompt_tokens


def end_at(tokens_BT: Tensor, lengths: Sequence[int], *, eos: int, pad: int, other: int) -> Tensor:
    """Return responses that end with EOS at their length, with no EOS before and pads behind.

    >>> end_at(torch.tensor([[2, 5, 6], [5, 6, 7]]), [2, 3], eos=2, pad=0, other=9).tolist()
    [[9, 2, 0], [5, 6, 2]]
    """
    length_B1 = torch.tensor(lengths, device=tokens_BT.device)[:, None]
    place_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
    ended_BT = tokens_BT.masked_fill(tokens_BT == eos, other)
    ended_BT = ended_BT.masked_fill(place_T == length_B1 - 1, eos)
    return ended_BT.masked_fill(place_T >= length_B1, pad)


def warmup_lengths(lengths: Sequence[int]) -> list[int]:
    """Return short lengths for a peer's uncounted first step: it compiles nothing, and is slow."""
    return [min(length, WARMUP_TOKENS) for length in lengths]


def run_rollout(gate: Gate, *, work: Work, cache: str | None = None) -> None:
    """Draw responses with ``generate``, all rows in one batch."""
    set_seed(work.seed)
    tokenizer = load_tokenizer(work.model)
    model = load_plain(work).eval()
    loader = problems.prompt_loader(work, tokenizer, MANY)
    for iteration, _ in enumerate(gate):
        prompts = loader.batch(iteration).prompts
        rows = [list(prompt) for prompt in prompts for _ in range(work.group_size)]
        inputs = tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt")
        inputs = inputs.to(work.device)
        width = inputs["input_ids"].shape[1]
        lengths = work.forced if iteration else warmup_lengths(work.forced)
        gate.start()
        with torch.no_grad(), autocast(work):
            tokens = model.generate(
                **inputs,
                do_sample=True,
                temperature=work.temperature,
                top_k=0,
                top_p=1.0,
                max_new_tokens=work.max_tokens,
                eos_token_id=NEVER,
                pad_token_id=tokenizer.pad_token_id,
                stopping_criteria=StoppingCriteriaList([RecordedLengths(lengths, width)]),
                cache_implementation=cache,
                disable_compile=True,
            )
        gate.stop()
        assert tokens.shape[1] - width == max(lengths), (tokens.shape, width)
        gate.report(lengths=list(lengths), prompt_lengths=[len(prompt) for prompt in prompts])
