"""How an evaluation makes responses: an engine's samples, or what searches over it find."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from r1lit.problems import Problem
from r1lit.rollout import Completion, Request, RolloutEngine, Sampling
from r1lit.search import Query, Search

SAMPLES_A_PROBLEM = 1 << 16
SEARCHES = 64
"""How many searches go together; those of an interrupted command are made again."""
Summaries = Sequence[Mapping[str, float] | None]
OnFound = Callable[[Sequence[int], Sequence[Completion], Summaries], None]
"""Takes indices of queries, their responses, and the numbers of the searches if any."""


def stream_responses(
    queries: Sequence[Query],
    *,
    engine: RolloutEngine,
    search: Search | None,
    sampling: Sampling,
    seed: int,
    on_found: OnFound,
) -> None:
    """Make one response a query, and call ``on_found`` once with each."""
    if search is None:
        groups = (list(own) for _, own in groupby(queries, key=lambda query: query.problem.uid))
        engine.stream(
            [
                Request(
                    prompt=own[0].prompt,
                    samples=tuple(query.sample for query in own),
                    sampling=sampling,
                    seed=seed,
                )
                for own in groups
            ],
            lambda indices, completions: on_found(indices, completions, [None] * len(indices)),
        )
        return
    for start in range(0, len(queries), SEARCHES):
        results = search.run(queries[start : start + SEARCHES], engine, sampling, seed)
        on_found(
            range(start, start + len(results)),
            [result.chosen.response.completion() for result in results],
            [result.summary() for result in results],
        )


def sample_name(problem: Problem, g: int) -> int:
    """Return a sample index unique to problem and ``g``, whatever other problems there are."""
    digest = hashlib.blake2b(problem.uid.encode(), digest_size=5).digest()
    return int.from_bytes(digest, "big") * SAMPLES_A_PROBLEM + g
