"""Checks of the course's exercises: each prints what is missing, or that the answer is right.

A notebook calls the check of an exercise on the function that the reader wrote. An exercise that
nobody has touched returns nothing, which is said, and the notebook goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from r1lit.metrics import estimates, standard_error
from r1lit.objectives import LeaveOneOut

Answer = Callable[..., Any]


def judge(name: str, cases: Sequence[tuple[str, Any, Any]]) -> None:
    """Print a verdict on cases of (what was asked, the answer, the right one)."""
    for asked, answer, right in cases:
        if answer is None or answer is ...:
            print(f"{name}: not written yet.")
            return
        if not same(answer, right):
            print(
                f"{name}: not yet. {asked} gives {shown(answer)}, and should give {shown(right)}."
            )
            return
    print(f"{name}: right, in {len(cases)} cases.")


def same(answer: Any, right: Any) -> bool:
    """Return whether an answer is right: equal texts, numbers to 1e-5, or rows of these."""
    if isinstance(right, (str, bool)):
        return bool(answer == right)
    if isinstance(right, (int, float)):
        try:
            return math.isclose(float(answer), right, rel_tol=1e-5, abs_tol=1e-6)
        except (TypeError, ValueError):
            return False
    try:
        answers = list(answer)
    except TypeError:
        return False
    return len(answers) == len(right) and all(map(same, answers, right))


def shown(value: Any) -> str:
    """Return an answer as it is printed.

    >>> shown([1 / 3, 2])
    '[0.3333, 2]'
    """
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def leave_one_out(function: Answer) -> None:
    """Check the advantages of one group with the mean of the others as the baseline."""
    groups = [[1.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 0.0], [1.0, 1.0], [0.5, -1.0, 3.0]]
    right = [LeaveOneOut()(torch.tensor([group]))[0].tolist() for group in groups]
    cases = [
        (f"leave_one_out({group})", function(list(group)), advantages)
        for group, advantages in zip(groups, right, strict=True)
    ]
    judge("leave_one_out", cases)


def clipped_gradient(function: Answer) -> None:
    """Check the gradient of PPO's clipped term, away from its kinks, against autograd."""
    cases = []
    for rho, advantage, epsilon in itertools.product(
        (0.05, 0.5, 0.9, 1.0, 1.1, 1.5, 12.0), (1.7, -0.6, 0.0), (0.2, 10.0)
    ):
        leaf = torch.tensor(rho, requires_grad=True)
        clip = leaf.clamp(1 - epsilon, 1 + epsilon)
        torch.minimum(leaf * advantage, clip * advantage).backward()
        assert leaf.grad is not None
        asked = f"clipped_gradient({rho}, {advantage}, {epsilon})"
        cases.append((asked, function(rho, advantage, epsilon), float(leaf.grad)))
    judge("clipped_gradient", cases)


def token_weights(function: Answer) -> None:
    """Check the weight of a token under three ways of averaging a loss."""
    cases = []
    for lengths in ([40, 160], [1, 2, 5]):
        total, num_rows = sum(lengths), len(lengths)
        right = {
            "grpo": [1 / (num_rows * length) for length in lengths],
            "dr_grpo": [1 / (num_rows * 384)] * num_rows,
            "dapo": [1 / total] * num_rows,
        }
        for objective, weights in right.items():
            asked = f"token_weights({lengths}, {objective!r})"
            cases.append((asked, function(list(lengths), objective), weights))
    judge("token_weights", cases)


COUNTED = {
    "3 + 1 = 4, 7: 7 + 4 ~ 10 < 24. I give up.": (1, 0, 0),
    "7 + 1 = 8, 3: 8 + 3 ~ 10 < 24, 8 * 3 ~ 25 ~ 24, yes.": (2, 1, 0),
    "8 * 3 ~ 25 ~ 24, let me verify: 8 * 3 = 24, yes.": (1, 1, 1),
    "9 + 7 ~ 15 ~ 17, wait, 9 + 7 = 16 < 17, 9 - 7 ~ 0 < 17. 9 * 2 = 18, 1: 18 - 1 ~ 15 ~ 17, "
    "check: 18 - 1 = 17, yes.": (3, 2, 2),
    "9 + 7 ~ 15 ~ 17, yes. 9 + 7 = 16": (1, 1, 0),
}
"""Responses, and their attempts, those that seem right, and of these the verified ones."""


def count_attempts(function: Answer) -> None:
    """Check the counts of attempts, near hits and verifications in responses."""
    judge(
        "count_attempts", [(f"{text!r}", function(text), right) for text, right in COUNTED.items()]
    )


def kept_of(function: Answer) -> None:
    """Check the expected number of responses that rejection sampling keeps of a problem."""
    cases = []
    for p, k, m in ((0.5, 4, 1), (0.1, 16, 4), (0.9, 8, 2), (0.0, 4, 1), (1.0, 4, 3)):
        chances = [math.comb(k, c) * p**c * (1 - p) ** (k - c) for c in range(k + 1)]
        right = sum(chance * min(c, m) for c, chance in enumerate(chances))
        cases.append((f"kept_of({p}, {k}, {m})", function(p, k, m), right))
    judge("kept_of", cases)


def bradley_terry(function: Answer) -> None:
    """Check the loss of pairs, also where its exponential would overflow."""
    cases = []
    for chosen, rejected in (([1.0, 0.0], [0.0, 2.0]), ([0.0], [1000.0]), ([1000.0], [0.0])):
        difference = torch.tensor(chosen) - torch.tensor(rejected)
        right = float(-torch.nn.functional.logsigmoid(difference).mean())
        answer = function(torch.tensor(chosen), torch.tensor(rejected))
        cases.append((f"bradley_terry({chosen}, {rejected})", answer, right))
    judge("bradley_terry", cases)


def pass_at_k(function: Answer) -> None:
    """Check the unbiased estimate of pass@k."""
    cases = [
        (f"pass_at_k({n}, {c}, {k})", function(n, c, k), estimates.pass_at_k(n, c, k))
        for n, c, k in ((4, 1, 2), (8, 3, 1), (8, 0, 5), (8, 6, 4), (64, 5, 16))
    ]
    judge("pass_at_k", cases)


def error_over_problems(function: Answer) -> None:
    """Check the standard error over problems, of responses that are right (1) or not (0)."""
    cases = []
    for right in ([[1, 1], [0, 0]], [[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]], [[1], [0], [1]]):
        shares = [sum(row) / len(row) for row in right]
        asked = f"error_over_problems({right})"
        cases.append((asked, function([list(row) for row in right]), standard_error(shares)))
    judge("error_over_problems", cases)
