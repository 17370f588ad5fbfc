"""Authors of the small world with given behaviours, and the exact accuracy that these give.

An author tries the attempts of a problem in their order. After a failed attempt the author goes on
with probability ``go_on``, else gives up and guesses. An attempt that seems right by its estimate
is verified with probability ``verify``, else it is claimed, rightly or not.
"""

from __future__ import annotations

import numpy as np

from r1lit.metrics import mean
from r1lit.problems import Problem
from r1lit.worlds.search_corpus import SLIP_RATE, Habits, about, places, write


def exact_accuracy(problem: Problem, go_on: float, verify: float) -> float:
    """Return the probability that an author answers a problem of ``WorldSearch`` right.

    A sum over the attempts, without sampling. ``here`` is the probability of coming to an attempt.
    """
    target = problem.meta["target"]
    results = [p.attempt.second.result for p in places(tuple(problem.meta["numbers"]))]
    here, right, given_up = 1.0, 0.0, 0.0
    for result in results:
        slips = about(result) + 5, max(0, about(result) - 5)  # one estimate in fifty is off by five
        seems = (1 - SLIP_RATE) * (about(result) == about(target))
        seems += sum(SLIP_RATE / 2 for slip in slips if slip == about(target))
        if result == target:
            right += here * seems
        given_up += here * (1 - seems) * (1 - go_on)
        here *= (1 - seems) * go_on + (0.0 if result == target else seems * verify)
    guess = mean([float(result == target) for result in results])
    return (right + given_up * guess) / (1 - here)  # who comes to the end begins again


def written_accuracy(
    problem: Problem, go_on: float, verify: float, num_responses: int = 400, seed: int = 0
) -> float:
    """Return the share of right responses among ``num_responses`` that an author writes."""
    search, random = places(tuple(problem.meta["numbers"])), np.random.default_rng(seed)
    target, right = problem.meta["target"], 0
    for _ in range(num_responses):
        post = write(search, target, Habits(go_on=go_on, check=verify), random)
        claimed = post.claimed or search[int(random.integers(len(search)))]
        right += claimed.attempt.second.result == target
    return right / num_responses
