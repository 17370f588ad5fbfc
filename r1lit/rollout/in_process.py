"""The in-process rollout engine: any Hugging Face causal language model, where it is trained."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Generation
from r1lit.cpu.machine import no_garbage_collection
from r1lit.policy import Policy, is_packed
from r1lit.rollout.compiled import Compiled, any_sizes
from r1lit.rollout.decoding import CachedDecoding, Decoding
from r1lit.rollout.engine import OnEnd, RolloutEngine
from r1lit.rollout.randomness import Uniforms
from r1lit.rollout.sampling import Sampling, choose
from r1lit.rollout.shared_prompts import (
    Decoder,
    SharedPromptDecoding,
    at_least_two,
    compute_dtype,
    run_layer,
    why_not_shared,
)

COMPACT_BELOW = 0.8
Stopper = Callable[[Tensor, Tensor, Tensor, int], Tensor]
NEEDED = ("position_ids", "past_key_values", "attention_mask", "logits_to_keep")


class InProcessEngine(RolloutEngine):
    """Prefills each prompt once a group, and decodes all rows together.

    A group's prompt is kept once and read once a step, all in the dtype that training computes in
    (bfloat16 under ``precision: bf16-mixed``), where the policy can attend so; otherwise rows
    decode with Hugging Face's own caches. Finished rows leave the batch once a fifth of it has
    finished.

    Args:
        max_rows: how many rows decode at a time (None: all of them); memory depends on it, tokens
            do not.
        compile: whether to compile decoder layers with ``torch.compile``. The first rollout on a
            machine then takes some 20 s longer, and all others are faster.
    """

    def __init__(self, max_rows: int | None = None, compile: bool = True) -> None:
        if max_rows is not None and max_rows < 1:
            raise ValueError(f"max_rows: {max_rows} is not at least 1")
        self.max_rows = max_rows
        self._run_layer = Compiled(run_layer) if compile else run_layer
        self._choose = Compiled(choose) if compile else choose
        self._shares_prompts: WeakKeyDictionary[Policy, bool] = WeakKeyDictionary()

    @torch.no_grad()
    def generate(
        self,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        iteration: int,
        samples: Sequence[int],
        on_end: OnEnd | None = None,
    ) -> Generation:
        """Draw responses; see ``RolloutEngine.generate``.

        Raises:
            ValueError: if the policy's ``forward`` lacks what cached decoding needs.
        """
        assert len(samples) == len(prompts) * group_size, (len(samples), len(prompts), group_size)
        check_decodable(policy)
        parts, done = [], 0
        with evaluating(policy), no_garbage_collection(), any_sizes():
            decoder = self._decoder(policy)
            for chosen, size in self._shares(len(prompts), group_size):
                rows = range(done, done + len(chosen) * size)
                done = rows.stop
                parts.append(
                    self._decode(
                        decoder or policy,
                        tokenizer,
                        [prompts[p] for p in chosen],
                        size,
                        sampling,
                        seed,
                        iteration,
                        [samples[row] for row in rows],
                        None if on_end is None else partial(_end_of_part, on_end, rows.start),
                    )
                )
        return join(parts, pad=int(tokenizer.pad_token_id))

    def _shares(self, num_prompts: int, group_size: int) -> Iterator[tuple[range, int]]:
        """Yield which prompts are decoded together, and how many rows of each; in row order."""
        limit = num_prompts * group_size if self.max_rows is None else self.max_rows
        together = max(1, limit // group_size)
        for start in range(0, num_prompts, together):
            for row in range(0, group_size, limit):
                chosen = range(start, min(start + together, num_prompts))
                yield chosen, min(limit, group_size - row)

    def _decoder(self, policy: Policy) -> Decoder | None:
        """Return the policy made ready to decode over shared prompts, or None if it cannot be."""
        if not is_packed(policy):
            return None
        if policy not in self._shares_prompts:
            reason = why_not_shared(policy)
            self._shares_prompts[policy] = reason is None
            if reason is not None:
                warnings.warn(
                    f"policy: {type(policy.model).__name__} decodes with Hugging Face's caches,"
                    f" which is slower than over shared prompts: {reason}",
                    stacklevel=2,
                )
        if not self._shares_prompts[policy]:
            return None
        return Decoder(policy, compute_dtype(policy), self._run_layer)

    def _decode(
        self,
        policy: Policy | Decoder,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        group_size: int,
        sampling: Sampling,
        seed: int,
        iteration: int,
        samples: Sequence[int],
        on_end: OnEnd | None,
    ) -> Generation:
        if len(samples) == 1 and isinstance(policy, Decoder):
            # code compiled for one row adds up in another order: draw it twice, keep it once
            twice = self._decode(
                *(policy, tokenizer, prompts, 2, sampling, seed, iteration, [*samples, *samples]),
                None if on_end is None else lambda _, tokens: on_end([0], tokens[:1]),
            )
            return Generation(**{name: value[:1] for name, value in vars(twice).items()})
        pad = int(tokenizer.pad_token_id)
        decoding: Decoding
        if isinstance(policy, Decoder):
            decoding = SharedPromptDecoding(policy, prompts, group_size)
        else:
            decoding = CachedDecoding(policy, prompts, group_size, pad)
        logits_RV = decoding.first_logits_RV
        device = logits_RV.device
        num_rows, limit = len(prompts) * group_size, sampling.max_tokens
        uniforms = Uniforms(seed, iteration, samples, device)
        ended = self.stopper(tokenizer, sampling, samples)
        response_BT = torch.full((num_rows, limit), pad, device=device)
        logp_BT = torch.zeros(num_rows, limit, device=device)
        length_B = torch.full((num_rows,), limit, device=device)
        finished_B = torch.zeros(num_rows, dtype=torch.bool, device=device)
        row_R = torch.arange(num_rows, device=device)  # which row each row of the batch is
        for token in range(limit):
            token_R, logp_R = self._choose(logits_RV, uniforms.at(token, row_R), sampling)
            # a row that finished but has not left yet decodes on; nothing of it is kept
            alive_R = ~finished_B[row_R]
            kept = row_R[alive_R]
            response_BT[kept, token] = token_R[alive_R]
            logp_BT[kept, token] = logp_R[alive_R]
            done = kept[ended(token_R[alive_R], response_BT, kept, token)]
            finished_B[done] = True
            length_B[done] = token + 1
            if on_end is not None and len(done):
                on_end(done.tolist(), response_BT[done, : token + 1].tolist())
            alive_R = ~finished_B[row_R]
            num_alive = int(alive_R.sum())
            if num_alive == 0 or token + 1 == limit:
                break
            if num_alive < COMPACT_BELOW * len(row_R):
                keep = at_least_two(alive_R.nonzero().squeeze(-1), len(row_R))
                decoding.keep(keep)
                row_R, token_R = row_R[keep], token_R[keep]
            logits_RV = decoding.step(token_R)
        width = int(length_B.max())
        mask_BT = torch.arange(width, device=device) < length_B[:, None]
        return Generation(
            response_BT=response_BT[:, :width],
            mask_BT=mask_BT,
            logp_BT=logp_BT[:, :width],
            finished_B=finished_B,
        )

    def stopper(
        self, tokenizer: PreTrainedTokenizerBase, sampling: Sampling, samples: Sequence[int]
    ) -> Stopper:
        """Return the function that says which rows end with the token they just got.

        It is called with the rows' tokens, all responses so far, the rows' indices and the token's;
        row ``r`` is the one named ``samples[r]``. A subclass may end rows by another rule.
        """
        eos = int(tokenizer.eos_token_id)
        stop = tuple(sampling.stop)
        # a stop string of n characters lies within the last n tokens, or n more when they are bytes
        window = 2 * max((len(s.encode()) for s in stop), default=0)

        def ended(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> Tensor:
            done_R = token_R == eos
            if stop:
                tails = response_BT[rows, max(0, token + 1 - window) : token + 1]
                texts = tokenizer.batch_decode(tails, skip_special_tokens=False)
                hits = [any(s in text for s in stop) for text in texts]
                done_R = done_R | torch.tensor(hits, dtype=torch.bool, device=done_R.device)
            return done_R

        return ended


def _end_of_part(
    on_end: OnEnd, start: int, rows: Sequence[int], tokens: Sequence[Sequence[int]]
) -> None:
    """Tell ``on_end`` of rows of a part of the batch that begins at row ``start``."""
    on_end([start + row for row in rows], tokens)


def check_decodable(policy: Policy) -> None:
    """Check that the policy can be decoded from a cache, prompts padded on the left.

    Raises:
        ValueError: naming what its ``forward`` does not take.
    """
    taken = inspect.signature(policy.model.forward).parameters
    lacking = [name for name in NEEDED if name not in taken]
    if lacking:
        raise ValueError(
            f"policy: {type(policy.model).__name__} takes no {', '.join(lacking)}, which the"
            " in-process rollout engine decodes with; a Llama- or Qwen-like policy does"
        )


def join(parts: Sequence[Generation], pad: int) -> Generation:
    """Put generations below each other, padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.response_BT.shape[1] for part in parts)

    def stack(tensors: list[Tensor], value: float) -> Tensor:
        padded = [torch.nn.functional.pad(t, (0, width - t.shape[1]), value=value) for t in tensors]
        return torch.cat(padded)

    return Generation(
        response_BT=stack([part.response_BT for part in parts], pad),
        mask_BT=stack([part.mask_BT for part in parts], False),
        logp_BT=stack([part.logp_BT for part in parts], 0.0),
        finished_B=torch.cat([part.finished_B for part in parts]),
    )


@contextmanager
def evaluating(policy: Policy) -> Iterator[None]:
    """Switch dropout off for the while, and leave every part in the mode it was in."""
    training = [module for module in policy.modules() if module.training]
    policy.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
