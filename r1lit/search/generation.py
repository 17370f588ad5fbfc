"""Partial responses, and their continuation by steps within a budget of tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from r1lit.errors import check_at_least
from r1lit.problems import Problem
from r1lit.rollout import Completion, Request, RolloutEngine, Sampling
from r1lit.rollout.request import FinishReason
from r1lit.seeding import name_of


@dataclass(frozen=True, kw_only=True)
class Query:
    """Input of a search: a problem and its prompt (token ids).

    ``sample`` names the random numbers: searches of one query under other names are independent.
    """

    problem: Problem
    prompt: tuple[int, ...]
    sample: int = 0


@dataclass(frozen=True, kw_only=True)
class PartialResponse:
    """A response to a query as far as it has been generated.

    ``token_ids`` hold its end token, if it has one; ``text`` is without special tokens.
    ``finish_reason`` is None while it can go on. ``scores`` are those of its steps so far, the last
    one that of all of it.
    """

    query: Query
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    scores: tuple[float, ...] = ()

    @property
    def finished(self) -> bool:
        """True where the response ended by itself."""
        return self.finish_reason == "stop"

    @property
    def goes_on(self) -> bool:
        """True where another step may follow: no end yet, and tokens left."""
        return self.finish_reason is None

    def with_score(self, score: float) -> PartialResponse:
        """Return this response with the score of its last step."""
        return replace(self, scores=(*self.scores, score))

    def completion(self) -> Completion:
        """Return this response as an engine would; if it could go on, it counts as cut."""
        return Completion(
            token_ids=torch.tensor(self.token_ids, dtype=torch.long),
            finish_reason=self.finish_reason or "length",
        )


def distinct(responses: Sequence[PartialResponse]) -> list[PartialResponse]:
    """Return the responses without repeats, in order."""
    return list({response.token_ids: response for response in responses}.values())


COMPLETIONS_A_SEARCH = 1 << 20  # names that one search has for its samples


@dataclass(frozen=True, kw_only=True)
class Step:
    r"""End of a step of a response.

    Args:
        separator: a text that ends a step and stays part of it; null for none.
        max_tokens: of one step; 1 without a separator makes every token a step. Null: any number.
    """

    separator: str | None = "\n\n"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ValueError("step.separator: it is empty; use null for no separator")
        if self.max_tokens is not None:
            check_at_least("step.max_tokens", self.max_tokens, 1)
        elif self.separator is None:
            raise ValueError(
                "step: neither separator nor max_tokens, so that no step would end; max_tokens: 1"
                " makes every token a step"
            )


class SearchState:
    """Responses and budget of one search; ``counters`` name it among those of a query."""

    def __init__(self, query: Query, token_budget: int | None, *counters: int) -> None:
        self.query = query
        self.token_budget = token_budget
        self.num_tokens = 0
        self._next = name_of(query.sample, *counters, num_bytes=5) * COMPLETIONS_A_SEARCH

    @property
    def left(self) -> int:
        """Number of tokens that the search may still generate."""
        return sys.maxsize if self.token_budget is None else self.token_budget - self.num_tokens

    def start(self) -> PartialResponse:
        """Return the response of no tokens."""
        return PartialResponse(query=self.query)

    def names(self, num_samples: int) -> tuple[int, ...]:
        """Return names for samples, neighbours of each other and new in this search."""
        first = self._next
        self._next += num_samples
        return tuple(range(first, self._next))


@dataclass(frozen=True, kw_only=True)
class StepGenerator:
    """Continues partial responses, those of many searches in one call of the engine."""

    engine: RolloutEngine
    sampling: Sampling
    seed: int

    def finish(
        self, rounds: Iterable[tuple[SearchState, Sequence[PartialResponse]]]
    ) -> list[list[PartialResponse]]:
        """Continue each response to its end, as far as the budgets go; see ``generate``."""
        asked = list(rounds)
        found = [list(starts) for _, starts in asked]
        while True:
            going = [[i for i, r in enumerate(own) if r.goes_on] for own in found]
            generated = self.generate(
                (state, [own[i] for i in indices])
                for (state, _), own, indices in zip(asked, found, going, strict=True)
            )
            if not any(generated):
                break
            for own, indices, continued in zip(found, going, generated, strict=True):
                for i, response in zip(indices, continued, strict=False):  # fewer at a budget's end
                    own[i] = response
        return [
            [r for r, start in zip(own, starts, strict=True) if r.token_ids != start.token_ids]
            for own, (_, starts) in zip(found, asked, strict=True)
        ]

    def generate(
        self,
        rounds: Iterable[tuple[SearchState, Sequence[PartialResponse]]],
        step: Step | None = None,
    ) -> list[list[PartialResponse]]:
        """Continue each response once, in one call of the engine: by a step, or towards its end.

        A response that is to be continued several times stands there as often, side by side: then
        engines read its prefix once. No search exceeds its budget: the responses of a round share
        what is left equally, and one that is cut by its share may go on in a later round. With less
        than a token for each, only the first are continued, by one token.

        Returns:
            For each search its continued responses, in order, fewer where the budget ends.
        """
        asked = list(rounds)
        requests: list[Request] = []
        begun: list[tuple[int, PartialResponse]] = []
        for index, (state, starts) in enumerate(asked):
            admitted = starts[: state.left]
            share = state.left // max(1, len(admitted))
            for _, same in groupby(admitted, key=lambda start: start.token_ids):
                group = list(same)
                requests.append(self._request(state, group[0], len(group), share, step))
                begun += [(index, start) for start in group]
        found: list[list[PartialResponse]] = [[] for _ in asked]
        completions = self.engine.generate(requests) if requests else []
        for (index, start), completion in zip(begun, completions, strict=True):
            asked[index][0].num_tokens += completion.num_tokens
            found[index].append(self._continued(start, completion, step))
        return found

    def _request(
        self, state: SearchState, start: PartialResponse, num: int, share: int, step: Step | None
    ) -> Request:
        most = min(share, self.sampling.max_tokens - len(start.token_ids))
        stop = tuple(self.sampling.stop)
        if start.token_ids:  # prefixes of unlike lengths decode together if their limits are equal
            most = 1 << (most.bit_length() - 1)
        if step is not None:
            most = min(most, step.max_tokens or most)
            stop += () if step.separator is None else (step.separator,)
        return Request(
            prompt=(*state.query.prompt, *start.token_ids),
            samples=state.names(num),
            sampling=replace(self.sampling, max_tokens=most, stop=stop),
            seed=self.seed,
        )

    def _continued(
        self, start: PartialResponse, completion: Completion, step: Step | None
    ) -> PartialResponse:
        assert completion.token_ids is not None, "an engine without tokens is refused before"
        new, model = completion.token_ids.tolist(), self.engine.model
        ids = [*start.token_ids, *new]
        at_end = bool(new) and new[-1] in model.end_ids()
        if self.sampling.stop and not at_end:
            whole = model.tokenizer.decode(ids, skip_special_tokens=False)
            at_end = any(stop in whole for stop in self.sampling.stop)
        if completion.finished and not at_end:  # by the step's separator, or by the engine's rule
            separator = None if step is None else step.separator
            at_end = separator is None or separator not in model.tokenizer.decode(new)
        text: Any = model.tokenizer.decode(ids, skip_special_tokens=True)
        is_cut = len(ids) >= self.sampling.max_tokens
        return replace(
            start,
            token_ids=tuple(ids),
            text=text,
            finish_reason="stop" if at_end else "length" if is_cut else None,
        )
