"""Responses as text, one by one as they finish: what evaluation draws from.

A ``RolloutEngine`` returns tensors once all rows are done, which is what training needs. A
``TextEngine`` hands over each response when it ends, so that it is judged and on disk while others
still decode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1lit.batches import Generation
from r1lit.rollout.in_process import InProcessEngine, Stopper
from r1lit.rollout.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Request:
    """One response to draw: the prompt's token ids, and the name of the sample."""

    prompt: tuple[int, ...]
    sample: int


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A response as text. ``num_tokens`` counts EOS; ``finished`` is false at the token limit."""

    text: str
    num_tokens: int
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Source:
    """What responses are drawn from: a policy by name, its tokenizer, and its weights if loaded."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    policy: PreTrainedModel | None = None


Finished = Callable[[int, Draw], None]


class TextEngine(ABC):
    """Draws responses and hands each over as it ends."""

    needs_policy = True
    """Whether ``Source.policy`` must be loaded in this process."""

    @abstractmethod
    def draw(
        self,
        source: Source,
        requests: Sequence[Request],
        *,
        sampling: Sampling,
        seed: int,
        iteration: int,
        finished: Finished,
    ) -> None:
        """Draw one response a request, and call ``finished(index, draw)`` for each, in any order.

        A response is a function of (seed, iteration, sample) and of its prompt, as far as the
        engine can promise. ``finished`` is called from one thread at a time, not always this one.
        """

    def describe(self) -> dict[str, Any]:
        """Return what a table should say about this engine."""
        return {"engine": type(self).__name__}


class PolicyEngine(TextEngine):
    """The policy in this process, through ``InProcessEngine``.

    Args:
        max_rows: how many responses decode at a time (None: all of them); bounds the memory of
            their keys and values, and changes no response.
        compile: whether to compile decoder layers; see ``InProcessEngine``.
    """

    def __init__(self, max_rows: int | None = 256, compile: bool = True) -> None:
        self._engine = _Reporting(max_rows=max_rows, compile=compile)

    def draw(
        self,
        source: Source,
        requests: Sequence[Request],
        *,
        sampling: Sampling,
        seed: int,
        iteration: int,
        finished: Finished,
    ) -> None:
        """Draw from ``source.policy``; see ``TextEngine.draw``.

        Raises:
            ValueError: if the policy's log-probs are not finite: its weights are broken.
        """
        assert source.policy is not None, "the in-process engine needs a loaded policy"
        for indices, group_size in self._calls(requests):
            rows = dict(zip((requests[i].sample for i in indices), indices, strict=True))

            def report(
                sample: int, tokens: list[int], ended: bool, rows: dict[int, int] = rows
            ) -> None:
                text = source.tokenizer.decode(tokens, skip_special_tokens=True)
                assert isinstance(text, str)
                finished(rows.pop(sample), Draw(text=text, num_tokens=len(tokens), finished=ended))

            self._engine.report = report
            generation = self._engine.generate(
                source.policy,
                source.tokenizer,
                [requests[i].prompt for i in indices[::group_size]],
                group_size=group_size,
                sampling=sampling,
                seed=seed,
                iteration=iteration,
                samples=[requests[i].sample for i in indices],
            )
            self._report_cut(generation, [requests[i].sample for i in indices], rows, report)

    def _report_cut(
        self,
        generation: Generation,
        samples: Sequence[int],
        left: dict[int, int],
        report: Callable[[int, list[int], bool], None],
    ) -> None:
        if not bool(generation.logp_BT.isfinite().all()):
            raise ValueError(
                "policy: its log-probs are not finite, so its weights are broken or its dtype is"
                " too coarse"
            )
        for row, sample in enumerate(samples):
            if sample in left:
                tokens = generation.response_BT[row][generation.mask_BT[row]].tolist()
                report(sample, tokens, bool(generation.finished_B[row]))

    def _calls(self, requests: Sequence[Request]) -> Iterator[tuple[list[int], int]]:
        """Yield the requests of each call of the engine, prompt-major, with their group size.

        Neighbours with the same prompt are a group; groups of a size go together, as many as the
        engine decodes at a time.
        """
        by_size: dict[int, list[list[int]]] = {}
        order = range(len(requests))
        for _, group in groupby(order, key=lambda i: requests[i].prompt):
            indices = list(group)
            by_size.setdefault(len(indices), []).append(indices)
        for size, groups in sorted(by_size.items(), reverse=True):
            limit = self._engine.max_rows
            together = len(groups) if limit is None else max(1, limit // size)
            for start in range(0, len(groups), together):
                yield [i for group in groups[start : start + together] for i in group], size


class _Reporting(InProcessEngine):
    """Calls ``report(sample, tokens, True)`` at the token that ends a response."""

    report: Callable[[int, list[int], bool], None]

    def stopper(
        self, tokenizer: PreTrainedTokenizerBase, sampling: Sampling, samples: Sequence[int]
    ) -> Stopper:
        """Return the engine's own stopper, which reports what it ends."""
        ends = super().stopper(tokenizer, sampling, samples)

        def ended(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> torch.Tensor:
            done_R = ends(token_R, response_BT, rows, token)
            for row in rows[done_R].tolist():
                self.report(samples[row], response_BT[row, : token + 1].tolist(), True)
            return done_R

        return ended
