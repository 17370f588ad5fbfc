"""Simulated written work: searches, calculations, guesses.

All authors write the same arithmetic; they differ in how long they continue. ``effort`` is the
number of attempts or steps after which an author gives up; with ``None`` the author never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from r1lit.worlds.chain import Chain, apply, results
from r1lit.worlds.countdown import MAX_RESULT, Attempt, SearchOrder, branches
from r1lit.worlds.language import Voice

T = TypeVar("T")

OPENINGS = ("", "", "let me try", "let me think", "i look for")
SWITCHES = (
    ("", 0.36),
    ("wait", 0.22),
    ("but", 0.1),
    ("however", 0.1),
    ("wrong", 0.12),
    ("retry", 0.1),
)
CHECKS = ("verify", "check")
SLIPS = ("mistake", "error")
ENGLISH = Voice()
SLIP_RATE = 0.02
NOTICE_RATE = 0.8
CHECK_RATE = 0.3


@dataclass(frozen=True, kw_only=True)
class Work:
    """A text: its ``thinking``, and the ``answer`` at the end."""

    thinking: str
    answer: str


def search(
    numbers: tuple[int, ...],
    target: int,
    effort: int | None,
    rng: np.random.Generator,
    voice: Voice = ENGLISH,
) -> Work:
    """Write a Countdown search: branch by branch until the target is met or effort is spent."""
    order = SearchOrder(
        pairs=tuple(rng.permutation(3).tolist()),
        starts=tuple(rng.choice((0, 2), size=3).tolist()),
    )
    plan = list(branches(numbers, order))
    everything = [attempt for _, attempts in plan for attempt in attempts]
    guess = everything[int(rng.integers(len(everything)))].expression
    if effort == 0:
        return Work(thinking=voice.say(pick(rng, ("", "guess")), rng), answer=guess)
    text = voice.say(pick(rng, OPENINGS), rng).format(target=target)
    tried = 0
    for index, (first, attempts) in enumerate(plan):
        change = weighted(rng, SWITCHES) if index else pick(rng, ("", "try"))
        text += f"{voice.say(change, rng)}{first}: "
        for place, attempt in enumerate(attempts):
            text += ", " * (place > 0) + str(attempt.second)
            tried += 1
            if attempt.second.result == target:
                text += voice.say("yes", rng) + recheck(attempt, rng, voice)
                return Work(thinking=text, answer=attempt.expression)
            text += f" < {target}" if attempt.second.result < target else f" > {target}"
            if tried == effort:
                return Work(thinking=text + voice.say("give up", rng), answer=guess)
        text += ". "
    raise AssertionError((numbers, target))


def recheck(attempt: Attempt, rng: np.random.Generator, voice: Voice) -> str:
    """Write the found attempt once more, sometimes."""
    if rng.random() >= CHECK_RATE and not voice.careful:
        return ""
    return f" {voice.say(pick(rng, CHECKS), rng)}{attempt.first}, {attempt.second}."


def calculate(
    chain: Chain, effort: int | None, rng: np.random.Generator, voice: Voice = ENGLISH
) -> Work:
    """Write a chain's steps. Slips happen; most are noticed soon, checking finds the rest."""
    value, steps = chain
    guess = str(int(rng.integers(1, MAX_RESULT + 1)))
    if effort == 0:
        return Work(thinking=voice.say(pick(rng, ("", "guess")), rng), answer=guess)
    text = voice.say(pick(rng, ("", "", "let me think")), rng)
    for index, (operation, operand) in enumerate(steps):
        text += ", " * (index > 0)
        after = apply(value, operation, operand)
        assert after is not None
        wrong = after + int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
        if rng.random() < SLIP_RATE and 1 <= wrong <= MAX_RESULT:
            text += f"{value} {operation} {operand} = {wrong}, "
            if rng.random() >= NOTICE_RATE and goes_on(wrong, steps[index + 1 :]):
                value = wrong
                text = text.removesuffix(", ")
                continue
            text += voice.say(pick(rng, SLIPS), rng)
        text += f"{value} {operation} {operand} = {after}"
        value = after
        if index + 1 == effort and index + 1 < len(steps):
            return Work(thinking=text + voice.say("give up", rng), answer=guess)
    right = results(chain)[-1]
    if rng.random() < CHECK_RATE or voice.careful:
        line = ", ".join(calculation(chain))
        text += f". {voice.say(pick(rng, CHECKS), rng)}{line}"
        if value != right:
            text += voice.say("was wrong", rng)
        value = right
    return Work(thinking=text + ".", answer=str(value))


def goes_on(value: int, steps: tuple[tuple[str, int], ...]) -> bool:
    """Say whether a wrong ``value`` lets every later step apply, so nobody notices."""
    for operation, operand in steps:
        after = apply(value, operation, operand)
        if after is None:
            return False
        value = after
    return True


def calculation(chain: Chain) -> list[str]:
    """Return every step of a chain, right and in words: ``7 + 5 = 12``."""
    before = [chain[0], *results(chain)]
    return [
        f"{left} {operation} {operand} = {after}"
        for left, (operation, operand), after in zip(before, chain[1], before[1:], strict=False)
    ]


def pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    """Draw one of ``options`` evenly."""
    return options[int(rng.integers(len(options)))]


def weighted(rng: np.random.Generator, options: Sequence[tuple[T, float]]) -> T:
    """Draw one of ``options`` by weight."""
    draw = rng.random() * sum(weight for _, weight in options)
    for option, weight in options:
        draw -= weight
        if draw < 0:
            return option
    return options[-1][0]
