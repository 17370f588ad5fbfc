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

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Generation
from r1lit.policy import Policy
from r1lit.rollout.in_process import InProcessEngine
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
    policy: Policy | None = None


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
        self._engine = InProcessEngine(max_rows=max_rows, compile=compile)

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
            told = _Told(source.tokenizer, indices, finished)
            generation = self._engine.generate(
                source.policy,
                source.tokenizer,
                [requests[i].prompt for i in indices[::group_size]],
                group_size=group_size,
                sampling=sampling,
                seed=seed,
                iteration=iteration,
                samples=[requests[i].sample for i in indices],
                on_end=told.on_end,
            )
            if not bool(generation.logp_BT.isfinite().all()):
                raise ValueError(
                    "policy: its log-probs are not finite, so its weights are broken or its dtype"
                    " is too coarse"
                )
            told.rest(generation)

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


class _Told:
    """Hands each row of one call over as a ``Draw``, once."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, indices: Sequence[int], finished: Finished
    ) -> None:
        self._tokenizer = tokenizer
        self._finished = finished
        self._left = dict(enumerate(indices))

    def on_end(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Hand over rows that have finished."""
        for row, said in zip(rows, tokens, strict=True):
            self._hand_over(row, said, ended=True)

    def rest(self, generation: Generation) -> None:
        """Hand over the rows that were cut."""
        for row in list(self._left):
            said = generation.response_BT[row][generation.mask_BT[row]].tolist()
            self._hand_over(row, said, ended=bool(generation.finished_B[row]))

    def _hand_over(self, row: int, tokens: Sequence[int], *, ended: bool) -> None:
        text = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        assert isinstance(text, str)
        draw = Draw(text=text, num_tokens=len(tokens), finished=ended)
        self._finished(self._left.pop(row), draw)
