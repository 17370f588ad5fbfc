"""The in-process rollout engine, for any Hugging Face causal language model.

B rows of a batch   R of them not yet removed   T response tokens   V vocabulary
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
import torch.fx.experimental._config as shapes
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import CppCompileError, InductorError, InvalidCxxCompiler

from r1lit.device import backend
from r1lit.errors import check_at_least
from r1lit.policy import Policy, evaluating
from r1lit.policy.source import first_line
from r1lit.policy.support import with_visible_adapter
from r1lit.rollout.decoding import CachedDecoding, Decoding, UncachedDecoding
from r1lit.rollout.decoding_method import DecodingMethod, find_decoding_method
from r1lit.rollout.engine import Capabilities, ModelSpec, RolloutEngine, stream_to_list
from r1lit.rollout.growing_candidates import GrowingCandidates
from r1lit.rollout.next_token import sample_tokens, sample_with_candidates
from r1lit.rollout.request import Completion, FinishReason, OnFinished, Request
from r1lit.rollout.sampling import Sampling, SamplingNumbers
from r1lit.rollout.shared_prompts import (
    Decoder,
    SharedPromptDecoding,
    at_least_two,
    compute_dtype,
    run_layer,
)

COMPACT_BELOW = 0.8
StoppingCriterion = Callable[[Tensor, Tensor, Tensor, int], Tensor]
Constraint = Callable[[Tensor, Tensor, Tensor, int], Tensor]
Row = tuple[int, int]  # place among all completions, sample
PromptRows = tuple[tuple[int, ...], list[Row]]


SHORT_WORK = 512
"""Steps of decoding: compiled they take some seconds less, and compiling takes 5 to 15."""


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
    with_candidates: bool = False


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
            machine then takes some 20 s longer, and all others are faster. An evaluation of at most
            512 steps (batches of rows x max_tokens) is not compiled.
    """

    capabilities = Capabilities(weights="shared", log_probs="whole or kept")

    def __init__(self, max_rows: int | None = None, compile: bool = True) -> None:
        check_at_least("max_rows", max_rows, 1)
        self.max_rows = max_rows
        self._run_layer = Compiled(run_layer) if compile else run_layer
        self._sample_tokens = Compiled(sample_tokens) if compile else sample_tokens

    def bind(self, model: ModelSpec) -> None:
        """Share the weights of ``model.policy`` from now on."""
        assert model.policy is not None, "the in-process engine needs a loaded policy"
        super().bind(model)
        self._decoding_method: DecodingMethod | None = None

    def expect_at_most(self, num_completions: int, max_tokens: int) -> None:
        """Compile nothing for so few steps that they end before the compiler would."""
        batches = -(-num_completions // (self.max_rows or num_completions))
        if batches * max_tokens <= SHORT_WORK:
            self._run_layer, self._sample_tokens = run_layer, sample_tokens

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate``.

        Raises:
            ValueError: if a response may become longer than the policy takes, or if its log-probs
                are not finite.
        """
        return stream_to_list(self.stream, requests, on_finished)

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
                with with_visible_adapter(policy):
                    self._decoding_method = find_decoding_method(policy)
            decoder = (
                Decoder(policy, compute_dtype(policy), self._run_layer)
                if self._decoding_method == "shared"
                else None
            )
            for batch in batches(requests, self.max_rows):
                backend(device).return_memory()  # caches grow into what is in one piece
                self._decode(decoder or policy, batch, on_finished)
            backend(device).return_memory()

    def _decode(self, policy: Policy | Decoder, batch: Batch, on_finished: OnFinished) -> None:
        """Decode the rows of a batch to their ends."""
        if len(batch.samples) == 1 and isinstance(policy, Decoder):
            # code compiled for one row adds up in another order: generate it twice, keep it once
            batch = replace(batch, group_size=2, samples=batch.samples * 2)
        pad, sampling = int(self.model.tokenizer.pad_token_id), batch.sampling
        decoding = self._begin(policy, batch, pad)
        logits_RV = decoding.first_logits_RV
        uniforms = SamplingNumbers(batch.seed, batch.iteration, batch.samples, logits_RV.device)
        ended = self.stopping_criterion(sampling, batch.samples)
        constrain = self.constraint(batch)
        rows = GrowingRows(batch, pad, self.version, on_finished, logits_RV.device)
        limit, every = sampling.max_tokens, check_every(logits_RV.device)
        for token in range(limit):
            uniform_R = uniforms.at(token, rows.row_R)
            if constrain is not None:
                logits_RV = constrain(logits_RV, rows.response_BT, rows.row_R, token)
            left_RV: Tensor | None = None
            if batch.with_candidates:
                token_R, logp_R, left_RV = sample_with_candidates(logits_RV, uniform_R, sampling)
            else:
                token_R, logp_R = self._sample_tokens(logits_RV, uniform_R, sampling)
            rows.append(token, token_R, logp_R, left_RV)
            rows.end(token, ended(token_R, rows.response_BT, rows.row_R, token))
            last = token + 1 == limit
            if last or (token + 1) % every == 0:
                num_alive = rows.report_ended()
                if num_alive == 0 or last:
                    break
                if num_alive < COMPACT_BELOW * len(rows.row_R):
                    keep = at_least_two(rows.alive_R.nonzero().squeeze(-1), len(rows.row_R))
                    decoding.keep_rows(keep)
                    rows.keep(keep)
                    token_R = token_R[keep]
            logits_RV = decoding.step(token_R)
        rows.report_cut()

    def _begin(self, policy: Policy | Decoder, batch: Batch, pad: int) -> Decoding:
        """Prefill the prompts of a batch."""
        if isinstance(policy, Decoder):
            return SharedPromptDecoding(policy, batch.prompts, batch.group_size)
        kind = CachedDecoding if self._decoding_method == "cached" else UncachedDecoding
        return kind(policy, batch.prompts, batch.group_size, pad)

    def constraint(self, batch: Batch) -> Constraint | None:
        """Return the function that sets the logits of forbidden tokens to -inf; here none.

        It is called with the logits of the next tokens, all responses so far, the rows' indices and
        the token's.
        """
        return None

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


class GrowingRows:
    """The B responses of a batch while they grow; R of them have not left yet.

    ``row_R`` says which row each one is. A row that has ended decodes on until rows are next
    dropped, but nothing of it is kept.
    """

    def __init__(
        self,
        batch: Batch,
        pad: int,
        version: int | None,
        on_finished: OnFinished,
        device: torch.device,
    ) -> None:
        num_rows, limit = len(batch.samples), batch.sampling.max_tokens
        self.iteration, self.pad, self.version = batch.iteration, pad, version
        self.on_finished = on_finished
        self.response_BT = torch.full((num_rows, limit), pad, device=device)
        self.logp_BT = torch.zeros(num_rows, limit, device=device)
        self.length_B = torch.full((num_rows,), limit, device=device)
        self.row_R = torch.arange(num_rows, device=device)
        self.alive_R = torch.ones(num_rows, dtype=torch.bool, device=device)
        self.num_alive = num_rows
        self.unreported = dict(enumerate(batch.indices))
        """Rows that were not reported yet, with their places among all completions."""
        self.candidates = GrowingCandidates(num_rows) if batch.with_candidates else None

    def append(
        self, token: int, token_R: Tensor, logp_R: Tensor, left_RV: Tensor | None = None
    ) -> None:
        """Keep a token, at index ``token``, of each row that is alive, and its candidates."""
        self.response_BT[self.row_R, token] = token_R.where(self.alive_R, self.pad)
        self.logp_BT[self.row_R, token] = logp_R.where(self.alive_R, 0.0)
        if self.candidates is not None:
            assert left_RV is not None
            self.candidates.append(self.row_R[self.alive_R], left_RV[self.alive_R])

    def end(self, token: int, ended_R: Tensor) -> None:
        """End rows with the token at that index."""
        done_R = self.alive_R & ended_R
        self.length_B[self.row_R] = self.length_B[self.row_R].where(~done_R, token + 1)
        self.alive_R = self.alive_R & ~done_R

    def keep(self, rows: Tensor) -> None:
        """Drop all of the R rows but these."""
        self.row_R, self.alive_R = self.row_R[rows], self.alive_R[rows]

    def report_ended(self) -> int:
        """Hand over the rows that have ended since the last call; return how many are alive."""
        before, self.num_alive = self.num_alive, int(self.alive_R.sum())
        if self.num_alive < before:
            self._report(self.row_R[~self.alive_R].tolist(), "stop")
        return self.num_alive

    def report_cut(self) -> None:
        """Hand over what is left: rows that the limit has cut.

        Raises:
            ValueError: if any log-prob of the batch is not finite.
        """
        if not bool(self.logp_BT.isfinite().all()):
            raise ValueError(
                f"policy: its log-probs are not finite in iteration {self.iteration}, so its"
                " weights are broken or its dtype is too coarse; in training resume from the last"
                " checkpoint, with less learning rate"
            )
        self._report(list(self.unreported), "length")

    def _report(self, rows: Sequence[int], reason: FinishReason) -> None:
        rows = [row for row in rows if row in self.unreported]
        if not rows:
            return
        completions = [
            Completion(
                token_ids=self.response_BT[row, :length],
                logps=self.logp_BT[row, :length],
                finish_reason=reason,
                version=self.version,
                candidates=None if self.candidates is None else self.candidates.of(row),
            )
            for row, length in zip(rows, self.length_B[rows].tolist(), strict=True)
        ]
        self.on_finished([self.unreported.pop(row) for row in rows], completions)


def check_every(device: torch.device) -> int:
    """Return after how many tokens to see which rows have ended: it makes the host wait."""
    return 1 if device.type == "cpu" else 16


def batches(requests: Sequence[Request], max_rows: int | None) -> Iterator[Batch]:
    """Yield which rows decode together, at most ``max_rows`` at a time.

    Neighbouring requests of one prompt and one sampling are a group. Groups of one size go
    together, larger ones first; a group above ``max_rows`` is split.
    """
    by_kind: dict[tuple[int, Sampling, int, int, bool], list[PromptRows]] = {}
    index = 0
    for _, group in groupby(
        requests, lambda r: (r.prompt, r.sampling, r.seed, r.iteration, r.with_candidates)
    ):
        neighbours = list(group)
        samples = [sample for request in neighbours for sample in request.samples]
        rows = list(enumerate(samples, start=index))
        index += len(rows)
        first = neighbours[0]
        common = first.sampling, first.seed, first.iteration, first.with_candidates
        kind = (len(rows), *common)
        by_kind.setdefault(kind, []).append((first.prompt, rows))
    for (size, sampling, seed, iteration, with_candidates), groups in sorted(
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
                    with_candidates=with_candidates,
                )


FAILURES = (TorchDynamoException, InductorError, CppCompileError, InvalidCxxCompiler)


_ANNOUNCED: set[str] = set()
"""Functions of this process whose compiling was announced; other engines find them compiled."""


class Compiled:
    """A function compiled by ``torch.compile`` for sizes of any number.

    Call it within ``any_sizes``. ``torch.compile`` loads its compiler, which takes seconds, at the
    first call. Where compilation fails, for want of a C++ compiler for example, the function runs
    as it is from then on, after one warning. Its arguments are then handed to it again.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._call: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function, compiling it first where that is to be."""
        if self._call is None:
            self._call = torch.compile(self._function, dynamic=True)
            name = self._function.__name__.strip("_")
            compiles = self._call is not self._function and not torch._dynamo.config.disable
            if compiles and name not in _ANNOUNCED:
                print(f"compiling {name}, once a process …", file=sys.stderr, flush=True)
                _ANNOUNCED.add(name)
        try:
            return self._call(*args, **options)
        except FAILURES as error:
            warnings.warn(
                f"{self._function.__name__} runs uncompiled, which is slower: torch.compile failed"
                f" with {type(error).__name__} ({first_line(error)})",
                stacklevel=2,
            )
            self._call = self._function
            return self._call(*args, **options)


@contextmanager
def any_sizes() -> Iterator[None]:
    """Let sizes that happen to be equal in a first call be no reason to compile again."""
    with shapes.patch(use_duck_shape=False):  # type: ignore[attr-defined]
        yield
