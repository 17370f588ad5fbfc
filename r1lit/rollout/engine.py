"""Rollout engines: requests in, completions out; and sampling of the next token.

An engine is bound once to a model. Training, evaluation and curation all generate through it:

    engine.bind(ModelSpec(name=..., tokenizer=..., policy=...))
    engine.update_weights(named_tensors, version)      # after the weights changed
    completions = engine.generate(requests)

B rows   T response tokens   V vocabulary   N blocks of the vocabulary, of K tokens each
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from r1lit.batches import Candidates
from r1lit.device import cumulative_sum
from r1lit.errors import check_at_least
from r1lit.policy import Policy
from r1lit.problems import Problem, Transcript, Verdict
from r1lit.seeding import generator

BLOCK = 256  # tokens of the vocabulary whose probabilities are added up together


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of sampling.

    ``temperature`` 0 takes the likeliest token. ``top_p`` 1 and ``top_k`` 0 leave the distribution
    whole, as RL needs. ``stop``, a text or several, ends a response once it has been produced;
    it stays part of it. ``max_tokens`` counts response tokens including EOS.

    Args:
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: sample from the likeliest tokens that together have this probability; 1 takes
            all.
        top_k: sample from that many of the likeliest tokens; 0 takes all.
        max_tokens: the most tokens of a response, EOS included.
        stop: a text or several that end a response; they stay part of it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        check_at_least("temperature", self.temperature, 0, "0 is greedy, 1 samples")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not above 0 and at most 1")
        check_at_least("top_k", self.top_k, 0, "0 keeps every token")
        check_at_least("max_tokens", self.max_tokens, 1)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if any(not s for s in stop):
            raise ValueError(f"stop: {self.stop!r} is not a list of non-empty strings")
        object.__setattr__(self, "stop", stop)  # hashable

    @property
    def cuts(self) -> dict[str, float]:
        """The keys that leave tokens out, with their values."""
        keys = {"top_p": self.top_p < 1, "top_k": self.top_k > 0}
        return {key: getattr(self, key) for key, cut in keys.items() if cut}

    def check_fits(self, prompt_tokens: int, context: int | None) -> None:
        """Check that the longest response fits into the context behind the longest prompt.

        Raises:
            ValueError: naming ``max_tokens`` and how many fit.
        """
        if context is not None and prompt_tokens + self.max_tokens > context:
            raise ValueError(
                f"max_tokens: {self.max_tokens} after a prompt of {prompt_tokens} tokens exceeds"
                f" the policy's context of {context}; at most {context - prompt_tokens} fit"
            )


def sample_tokens(
    logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Sample one token a row by inverting the distribution function at ``uniform_B`` in [0, 1).

    The log-prob returned is that of the whole distribution at the temperature, before top-k and
    top-p, which is what the training forward computes.

    Returns:
        Tokens ``token_B`` and log-probs ``logp_B``.
    """
    logits_BV = logits_BV.float()
    if sampling.temperature == 0:
        token_B = logits_BV.argmax(-1)
    else:
        if sampling.temperature != 1:
            logits_BV = logits_BV / sampling.temperature
        token_B = _inverse_cdf(_mask_top_k_top_p(logits_BV, sampling), uniform_B)
    logp_B = logits_BV.gather(-1, token_B[:, None]).squeeze(-1) - logits_BV.logsumexp(-1)
    return token_B, logp_B


def sample_with_candidates(
    logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample as ``sample_tokens``; return also which tokens top-k and top-p left, ``[B, V]``.

    The log-prob is that among these candidates (DeepSeek-V3.2 2512.02556, "Keep Sampling Mask").
    """
    logits_BV = logits_BV.float()
    if sampling.temperature not in (0, 1):
        logits_BV = logits_BV / sampling.temperature
    logits_BV = _mask_top_k_top_p(logits_BV, sampling)
    token_B = logits_BV.argmax(-1)
    if sampling.temperature:
        token_B = _inverse_cdf(logits_BV, uniform_B)
    logp_B = logits_BV.gather(-1, token_B[:, None]).squeeze(-1) - logits_BV.logsumexp(-1)
    return token_B, logp_B, logits_BV > float("-inf")


def _inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Return the first token at which the distribution function exceeds ``uniform_B``.

    First the block of tokens, then the token within it: only sums of blocks and one block a row
    are added up in float64, and no vocabulary is sorted.
    """
    rows, vocabulary = logits_BV.shape
    weight_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)).exp()
    num_blocks = -(-vocabulary // BLOCK)
    weight_BNK = torch.nn.functional.pad(weight_BV, (0, num_blocks * BLOCK - vocabulary)).view(
        rows, num_blocks, BLOCK
    )
    below_BN = cumulative_sum(weight_BNK.sum(-1).double())
    point_B1 = uniform_B[:, None] * below_BN[:, -1:]
    block_B1 = _first_above(below_BN, point_B1)
    rest_B1 = point_B1 - below_BN.gather(-1, (block_B1 - 1).clamp(min=0)) * (block_B1 > 0)
    within_BK = weight_BNK.gather(1, block_B1[..., None].expand(-1, 1, BLOCK)).squeeze(1)
    token_B1 = _first_above(cumulative_sum(within_BK.double()), rest_B1)
    return (block_B1 * BLOCK + token_B1).squeeze(-1)


def _first_above(below_BN: Tensor, point_B1: Tensor) -> Tensor:
    """Return the index of the first sum above ``point_B1``, or of the last that adds anything."""
    last_B1 = (below_BN < below_BN[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum((below_BN <= point_B1).sum(-1, keepdim=True), last_B1)


def _mask_top_k_top_p(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Set to -inf what top-k, then top-p, leave out. The likeliest token always stays."""
    if sampling.top_k and sampling.top_k < logits_BV.shape[-1]:
        smallest_B1 = logits_BV.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < smallest_B1, float("-inf"))
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(stable=True, dim=-1, descending=True)
        probability_BV = sorted_BV.softmax(-1)
        drop_BV = cumulative_sum(probability_BV) - probability_BV >= sampling.top_p
        drop_BV = torch.zeros_like(drop_BV).scatter(-1, order_BV, drop_BV)
        logits_BV = logits_BV.masked_fill(drop_BV, float("-inf"))
    return logits_BV


UNIFORM_BLOCK = 256


class Uniforms:
    """Serves one number in [0, 1) for each row and token, made in blocks of 256 tokens.

    ``samples`` are the rows' indices within the iteration; a row's numbers depend on its own index
    alone, not on which other rows are there.
    """

    def __init__(
        self, seed: int, iteration: int, samples: Sequence[int], device: torch.device
    ) -> None:
        self._name = (seed, iteration)
        self._samples = samples
        self._device = device
        self._block = -1
        self._block_BT = torch.empty(0)

    def at(self, token: int, rows: Tensor) -> Tensor:
        """Return the numbers for the response token at index ``token`` of ``rows``."""
        if token // UNIFORM_BLOCK != self._block:
            self._block = token // UNIFORM_BLOCK
            seed, iteration = self._name
            numbers = np.stack(
                [
                    generator(seed, "sample", iteration, sample, self._block).random(UNIFORM_BLOCK)
                    for sample in self._samples
                ]
            )
            self._block_BT = torch.from_numpy(numbers).to(self._device)
        return self._block_BT[rows, token % UNIFORM_BLOCK]


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for one completion of ``prompt`` (token ids) for each of ``samples``.

    A completion is a function of its prompt and of (seed, iteration, sample), as far as the engine
    can promise; ``samples`` are the names under which an iteration samples, in any order.
    ``problem`` is what the prompt asks; an engine does not read it. ``with_candidates`` asks for
    ``Completion.candidates``.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    iteration: int = 0
    problem: Problem | None = None
    with_candidates: bool = False


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sample of a request: token ids, log-probs as sampled, finish reason.

    ``token_ids`` (T, long) and ``logps`` (T, float32) hold the response with its end token and
    without padding; they may be views, on any device. ``logps`` are log-probabilities of the
    sampled tokens, log softmax(logits / temperature). ``finish_reason`` is "length" where
    ``max_tokens`` cut the response. ``version`` is that of the weights, where the engine knows it;
    if they changed in the middle of the response, ``version_T`` (int32) has that of each token, and
    ``version`` the first one's. An engine that returns no tokens gives ``text`` and ``num_tokens``
    instead. Of an episode of several turns ``environment_T`` (bool) is true at the tokens that were
    not sampled; their log-probs are 0 and their version is -1. ``verdict`` is one that a checkpoint
    has kept. ``candidates`` are those of each token, where the request asked for them; ``logps``
    are then among them.
    """

    token_ids: Tensor | None = None
    logps: Tensor | None = None
    finish_reason: FinishReason
    version: int | None = None
    version_T: Tensor | None = None
    text: str | None = None
    environment_T: Tensor | None = None
    transcript: Transcript | None = None
    verdict: Verdict | None = None
    candidates: Candidates | None = None
    num_tokens: int = 0
    """Response tokens, the end token included; counted from ``token_ids`` where there are any."""

    def __post_init__(self) -> None:
        assert self.token_ids is not None or self.text is not None, "a completion of nothing"
        if self.token_ids is not None:
            object.__setattr__(self, "num_tokens", len(self.token_ids))
            assert self.logps is None or self.logps.shape == self.token_ids.shape
            assert self.candidates is None or len(self.candidates.num_K) == self.num_tokens
            for values_T in (self.version_T, self.environment_T):
                assert values_T is None or values_T.shape == self.token_ids.shape

    @property
    def finished(self) -> bool:
        """Whether the response ended by itself."""
        return self.finish_reason == "stop"

    @property
    def num_environment_tokens(self) -> int:
        """How many of the tokens were not sampled."""
        return 0 if self.environment_T is None else int(self.environment_T.sum())

    def versions_T(self) -> Tensor:
        """Return the version of the weights behind each token (T, int32); -1 if it is not known."""
        if self.version_T is not None:
            return self.version_T
        version = -1 if self.version is None else self.version
        return torch.full((self.num_tokens,), version, dtype=torch.int32)


OnFinished = Callable[[Sequence[int], Sequence[Completion]], None]
"""Takes indices of completions, counted over all samples of all requests, and the completions."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The model an engine generates from: its name and tokenizer, and its weights if loaded.

    ``config`` is its configuration where weights are not loaded yet, for ``RolloutEngine.check``.
    ``folder`` is the run's, where there is one: what an engine writes goes there. ``turn_end`` is
    the token that ends a turn in the tokenizer's chat template, where prompts are in that.
    """

    name: str
    tokenizer: PreTrainedTokenizerBase
    policy: Policy | None = None
    config: PretrainedConfig | None = None
    folder: Path | None = None
    turn_end: int | None = None

    def end_ids(self) -> tuple[int, ...]:
        """Return the ids of the tokens that end a response.

        These are the tokenizer's EOS and every ``eos_token_id`` of the policy's generation config,
        which may list several (Gemma 3 and Phi-3 end a chat turn with a token of its own), and
        ``turn_end``, which a base model may list nowhere.
        """
        model = getattr(self.policy, "model", None)
        listed = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = list(listed) if isinstance(listed, list | tuple) else [listed]
        ids += [self.tokenizer.eos_token_id, self.turn_end]
        return tuple(sorted({int(i) for i in ids if i is not None}))


class Feed:
    """Requests of one sample each that join a stream under way, added from any thread.

    Args:
        start: the index of the first one's completion, behind those of the stream's own requests.
    """

    def __init__(self, start: int) -> None:
        self._next, self._new = start, list[Request]()
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self.on_change: Callable[[], object] = lambda: None

    def add(self, request: Request) -> int:
        """Have a request generated; return the index of its completion."""
        with self._lock:
            self._new.append(request)
            self._next += 1
            index = self._next - 1
        self.on_change()
        return index

    def end(self, error: BaseException | None = None) -> None:
        """Say that no more will come; with an error, the stream raises it."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
        self.on_change()

    @property
    def over(self) -> bool:
        """Whether all have been taken and no more will come, nor an error."""
        with self._lock:
            return self._ended and not self._new and self._error is None

    def take(self) -> list[Request]:
        """Return those that have come since the last time, in the order of their indices.

        Raises:
            BaseException: that of ``end``.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            taken, self._new = self._new, []
        return taken


class RolloutEngine(ABC):
    """Generates completions. A subclass defines ``generate``."""

    needs_policy = True
    """Whether ``ModelSpec.policy`` must be loaded in this process."""
    returns_tokens: bool = True
    """Whether completions hold token ids and log-probs, which training needs."""
    takes_weights: bool = True
    """Whether ``update_weights`` reaches the sampler, which training needs."""
    whole_distribution: bool = True
    """Whether log-probs are of the whole distribution at the temperature, under top-k and top-p."""
    returns_candidates: bool = False
    """Whether completions have the tokens that top-k and top-p left, where a request asks so."""
    constrained: bool = False
    """Whether it leaves tokens out by a grammar, so that log-probs are not the policy's."""

    shares_weights: bool = False
    """Whether it decodes with the very weights that are trained, in this process."""
    in_background: bool = False
    """Whether ``generate`` may run in a thread of its own while the policy is being updated: it
    reads weights that ``update_weights`` has copied, and nothing of the policy's."""
    in_flight_updates: bool = False
    """Whether ``update_weights`` may be called while ``generate`` runs in another thread: the
    responses under way go on with the new weights, and completions name a version a token."""

    joins: bool = False
    """Whether requests may join others that are being generated, see ``stream_joined``."""
    takes_turns: bool = False
    """Whether it gives its memory up between rollouts, for updates on the same device."""

    model: ModelSpec
    version: int | None = None

    def check(self, model: ModelSpec, prompt_tokens: int, max_tokens: int) -> None:  # noqa: B027
        """Raise a ValueError for what is seen to be wrong before the model's weights are loaded.

        ``prompt_tokens`` are the longest prompt's, and ``max_tokens`` of a response behind it.
        """

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on."""
        self.model = model
        self.version = None

    def expect(self, num_completions: int, max_tokens: int) -> None:  # noqa: B027
        """Learn that no more than these will be generated, once bound: an evaluation's."""

    @abstractmethod
    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions of all requests, request by request, in the order of samples.

        ``on_finished`` may be called with completions as they end, each at most once, from one
        thread at a time, which need not be this one. Engines may never call it.
        """

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Generate, and call ``on_finished`` exactly once with each completion; return none.

        Engines that override it hold only the completions under way in memory.
        """
        left = set(range(sum(len(request.samples) for request in requests)))

        def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            left.difference_update(indices)
            on_finished(indices, completions)

        completions = self.generate(requests, finished)
        rest = sorted(left)
        if rest:
            on_finished(rest, [completions[index] for index in rest])

    def stream_joined(
        self, requests: Sequence[Request], on_finished: OnFinished, feed: Feed
    ) -> None:
        """Do as ``stream``, with the requests that come from ``feed``, until it has ended."""
        raise NotImplementedError(f"{type(self).__name__}: joins is False")

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Generate from these named tensors from now on, and call them ``version``.

        An engine that shares the policy's memory need not read them.
        """
        self.version = version

    def release(self) -> None:  # noqa: B027
        """Give memory up until the next rollout, of an engine that takes turns."""

    def close(self) -> None:  # noqa: B027
        """Let go of what was started for a run; ``bind`` begins again."""

    def describe(self) -> dict[str, Any]:
        """Return the report's entries about this engine."""
        return {"engine": type(self).__name__}


def stream_to_list(
    stream: Callable[[Sequence[Request], OnFinished], None],
    requests: Sequence[Request],
    on_finished: OnFinished | None,
) -> list[Completion]:
    """Return what ``stream`` hands over, in order: ``generate`` of an engine that streams."""
    done: dict[int, Completion] = {}

    def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
        done.update(zip(indices, completions, strict=True))
        if on_finished is not None:
            on_finished(indices, completions)

    stream(requests, finished)
    return [done[index] for index in range(len(done))]


def check_trains(
    engine: RolloutEngine, sampling: Sampling, keep_sampling_mask: bool = False
) -> None:
    """Check that a policy can be trained on what the engine generates.

    Raises:
        ValueError: if completions have no tokens, new weights do not reach the sampler, or
            log-probs would not be those of the policy.
    """
    name, instead = type(engine).__name__, "use r1lit.rollout.InProcessEngine"
    if not engine.returns_tokens:
        raise ValueError(
            f"engine: {name} returns no token ids and log-probs, which training needs; {instead}"
        )
    if not engine.takes_weights:
        raise ValueError(
            f"engine: {name} cannot be given the weights that each update makes, which training"
            f" needs; {instead}"
        )
    if engine.constrained:
        raise ValueError(
            f"engine: {name} leaves tokens out by a schema, so its log-probs are not the policy's:"
            f" it is for r1lit test, validate and predict; in training {instead}"
        )
    for key, value in sampling.cuts.items():
        if keep_sampling_mask and not engine.returns_candidates:
            raise ValueError(
                f"sampling.{key}: {value} leaves tokens out, and {name} does not say which ones, as"
                f" keep_sampling_mask needs; {instead}, or leave it out in training"
            )
        if not engine.whole_distribution:
            raise ValueError(
                f"sampling.{key}: {value} leaves tokens out, and {name} returns"
                " log-probs among the others alone, not the policy's; leave it out in training"
            )


def texts_of(completions: Sequence[Completion], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return what verifiers read of completions: texts without special tokens."""
    texts = []
    for completion in completions:
        text: Any = completion.text
        if completion.transcript is not None:
            text = completion.transcript.text
        if text is None:
            assert completion.token_ids is not None
            text = tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True)
        texts.append(text)
    return texts


def as_tensors(completions: Sequence[Completion]) -> dict[str, Tensor]:
    """Return completions as a few tensors on the CPU, one after the other, for a checkpoint."""
    tokens = [c.token_ids for c in completions if c.token_ids is not None]
    logps = [c.logps for c in completions if c.logps is not None]
    assert len(tokens) == len(logps) == len(completions), "training needs tokens and log-probs"
    records = [_as_json(c.transcript) for c in completions]
    verdicts = [_as_json(c.verdict) for c in completions]
    written = [
        torch.zeros(c.num_tokens, dtype=torch.bool)
        if c.environment_T is None
        else c.environment_T.cpu()
        for c in completions
    ]
    candidates = [c.candidates for c in completions if c.candidates is not None]
    assert len(candidates) in (0, len(completions)), "all have candidates, or none"
    joined = Candidates.joined(candidates) if candidates else None
    return {
        **({} if joined is None else {"candidates": joined.ids_N, "num_candidates": joined.num_K}),
        "environment": torch.cat(written),
        "transcript": torch.tensor(list(b"".join(records)), dtype=torch.uint8),
        "num_bytes": torch.tensor([len(record) for record in records]),
        "verdict": torch.tensor(list(b"".join(verdicts)), dtype=torch.uint8),
        "num_verdict_bytes": torch.tensor([len(verdict) for verdict in verdicts]),
        "token_ids": torch.cat(tokens).int().cpu(),
        "logps": torch.cat(logps).cpu(),
        "num_tokens": torch.tensor([c.num_tokens for c in completions]),
        "finished": torch.tensor([c.finished for c in completions]),
        "version": torch.cat([c.versions_T().cpu() for c in completions]),
    }


def completions_of(packed: Mapping[str, Tensor]) -> list[Completion]:
    """Return what ``as_tensors`` was given."""
    num_tokens = packed["num_tokens"].tolist()
    written: list[Any] = [None] * len(num_tokens)
    records: list[Any] = [None] * len(num_tokens)
    if "transcript" in packed:  # checkpoints of before have none
        parts = packed["environment"].split(num_tokens)
        written = [part if bool(part.any()) else None for part in parts]
        texts = packed["transcript"].split(packed["num_bytes"].tolist())
        records = [_from_json(bytes(text.tolist())) if len(text) else None for text in texts]
    candidates: list[Any] = [None] * len(num_tokens)
    if "candidates" in packed:
        joined = Candidates(ids_N=packed["candidates"], num_K=packed["num_candidates"])
        candidates = list(joined.split(num_tokens))
    verdicts: list[Any] = [None] * len(num_tokens)
    if "verdict" in packed:
        texts = packed["verdict"].split(packed["num_verdict_bytes"].tolist())
        verdicts = [Verdict(**json.loads(bytes(t.tolist()))) if len(t) else None for t in texts]
    return [
        Completion(
            token_ids=token_ids.long(),
            logps=logps,
            finish_reason="stop" if finished else "length",
            version=next((v for v in version_T[:1].tolist() if v >= 0), None),
            version_T=version_T,
            environment_T=environment_T,
            transcript=transcript,
            verdict=verdict,
            candidates=own,
        )
        for token_ids, logps, finished, version_T, environment_T, transcript, verdict, own in zip(
            packed["token_ids"].split(num_tokens),
            packed["logps"].split(num_tokens),
            packed["finished"].tolist(),
            packed["version"].split(num_tokens),
            written,
            records,
            verdicts,
            candidates,
            strict=True,
        )
    ]


def _as_json(value: Transcript | Verdict | None) -> bytes:
    return b"" if value is None else json.dumps(asdict(value)).encode()


def _from_json(text: bytes) -> Transcript:
    values = json.loads(text)
    verdict = values.pop("verdict")
    tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return Transcript(
        **{**values, **tuples}, verdict=None if verdict is None else Verdict(**verdict)
    )
