"""Rollout engines: requests in, completions out.

An engine is bound once to a model. Training, evaluation and curation all generate through it:

    engine.bind(ModelSpec(name=..., tokenizer=..., policy=...))
    engine.update_weights(named_tensors, version)      # after the weights changed
    completions = engine.generate(requests)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from r1lit.policy import Policy
from r1lit.rollout.feed import Feed
from r1lit.rollout.request import Completion, OnFinished, Request


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
