"""Simulated written work on programs and puzzles: tries, contradictions, drafts, guesses.

As in ``r1lit.worlds.writing``, ``effort`` is the number of tries or drafts after which an author
gives up; with ``None`` the author never does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from r1lit.verifiers.logic import holds
from r1lit.worlds.language import Voice
from r1lit.worlds.programs import SHOWN, LineProgram, calculation, draw_part, split_of
from r1lit.worlds.puzzles import Puzzle, Statement, answer
from r1lit.worlds.writing import (
    CHECK_RATE,
    CHECKS,
    SLIP_RATE,
    SLIPS,
    SWITCHES,
    Work,
    pick,
    weighted,
)

OPENINGS = ("", "", "let me try", "let me think")
FACTORS = range(2, 10)
ASSUMED = (("knave", "knight"), ("骗", "骑"))
TRUTHS = (("false", "true"), ("假", "真"))
CONTRADICTION = (", contradiction", "，矛盾")


def guess(program: LineProgram, rng: np.random.Generator) -> LineProgram:
    """Return a guess: a program of the corpus's split and the right form, with random parts.

    Of a request that names its operations, one of them is mistaken.
    """
    while True:
        if program.form == "examples":
            factor, (operation, n) = int(rng.integers(2, 10)), draw_part(rng)
            parts = [("*", factor), ("-" if operation == "-" else "+", n)]
        else:
            parts = list(program.parts)
            parts[int(rng.integers(len(parts)))] = draw_part(rng)
        other = replace(program, parts=tuple(parts))
        if split_of(other.code) == "corpus":
            return other


def develop(
    program: LineProgram, effort: int | None, rng: np.random.Generator, voice: Voice
) -> Work:
    """Write how somebody comes to a program of the corpus, or gives up and guesses.

    Where there are only examples, factor after factor is tried; elsewhere drafts are written down.
    """
    guessed = guess(program, rng).answer
    if effort == 0:
        return Work(thinking=voice.say(pick(rng, ("", "guess")), rng), answer=guessed)
    text = voice.say(pick(rng, OPENINGS), rng)
    searched = program.form == "examples"
    lines = _tries(program, rng, voice) if searched else _written(program, rng, voice)
    between = ". " if searched else ", "
    if effort is not None and effort < len(lines):
        text += between.join(lines[:effort]) + voice.say("give up", rng)
        return Work(thinking=text, answer=guessed)
    text += between.join(lines) + (voice.say("yes", rng) if searched else ".")
    start = program.given[-1] if searched else SHOWN
    check = calculation(start, program.parts) if program.form in ("steps", "examples") else []
    if check and (rng.random() < CHECK_RATE or voice.careful):
        text += f" {voice.say(pick(rng, CHECKS), rng)}{', '.join(check)}."
    return Work(thinking=text, answer=program.answer)


def _tries(program: LineProgram, rng: np.random.Generator, voice: Voice) -> list[str]:
    """Return the factors tried: the first example gives what to add, the second checks it."""
    first, second, _ = program.given
    start = int(rng.integers(len(FACTORS)))
    lines: list[str] = []
    for turn in range(len(FACTORS)):
        factor = FACTORS[(start + turn) % len(FACTORS)]
        line = voice.say(weighted(rng, SWITCHES) if lines else pick(rng, ("", "try")), rng)
        left, found, wanted = first * factor, program.of(second), program.of(first)
        value = second * factor + wanted - left
        line += f"x * {factor}: {first} * {factor} = {left}, "
        if wanted > left:
            line += f"{wanted} - {left} = {wanted - left}, {second} * {factor} = {second * factor}"
            line += f", {second * factor} + {wanted - left} = {value}"
        elif wanted < left:
            line += f"{left} - {wanted} = {left - wanted}, {second} * {factor} = {second * factor}"
            line += f", {second * factor} - {left - wanted} = {value}"
        else:
            line += f"{second} * {factor} = {value}"
        if value == found:
            return [*lines, line]
        lines.append(f"{line} {'<' if value < found else '>'} {found}")
    raise AssertionError(program)


def _written(program: LineProgram, rng: np.random.Generator, voice: Voice) -> list[str]:
    """Return the drafts; now and then parentheses are forgotten, which is noticed at once."""
    lines = []
    for draft in program.drafts:
        bare = draft.replace("( ", "").replace(" )", "")
        slips = bare != draft and rng.random() < SLIP_RATE
        lines.append(f"{bare}, {voice.say(pick(rng, SLIPS), rng)}{draft}" if slips else draft)
    return lines


def solve(
    puzzle: Puzzle, names: list[str], effort: int | None, rng: np.random.Generator, voice: Voice
) -> Work:
    """Write a search: assignment by assignment, each until a statement contradicts it."""
    zh = voice.language == "zh"
    gap, comma, colon = ("", "，", "：") if zh else (" ", ", ", ": ")
    first = tuple((rng.random(len(puzzle)) < 0.5).tolist())
    turns = product((False, True), repeat=len(puzzle))
    plan = [tuple(a != b for a, b in zip(first, turn, strict=True)) for turn in turns]
    guess = answer(plan[int(rng.integers(len(plan)))], names, voice.language)
    if effort == 0:
        return Work(thinking=voice.say(pick(rng, ("", "guess")), rng), answer=guess)
    text = voice.say(pick(rng, OPENINGS), rng)
    for tried, knights in enumerate(plan, start=1):
        text += voice.say(weighted(rng, SWITCHES) if tried > 1 else pick(rng, ("", "try")), rng)
        assumed = [f"{n}{gap}{ASSUMED[zh][k]}" for n, k in zip(names, knights, strict=True)]
        truths = [holds(statement, knights) for statement in puzzle]
        wrong = [truth != knight for truth, knight in zip(truths, knights, strict=True)]
        seen = truths[: wrong.index(True) + 1] if any(wrong) else truths
        words = [TRUTHS[zh][truth] for truth in seen]
        checked = comma.join(
            f"{person}{colon}{gap.join((*_compared(statement, names, knights, zh), word))}"
            for person, statement, word in zip(assumed, puzzle, words, strict=False)
        )
        text += f"{comma.join(assumed)}{colon}{checked}"
        if not any(wrong):
            text += voice.say("yes", rng)
            if rng.random() < CHECK_RATE or voice.careful:
                text += f" {voice.say(pick(rng, CHECKS), rng)}{checked}."
            return Work(thinking=text, answer=answer(knights, names, voice.language))
        text += CONTRADICTION[zh]
        if tried == effort:
            return Work(thinking=text + voice.say("give up", rng), answer=guess)
        text += ". "
    raise AssertionError(puzzle)


def _compared(
    statement: Statement, names: list[str], knights: tuple[bool, ...], zh: bool
) -> tuple[str, ...]:
    """Return a statement's claim and its assumptions side by side, one glance each.

    Without them a small model learns the form of a search and not whether a statement is true.
    """
    kind, *places = statement
    if kind == "number":
        return (f"{places[0]} {sum(knights)}",)
    assumed = [(names[i], ASSUMED[zh][knights[i]]) for i in places]
    if kind == "same":
        return (*assumed[0], *assumed[1])
    (name, fact), claimed = assumed[0], ASSUMED[zh][kind == "knight"]
    return name, claimed, fact
