"""Hugging Face ``generate`` with forced lengths: a peer by itself, and the inside of TRL.

B rows   S prompt tokens   T response tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from benchmarks import problems
from benchmarks.devices import Stopwatch, autocast, device_memory, seed_all, weights_dtype
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


def left_padded(prompts: Sequence[Sequence[int]], group_size: int, pad: int) -> dict[str, Tensor]:
    """Return prompts padded on the left, each ``group_size`` times, with their mask."""
    width = max(map(len, prompts))
    ids_PS = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts])
    seen_PS = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return {
        "input_ids": ids_PS.repeat_interleave(group_size, 0),
        "attention_mask": seen_PS.repeat_interleave(group_size, 0),
    }


def run_rollout(gate: Gate, *, work: Work, cache: str | None = None) -> None:
    """Draw responses with ``generate``, all rows in one batch."""
    seed_all(work.seed)
    tokenizer = load_tokenizer(work.model)
    model = AutoModelForCausalLM.from_pretrained(
        work.model, dtype=weights_dtype(work.precision), trust_remote_code=False
    )
    model = model.to(work.device).eval()  # type: ignore[arg-type]
    loader = problems.prompt_loader(work, tokenizer, MANY)
    for iteration, _ in enumerate(gate):
        prompts = loader.batch(iteration).prompts
        inputs = left_padded(prompts, work.group_size, int(tokenizer.pad_token_id))
        width = inputs["input_ids"].shape[1]
        inputs = {name: tensor.to(work.device) for name, tensor in inputs.items()}
        lengths = work.forced if iteration else warmup_lengths(work.forced)
        criterion = RecordedLengths(lengths, width)
        stopwatch = Stopwatch(work.device)
        with torch.no_grad(), autocast(work.precision, work.device):
            tokens = model.generate(
                **inputs,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=work.max_tokens,
                eos_token_id=NEVER,
                pad_token_id=tokenizer.pad_token_id,
                stopping_criteria=StoppingCriteriaList([criterion]),
                cache_implementation=cache,
                disable_compile=True,
            )
        seconds = stopwatch.seconds()
        assert tokens.shape[1] - width == max(lengths), (tokens.shape, width)
        gate.report(
            seconds=seconds,
            lengths=list(lengths),
            prompt_lengths=[len(prompt) for prompt in prompts],
            **device_memory(work.device),
        )
