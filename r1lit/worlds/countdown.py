"""Countdown with three numbers: problems, and the search that solves them.

A problem gives three numbers of 1 to 12 and a target. Every intermediate result is a whole number
of 1 to 99, so all of its arithmetic fits in one table that a small model can learn by heart. What
it cannot learn by heart is which of some thirty attempts reaches the target: that is searched for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator, permutation
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.worlds import russian as wording
from r1lit.worlds.language import PHRASES, Language, check_shares, language_of
from r1lit.worlds.splits import Split, check_split, listed_split

MAX_NUMBER = 12
MAX_RESULT = 99
MIN_TARGET = 10
MIN_ATTEMPTS, MAX_ATTEMPTS = 20, 46
OPERATIONS = "+-*/"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation ``left operation right = result``, the larger number on the left."""

    left: int
    operation: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.operation} {self.right} = {self.result}"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Two steps that use all three numbers: ``second`` combines ``first.result`` with the third."""

    first: Operation
    second: Operation

    @property
    def expression(self) -> str:
        """The attempt as one expression, its first step in parentheses.

        >>> a = Attempt(first=step(5, "+", 3), second=step(8, "*", 7))
        >>> a.expression
        '( 5 + 3 ) * 7'
        """
        inner = f"( {self.first.left} {self.first.operation} {self.first.right} )"
        if self.second.left == self.first.result:
            return f"{inner} {self.second.operation} {self.second.right}"
        return f"{self.second.left} {self.second.operation} {inner}"


def step(a: int, operation: str, b: int) -> Operation | None:
    """Combine two numbers, larger first; ``None`` unless the result is whole and 1 to 99."""
    left, right = max(a, b), min(a, b)
    match operation:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case _:
            result = left // right if left % right == 0 else 0
    if not 1 <= result <= MAX_RESULT:
        return None
    return Operation(left=left, operation=operation, right=right, result=result)


@dataclass(frozen=True, kw_only=True)
class SearchOrder:
    """The order of a search: which pair comes first, and with which operation each pair starts.

    A pair goes round + - * / from its start, so the current pair determines what is still to try.
    """

    pairs: tuple[int, ...] = (0, 1, 2)
    starts: tuple[int, ...] = (0, 0, 0)


def branches(
    numbers: tuple[int, ...], order: SearchOrder | None = None, operations: str = OPERATIONS
) -> Iterator[tuple[Operation, list[Attempt]]]:
    """Yield every first step with the attempts that follow from it, which go + - * /.

    Equal numbers make equal pairs; each is searched once. Other ``operations`` go round likewise.
    """
    order = order or SearchOrder()
    places = list(combinations(range(3), 2))
    seen = set()
    for index in order.pairs:
        i, j = places[index]
        third = numbers[3 - i - j]
        pair = (max(numbers[i], numbers[j]), min(numbers[i], numbers[j]))
        if pair in seen:
            continue
        seen.add(pair)
        for turn in range(len(operations)):
            operation = operations[(order.starts[index] + turn) % len(operations)]
            first = step(pair[0], operation, pair[1])
            if first is None:
                continue
            seconds = [step(first.result, op, third) for op in operations]
            yield first, [Attempt(first=first, second=s) for s in seconds if s is not None]


def targets(
    numbers: tuple[int, ...], min_attempts: int = MIN_ATTEMPTS, max_attempts: int = MAX_ATTEMPTS
) -> list[int]:
    """Return every target that a problem with ``numbers`` may have.

    It is 10 to 99, not itself given, and reached by exactly one of ``min_attempts`` to
    ``max_attempts``: easy targets can be guessed, and what can be guessed needs no thinking.
    """
    results = [a.second.result for _, tries in branches(numbers) for a in tries]
    if not min_attempts <= len(results) <= max_attempts:
        return []
    counts = Counter(results)
    return sorted(t for t, n in counts.items() if n == 1 and t >= MIN_TARGET and t not in numbers)


def number_sets(split: Split, size: int = 3) -> list[tuple[int, ...]]:
    """Return the sets of ``size`` numbers that belong to ``split``.

    The split is by numbers, so a held-out problem shares its numbers with no problem of another
    split: 60 % make the pretraining corpus, 20 % the RL problems, 20 % are held out.
    """
    everything = list(combinations_with_replacement(range(1, MAX_NUMBER + 1), size))
    family = "countdown" if size == 3 else f"countdown-{size}"
    return listed_split(everything, split, family)


def question(numbers: tuple[int, ...], target: int, language: Language = "en") -> str:
    """Return a problem in words."""
    a, b, c = numbers
    if language == "ru":
        return wording.COUNTDOWN.format(a=a, b=b, c=c, target=target)
    if language == "zh":
        return f"用 {a}, {b} 和 {c}, 得到 {target}。"
    return f"Using {a}, {b} and {c}, make {target}."


def first_solution(numbers: tuple[int, ...], target: int) -> str:
    """Return the expression that the unshuffled search finds first."""
    for _, attempts in branches(numbers):
        for attempt in attempts:
            if attempt.second.result == target:
                return attempt.expression
    raise ValueError(f"target: {target} cannot be made from {numbers}")


class WorldCountdown(ProblemSource):
    """Countdown problems of the small world.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        min_attempts: the fewest attempts that a whole search goes through, from 20.
        max_attempts: the most, up to 46: how hard the problems are.
        chinese: the share of questions in Chinese.
        russian: and in Russian, which the shipped base was not trained on.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 512,
        seed: int = 0,
        min_attempts: int = MIN_ATTEMPTS,
        max_attempts: int = MAX_ATTEMPTS,
        chinese: float = 0.0,
        russian: float = 0.0,
    ) -> None:
        check_at_least("min_attempts", min_attempts, MIN_ATTEMPTS)
        check_split(split)
        check_shares(chinese=chinese, russian=russian)
        self.split = split
        self.chinese = chinese
        self.russian = russian
        self.min_attempts = min_attempts
        self.max_attempts = max_attempts
        self.num_problems = num_problems
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition.

        Raises:
            ValueError: if the split holds fewer than ``num_problems``.
        """
        pool = [(n, t) for n in number_sets(self.split) for t in self._targets(n)]
        if not 1 <= self.num_problems <= len(pool):
            raise ValueError(
                f"num_problems: {self.num_problems} is not between 1 and {len(pool)}, the number of"
                f" Countdown problems with {self.min_attempts} to {self.max_attempts} attempts in"
                f" split {self.split!r}"
            )
        order = permutation(len(pool), self.seed, "countdown", self.split)[: self.num_problems]
        return [self._problem(*pool[i]) for i in order]

    def _targets(self, numbers: tuple[int, ...]) -> list[int]:
        return targets(numbers, self.min_attempts, self.max_attempts)

    def _problem(self, numbers: tuple[int, ...], target: int) -> Problem:
        shuffle = generator(self.seed, "shuffle", *numbers, target).permutation(3)
        shown = tuple(numbers[i] for i in shuffle)
        uid = f"countdown-{'-'.join(map(str, numbers))}-{target}"
        language = language_of(uid, self.chinese, self.russian)
        return Problem(
            uid=uid,
            question=question(shown, target, language),
            answer=first_solution(numbers, target),
            source="countdown",
            verifier="countdown",
            meta={
                "numbers": list(shown),
                "target": target,
                "kind": "reasoning",
                "language": language,
            },
        )


SEPARATORS = (".", "。")
"""Ends of a step of a search: a first operation with all that is tried under it, or a remark."""

_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)(:)?(?: ([<>]) (\d+))?")
_GIVEN_UP = tuple(phrase.strip(" .。") for key in ("give up", "guess") for phrase in PHRASES[key])


def first_wrong_step(problem: Problem, steps: Sequence[str]) -> int:
    """Return the index of the first step that can no longer lead to the answer, -1 for none.

    Wrong is a step with a false equation or comparison or numbers that are not there, one that
    leaves out the solution under the operation it begins with, that gives up, or that holds a wrong
    answer. A guess that happens to be right does not mend a search that was given up.

    Args:
        problem: of ``WorldCountdown``.
        steps: of a response, cut at ``SEPARATORS``; joined, they are the response.
    """
    return next((i for i, text in enumerate(steps) if not _may_lead_on(problem, text)), -1)


def _may_lead_on(problem: Problem, text: str) -> bool:
    if any(phrase in text for phrase in _GIVEN_UP):
        return False
    if "</answer>" in text:
        return CountdownVerifier().verify(text, problem).status == "right"
    target = int(problem.meta["target"])
    first, seconds = None, []
    for a, operation, b, result, colon, sign, compared in _EQUATION.findall(text):
        made = step(int(a), operation, int(b))
        if made is None or made.result != int(result) or (operation in "-/" and int(a) < int(b)):
            return False
        if sign and (int(compared), sign) != (target, _sign(made.result, target)):
            return False
        if colon:
            first = made
        else:
            seconds.append(made)
    return first is None or _is_whole(first, seconds, problem, text)


def _sign(result: int, target: int) -> str:
    return "<" if result < target else ">" if result > target else "="


def _is_whole(first: Operation, seconds: list[Operation], problem: Problem, text: str) -> bool:
    """Return whether numbers are the given ones, and the target is found where it can be."""
    left = Counter(problem.meta["numbers"]) - Counter((first.left, first.right))
    if left.total() != 1:
        return False
    third = next(iter(left))
    if any(sorted((s.left, s.right)) != sorted((first.result, third)) for s in seconds):
        return False
    could = {s.result for op in OPERATIONS if (s := step(first.result, op, third))}
    missed = problem.meta["target"] in could - {s.result for s in seconds}
    return not (missed and text.rstrip().endswith(SEPARATORS))  # else it is cut, and may go on
