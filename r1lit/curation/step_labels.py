"""Labels of steps from completions: the rate at which the work so far leads to a right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from r1lit.batches import Problem
from r1lit.errors import check_at_least
from r1lit.files import Record
from r1lit.rollout import Completion, Request, RolloutEngine, Sampling
from r1lit.text.scored_text import cut_steps, pieces, step_ends, token_places
from r1lit.verifiers import Grader


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A response to be labelled: its problem, prompt and tokens, and whether it is right.

    ``token_ids`` may end in an end token, which no completion starts from.
    """

    problem: Problem
    prompt: tuple[int, ...]
    token_ids: tuple[int, ...]
    is_right: bool


@dataclass(frozen=True, kw_only=True)
class CutSolution:
    """A solution's text, cut into steps, and how many of its tokens each step ends behind."""

    text: str
    steps: tuple[str, ...]
    num_tokens: tuple[int, ...]


def cut_solution(
    engine: RolloutEngine, solution: Solution, separators: Sequence[str]
) -> CutSolution:
    """Return a solution's steps, as text and as tokens of the engine's model."""
    tokenizer = engine.model.tokenizer
    decode = cast(Callable[[list[int]], str], partial(tokenizer.decode, skip_special_tokens=True))
    texts = pieces(decode, solution.token_ids)
    text = "".join(texts)
    places = token_places(texts, step_ends(text, separators)) if texts else []
    return CutSolution(
        text=text,
        steps=tuple(cut_steps(text, separators)),
        num_tokens=tuple(place + 1 for place in places),
    )


def monte_carlo_labels(
    engine: RolloutEngine,
    solutions: Sequence[Solution],
    *,
    separators: Sequence[str],
    sampling: Sampling,
    grader: Grader,
    num_completions: int,
    seed: int = 0,
    first_sample: int = 0,
) -> list[list[int]]:
    """Return how many of the completions from the end of each step are right (2312.08935, §3.3.2).

    Math-Shepherd's soft label is that number over ``num_completions``, its hard label whether it is
    above 0. Nothing follows the last step of a solution: its completions are all the solution
    itself. All completions are generated in one call of the engine, which returns tokens; a step's
    completions share its prefix.

    Args:
        engine: bound to the model that completes, and its tokenizer.
        solutions: with tokens of that tokenizer.
        separators: what ends a step.
        sampling: of completions; ``max_tokens`` are a completion's own.
        grader: decides about prefix and completion together.
        num_completions: N, from each step.
        seed: of the completions.
        first_sample: names the first completion of a step: with N more, other ones are generated.
    """
    check_at_least("num_completions", num_completions, 1)
    if not engine.capabilities.tokens:
        raise ValueError(
            f"engine: {type(engine).__name__} returns no token ids, by which steps are continued;"
            " use r1lit.rollout.InProcessEngine or VLLMEngine"
        )
    cut = [cut_solution(engine, solution, separators) for solution in solutions]
    starts = [(i, end) for i, own in enumerate(cut) for end in own.num_tokens[:-1]]
    requests = [
        Request(
            prompt=(*solutions[i].prompt, *solutions[i].token_ids[:end]),
            samples=_names(i, end, first_sample, num_completions),
            sampling=sampling,
            seed=seed,
        )
        for i, end in starts
    ]
    completions = iter(engine.generate(requests) if requests else [])
    texts, problems = [], []
    for i, end in starts:
        prefix = solutions[i].token_ids[:end]
        texts += list(_texts(engine, prefix, completions, num_completions))
        problems += [solutions[i].problem] * num_completions
    verdicts = iter(grader.verdicts(texts, problems))
    counts: list[list[int]] = []
    for solution, own in zip(solutions, cut, strict=True):
        counts.append([])
        for _ in own.num_tokens[:-1]:
            right = [next(verdicts).status == "right" for _ in range(num_completions)]
            counts[-1].append(sum(right))
        counts[-1] += [num_completions * solution.is_right] * bool(own.num_tokens)
    return counts


def _names(solution: int, end: int, first: int, num: int) -> tuple[int, ...]:
    """Return names of samples that no other step has, so that no two share their random numbers."""
    start = (solution << 40) + (end << 24) + first
    return tuple(range(start, start + num))


def _texts(
    engine: RolloutEngine, prefix: Sequence[int], completions: Iterator[Completion], num: int
) -> Iterator[str]:
    for _ in range(num):
        ids = next(completions).token_ids
        assert ids is not None, "an engine without tokens is refused before"
        yield str(engine.model.tokenizer.decode([*prefix, *ids.tolist()], skip_special_tokens=True))


def labelled(
    solution: Solution, steps: Sequence[str], right: Sequence[int], num_completions: int
) -> Record:
    """Return a row for ``r1lit.data.TableSteps`` with ``joined_by: ""``: soft labels by step."""
    return {
        "problem": solution.problem.question,
        "uid": solution.problem.uid,
        "steps": list(steps),
        "label": [count / num_completions for count in right],
        "is_right": solution.is_right,
    }
