"""Rollout engines: requests in, completions out.

An engine is bound once to a model. Training, evaluation and curation all generate through it:

    engine.bind(ModelSpec(name=..., tokenizer=..., policy=...))
    engine.update_weights(named_tensors, version)      # after the weights changed
    completions = engine.generate(requests)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from r1lit.policy import Policy
from r1lit.rollout.feed import RequestFeed
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


Runs = Literal["alone", "beside updates", "through updates", "in turns"]
"""When an engine may generate; see ``Capabilities``."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The abilities of an engine, which are asked before anything is generated.

    Attributes:
        tokens: whether completions hold token ids and log-probs, which training needs.
        needs_policy: whether ``ModelSpec.policy`` must be loaded in this process.
        weights: ``shared``, the engine decodes with the very weights that are trained, in this
            process; ``copied``, ``update_weights`` brings it new ones; ``fixed``, nothing does.
        log_probs: under top-k and top-p, those of the ``whole`` distribution at the temperature, or
            among the tokens that were ``kept`` alone; ``whole or kept``: completions name the kept
            tokens too, where a request asks so; ``constrained``: a grammar leaves tokens out, so
            they are never the policy's.
        runs: ``alone``, no update is made while it generates; ``beside updates``, it may generate
            in a thread of its own, from weights that ``update_weights`` has copied; ``through
            updates``, it may be given new weights meanwhile, so that completions name a version a
            token; ``in turns``, it gives its memory up between rollouts, for updates on the same
            device.
    """

    tokens: bool = True
    needs_policy: bool = True
    weights: Literal["shared", "copied", "fixed"] = "copied"
    log_probs: Literal["whole", "whole or kept", "kept", "constrained"] = "whole"
    runs: Runs = "alone"

    @property
    def in_background(self) -> bool:
        """True where the engine may generate while the policy is being updated."""
        return self.runs in ("beside updates", "through updates")


class RolloutEngine(ABC):
    """Generates completions. A subclass defines ``generate``, and says what it can do."""

    capabilities: Capabilities = Capabilities()
    model: ModelSpec
    version: int | None = None

    @classmethod
    def server_share(cls, options: Mapping[str, Any]) -> float | None:
        """Return the share of the trainer's GPU that a server takes, of an engine of ``options``.

        None where it generates in this process; 0 for servers elsewhere.
        """
        return None

    def check(self, model: ModelSpec, prompt_tokens: int, max_tokens: int) -> None:  # noqa: B027
        """Raise a ValueError for what is seen to be wrong before the model's weights are loaded.

        ``prompt_tokens`` are the longest prompt's, and ``max_tokens`` of a response behind it.
        """

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on."""
        self.model = model
        self.version = None

    def expect_at_most(self, num_completions: int, max_tokens: int) -> None:  # noqa: B027
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


class JoiningEngine(RolloutEngine):
    """An engine that takes requests while it generates others, so that no episode waits."""

    @abstractmethod
    def stream_joined(
        self, requests: Sequence[Request], on_finished: OnFinished, feed: RequestFeed
    ) -> None:
        """Generate as ``stream`` does, with the requests that ``feed`` brings, until its end."""


def stream_to_list(
    stream: Callable[[Sequence[Request], OnFinished], None],
    requests: Sequence[Request],
    on_finished: OnFinished | None,
) -> list[Completion]:
    """Return the completions of ``stream``, in order: ``generate`` of an engine that streams."""
    done: dict[int, Completion] = {}

    def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
        done.update(zip(indices, completions, strict=True))
        if on_finished is not None:
            on_finished(indices, completions)

    stream(requests, finished)
    return [done[index] for index in range(len(done))]
