"""The in-process rollout engine: any Hugging Face causal language model, where it is trained.

B rows of a batch   R of them not yet removed   T response tokens   V vocabulary
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from r1lit.device import backend
from r1lit.errors import check_at_least
from r1lit.policy import Policy, evaluating, is_packed
from r1lit.policy.support import nudged, trial
from r1lit.rollout.compiled import Compiled, any_sizes
from r1lit.rollout.decoding import CachedDecoding, Decoding, UncachedDecoding, find_decoding_error
from r1lit.rollout.engine import (
    Completion,
    FinishReason,
    ModelSpec,
    OnFinished,
    Request,
    RolloutEngine,
    collect,
)
from r1lit.rollout.randomness import Uniforms
from r1lit.rollout.sampling import Sampling, sample_tokens
from r1lit.rollout.shared_prompts import (
    Decoder,
    SharedPromptDecoding,
    at_least_two,
    compute_dtype,
    find_shared_prompt_error,
    run_layer,
)

COMPACT_BELOW = 0.8
StoppingCriterion = Callable[[Tensor, Tensor, Tensor, int], Tensor]
DecodingMethod = Literal["shared", "cached", "uncached"]
Row = tuple[int, int]  # place among all completions, sample


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows that decode together: ``group_size`` samples of each prompt, prompt-major.

    ``samples`` and ``indices`` (the rows' places among all completions) have one entry a row.
    """

    prompts: list[tuple[int, ...]]
    group_size: int
    samples: list[int]
    indices: list[int]
    sampling: Sampling
    seed: int
    iteration: int


class InProcessEngine(RolloutEngine):
    """Generates with the policy in this process, whose weights it shares.

    Neighbouring requests of one prompt are a group: its prompt is prefilled and kept once and read
    once a step, all in the dtype that training computes in (bfloat16 under ``precision:
    bf16-mixed``), where the policy can attend so; otherwise rows decode with Hugging Face's own
    caches, or without any where those give other log-probs than a plain forward pass. The method is
    found by a trial before the first rollout, with a warning if it is a slower one. Finished rows
    leave the batch once a fifth of it has finished. A completion depends on its prompt and (seed,
    iteration, sample) alone, up to the rounding of logits.

    Args:
        max_rows: how many rows decode at a time (None: all of them); memory depends on it, tokens
            do not.
        compile: whether to compile decoder layers with ``torch.compile``. The first rollout on a
            machine then takes some 20 s longer, and all others are faster.
    """

    shares_weights = True

    def __init__(self, max_rows: int | None = None, compile: bool = True) -> None:
        if max_rows is not None:
            check_at_least("max_rows", max_rows, 1)
        self.max_rows = max_rows
        self._run_layer = Compiled(run_layer) if compile else run_layer
        self._sample_tokens = Compiled(sample_tokens) if compile else sample_tokens

    def bind(self, model: ModelSpec) -> None:
        """Share the weights of ``model.policy`` from now on."""
        assert model.policy is not None, "the in-process engine needs a loaded policy"
        super().bind(model)
        self._decoding_method: DecodingMethod | None = None

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate``.

        Raises:
            ValueError: if a response may become longer than the policy takes, or if its log-probs
                are not finite.
        """
        return collect(self.stream, requests, on_finished)

    @torch.no_grad()
    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as they end; see ``RolloutEngine.stream`` and ``generate``."""
        policy = self.model.policy
        assert policy is not None
        for request in requests:
            policy.check_length(len(request.prompt) + request.sampling.max_tokens)
        device = policy.device
        with evaluating(policy), backend(device).decoding(), any_sizes():
            if self._decoding_method is None:
                with nudged(policy):
                    self._decoding_method = find_decoding_method(policy)
            decoder = (
                Decoder(policy, compute_dtype(policy), self._run_layer)
                if self._decoding_method == "shared"
                else None
            )
            for batch in batches(requests, self.max_rows):
                self._decode(decoder or policy, batch, on_finished)

    def _decode(self, policy: Policy | Decoder, batch: Batch, on_finished: OnFinished) -> None:
        """Decode the rows of a batch to their ends."""
        if len(batch.samples) == 1 and isinstance(policy, Decoder):
            # code compiled for one row adds up in another order: generate it twice, keep it once
            batch = replace(batch, group_size=2, samples=batch.samples * 2)
        pad, sampling = int(self.model.tokenizer.pad_token_id), batch.sampling
        decoding: Decoding
        if isinstance(policy, Decoder):
            decoding = SharedPromptDecoding(policy, batch.prompts, batch.group_size)
        else:
            kind = CachedDecoding if self._decoding_method == "cached" else UncachedDecoding
            decoding = kind(policy, batch.prompts, batch.group_size, pad)
        logits_RV = decoding.first_logits_RV
        device = logits_RV.device
        num_rows, limit = len(batch.samples), sampling.max_tokens
        uniforms = Uniforms(batch.seed, batch.iteration, batch.samples, device)
        ended = self.stopping_criterion(sampling, batch.samples)
        response_BT = torch.full((num_rows, limit), pad, device=device)
        logp_BT = torch.zeros(num_rows, limit, device=device)
        length_B = torch.full((num_rows,), limit, device=device)
        row_R = torch.arange(num_rows, device=device)  # which row each row of the batch is
        alive_R = torch.ones(num_rows, dtype=torch.bool, device=device)
        left = dict(enumerate(batch.indices))  # rows not reported yet, and their indices
        num_alive, every = num_rows, check_every(device)

        def report_finished(rows: list[int], reason: FinishReason) -> None:
            rows = [row for row in rows if row in left]
            if not rows:
                return
            completions = [
                Completion(
                    token_ids=response_BT[row, :length],
                    logps=logp_BT[row, :length],
                    finish_reason=reason,
                    version=self.version,
                )
                for row, length in zip(rows, length_B[rows].tolist(), strict=True)
            ]
            on_finished([left.pop(row) for row in rows], completions)

        for token in range(limit):
            token_R, logp_R = self._sample_tokens(logits_RV, uniforms.at(token, row_R), sampling)
            # a row that finished but has not left yet decodes on; nothing of it is kept
            response_BT[row_R, token] = token_R.where(alive_R, pad)
            logp_BT[row_R, token] = logp_R.where(alive_R, 0.0)
            done_R = alive_R & ended(token_R, response_BT, row_R, token)
            length_B[row_R] = length_B[row_R].where(~done_R, token + 1)
            alive_R = alive_R & ~done_R
            last = token + 1 == limit
            if last or (token + 1) % every == 0:
                before, num_alive = num_alive, int(alive_R.sum())
                if num_alive < before:
                    report_finished(row_R[~alive_R].tolist(), "stop")
                if num_alive == 0 or last:
                    break
                if num_alive < COMPACT_BELOW * len(row_R):
                    keep = at_least_two(alive_R.nonzero().squeeze(-1), len(row_R))
                    decoding.keep_rows(keep)
                    row_R, token_R, alive_R = row_R[keep], token_R[keep], alive_R[keep]
            logits_RV = decoding.step(token_R)
        if not bool(logp_BT.isfinite().all()):
            raise ValueError(
                f"policy: its log-probs are not finite in iteration {batch.iteration}, so its"
                " weights are broken or its dtype is too coarse; in training resume from the last"
                " checkpoint, with less learning rate"
            )
        report_finished(list(left), "length")

    def stopping_criterion(self, sampling: Sampling, samples: Sequence[int]) -> StoppingCriterion:
        """Return the function that decides which rows end with their newest token.

        It is called with the rows' tokens, all responses so far, the rows' indices and the token's;
        row ``r`` is the one named ``samples[r]``. A subclass may end rows by another rule.
        """
        tokenizer, ends = self.model.tokenizer, self.model.end_ids()
        stop = tuple(sampling.stop)
        # a stop string of n characters lies within the last n tokens, or n more when they are bytes
        window = 2 * max((len(s.encode()) for s in stop), default=0)

        def ended(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> Tensor:
            done_R = token_R == ends[0]
            for end in ends[1:]:
                done_R = done_R | (token_R == end)
            if stop:
                tails = response_BT[rows, max(0, token + 1 - window) : token + 1]
                texts = tokenizer.batch_decode(tails, skip_special_tokens=False)
                hits = [any(s in text for s in stop) for text in texts]
                done_R = done_R | torch.tensor(hits, dtype=torch.bool, device=done_R.device)
            return done_R

        return ended


def check_every(device: torch.device) -> int:
    """Return after how many tokens to see which rows have ended: it makes the host wait."""
    return 1 if device.type == "cpu" else 16


def batches(requests: Sequence[Request], max_rows: int | None) -> Iterator[Batch]:
    """Yield which rows decode together, at most ``max_rows`` at a time.

    Neighbouring requests of one prompt and one sampling are a group. Groups of one size go
    together, larger ones first; a group above ``max_rows`` is split.
    """
    by_kind: dict[tuple[int, Sampling, int, int], list[tuple[tuple[int, ...], list[Row]]]] = {}
    index = 0
    for _, group in groupby(requests, lambda r: (r.prompt, r.sampling, r.seed, r.iteration)):
        neighbours = list(group)
        samples = [sample for request in neighbours for sample in request.samples]
        rows = list(enumerate(samples, start=index))
        index += len(rows)
        first = neighbours[0]
        kind = (len(rows), first.sampling, first.seed, first.iteration)
        by_kind.setdefault(kind, []).append((first.prompt, rows))
    for (size, sampling, seed, iteration), groups in sorted(
        by_kind.items(), key=lambda item: -item[0][0]
    ):
        limit = max_rows or size * len(groups)
        together = max(1, limit // size)
        for start in range(0, len(groups), together):
            for row in range(0, size, limit):
                some = [
                    (prompt, rows[row : row + limit])
                    for prompt, rows in groups[start : start + together]
                ]
                yield Batch(
                    prompts=[prompt for prompt, _ in some],
                    group_size=len(some[0][1]),
                    samples=[sample for _, rows in some for _, sample in rows],
                    indices=[index for _, rows in some for index, _ in rows],
                    sampling=sampling,
                    seed=seed,
                    iteration=iteration,
                )


def find_decoding_method(policy: Policy) -> DecodingMethod:
    """Return the fastest method whose log-probs are a plain forward pass's; warn if it is slow."""
    name = f"policy: {type(policy.model).__name__} decodes"
    if is_packed(policy):
        reason = find_shared_prompt_error(policy)
        if reason is None:
            return "shared"
    else:
        reason = ""
    with trial(policy):
        cached = find_decoding_error(policy, partial(CachedDecoding, policy, pad=0))
    if cached is not None:
        warnings.warn(
            f"{name} without a cache, each token after a forward pass over its whole row, which is"
            f" far slower: with Hugging Face's caches, {cached}",
            stacklevel=2,
        )
        return "uncached"
    if reason:
        warnings.warn(
            f"{name} with Hugging Face's caches, which is slower than over shared prompts:"
            f" {reason}",
            stacklevel=2,
        )
    return "cached"
