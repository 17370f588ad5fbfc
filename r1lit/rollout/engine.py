"""The interface of rollout engines: requests in, completions out.

An engine is bound once to a model. Training, evaluation and curation all generate through it:

    engine.bind(ModelSpec(name=..., tokenizer=..., policy=...))
    engine.update_weights(named_tensors, version)      # after the weights changed
    completions = engine.generate(requests)

T response tokens
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from r1lit.policy import Policy
from r1lit.problems import Problem, Transcript, Verdict
from r1lit.rollout.sampling import Sampling

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for one completion of ``prompt`` (token ids) for each of ``samples``.

    A completion is a function of its prompt and of (seed, iteration, sample), as far as the engine
    can promise; ``samples`` are the names under which an iteration samples, in any order.
    ``problem`` is what the prompt asks; an engine does not read it.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    iteration: int = 0
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What an engine returns for one sample of a request.

    ``token_ids`` (T, long) and ``logps`` (T, float32) hold the response with its end token and
    without padding; they may be views, on any device. ``logps`` are log-probabilities of the
    sampled tokens, log softmax(logits / temperature). ``finish_reason`` is "length" where
    ``max_tokens`` cut the response. ``version`` is that of the weights, where the engine knows it;
    if they changed in the middle of the response, ``version_T`` (int32) has that of each token, and
    ``version`` the first one's. An engine that returns no tokens gives ``text`` and ``num_tokens``
    instead. Of an episode of several turns ``environment_T`` (bool) is true at the tokens that were
    not sampled; their log-probs are 0 and their version is -1.
    """

    token_ids: Tensor | None = None
    logps: Tensor | None = None
    finish_reason: FinishReason
    version: int | None = None
    version_T: Tensor | None = None
    text: str | None = None
    environment_T: Tensor | None = None
    transcript: Transcript | None = None
    num_tokens: int = 0
    """Response tokens, the end token included; counted from ``token_ids`` where there are any."""

    def __post_init__(self) -> None:
        assert self.token_ids is not None or self.text is not None, "a completion of nothing"
        if self.token_ids is not None:
            object.__setattr__(self, "num_tokens", len(self.token_ids))
            assert self.logps is None or self.logps.shape == self.token_ids.shape
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

    shares_weights: bool = False
    """Whether it decodes with the very weights that are trained, in this process."""
    in_background: bool = False
    """Whether ``generate`` may run in a thread of its own while the policy is being updated: it
    reads weights that ``update_weights`` has copied, and nothing of the policy's."""
    in_flight_updates: bool = False
    """Whether ``update_weights`` may be called while ``generate`` runs in another thread: the
    responses under way go on with the new weights, and completions name a version a token."""

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

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Generate from these named tensors from now on, and call them ``version``.

        An engine that shares the policy's memory need not read them.
        """
        self.version = version

    def close(self) -> None:  # noqa: B027
        """Let go of what was started for a run; ``bind`` begins again."""

    def describe(self) -> dict[str, Any]:
        """Return the report's entries about this engine."""
        return {"engine": type(self).__name__}


def collect(
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


def check_trains(engine: RolloutEngine, sampling: Sampling) -> None:
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
    for key, cut in (("top_p", sampling.top_p < 1), ("top_k", sampling.top_k > 0)):
        if cut and not engine.whole_distribution:
            raise ValueError(
                f"sampling.{key}: {getattr(sampling, key)} leaves tokens out, and {name} returns"
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
    records = [b"" if c.transcript is None else _as_json(c.transcript) for c in completions]
    written = [
        torch.zeros(c.num_tokens, dtype=torch.bool)
        if c.environment_T is None
        else c.environment_T.cpu()
        for c in completions
    ]
    return {
        "environment": torch.cat(written),
        "transcript": torch.tensor(list(b"".join(records)), dtype=torch.uint8),
        "num_bytes": torch.tensor([len(record) for record in records]),
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
    return [
        Completion(
            token_ids=token_ids.long(),
            logps=logps,
            finish_reason="stop" if finished else "length",
            version=next((v for v in version_T[:1].tolist() if v >= 0), None),
            version_T=version_T,
            environment_T=environment_T,
            transcript=transcript,
        )
        for token_ids, logps, finished, version_T, environment_T, transcript in zip(
            packed["token_ids"].split(num_tokens),
            packed["logps"].split(num_tokens),
            packed["finished"].tolist(),
            packed["version"].split(num_tokens),
            written,
            records,
            strict=True,
        )
    ]


def _as_json(transcript: Transcript) -> bytes:
    return json.dumps(asdict(transcript)).encode()


def _from_json(text: bytes) -> Transcript:
    values = json.loads(text)
    verdict = values.pop("verdict")
    tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return Transcript(
        **{**values, **tuples}, verdict=None if verdict is None else Verdict(**verdict)
    )
