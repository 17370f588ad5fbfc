"""Knights and knaves: puzzles with exactly one solution, and their verifier.

A knight says only what is true, a knave only what is false. A statement is a nested list, plain
JSON, over the inhabitants' places 0 … n-1:

    ["knight", i]   ["knave", i]   ["not", s]   ["and", s, …]   ["or", s, …]
    ["if", s, t]    ["same", i, j]   ["number", k]   exactly k of them are knights
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from r1lit.errors import check_between
from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final
from r1lit.verifiers.base import Verifier, conclude

NAMES = (
    "Alice", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack",
)  # fmt: skip
MAX_INHABITANTS = len(NAMES)
_ATTEMPTS = 10_000
_SIZES = {"knight": 1, "knave": 1, "not": 1, "if": 2, "same": 2, "number": 1}

Statement = Sequence[Any]


def holds(statement: Statement, knights: Sequence[bool]) -> bool:
    """Decide whether a statement is true; ``knights[i]`` is true if inhabitant i is a knight.

    >>> holds(["and", ["knight", 0], ["knave", 1]], [True, False])
    True

    Raises:
        ValueError: if it is no statement about these inhabitants.
    """
    kind, parts = _checked(statement)
    if kind in ("knight", "knave", "same"):
        if not all(type(i) is int and 0 <= i < len(knights) for i in parts):
            raise ValueError(f"statements: {statement!r} names none of {len(knights)} inhabitants")
        if kind == "same":
            return knights[parts[0]] == knights[parts[1]]
        return knights[parts[0]] == (kind == "knight")
    if kind == "number":
        return sum(knights) == parts[0]
    values = [holds(part, knights) for part in parts]
    if kind == "not":
        return not values[0]
    if kind == "if":
        return not values[0] or values[1]
    return all(values) if kind == "and" else any(values)


def _checked(statement: Statement) -> tuple[str, list[Any]]:
    if not isinstance(statement, list | tuple) or not statement:
        raise ValueError(f"statements: {statement!r} is no statement")
    kind, parts = statement[0], list(statement[1:])
    if kind in ("and", "or"):
        fine = len(parts) >= 2
    else:
        fine = isinstance(kind, str) and len(parts) == _SIZES.get(kind)
    if not fine:
        raise ValueError(f"statements: {statement!r} is no statement")
    return kind, parts


def broken(statements: Sequence[Statement], knights: Sequence[bool]) -> int | None:
    """Return the first inhabitant whose statement contradicts the assignment, or ``None``.

    ``statements[i]`` is what inhabitant i says.
    """
    for speaker, statement in enumerate(statements):
        if holds(statement, knights) != knights[speaker]:
            return speaker
    return None


def solutions(statements: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Return every assignment that no statement contradicts, by trying all 2**n.

    >>> solutions([["knave", 1], ["same", 0, 1]])
    [(True, False)]
    """
    candidates = product((True, False), repeat=len(statements))
    return [knights for knights in candidates if broken(statements, knights) is None]


def make_puzzle(num_inhabitants: int, seed: int) -> tuple[list[str], list[Statement]]:
    """Return names and statements of a puzzle with exactly one solution, the same for a seed.

    Raises:
        ValueError: if ``num_inhabitants`` is not between 2 and 10.
    """
    check_between("num_inhabitants", num_inhabitants, 2, MAX_INHABITANTS)
    rng = random.Random(f"knights {num_inhabitants} {seed}")
    names = rng.sample(NAMES, num_inhabitants)
    for _ in range(_ATTEMPTS):
        statements = [_statement(rng, num_inhabitants, i) for i in range(num_inhabitants)]
        if len(solutions(statements)) == 1:
            return names, statements
    raise AssertionError(f"no puzzle of {num_inhabitants} in {_ATTEMPTS} attempts")


def _statement(rng: random.Random, count: int, speaker: int, depth: int = 0) -> Statement:
    others = [i for i in range(count) if i != speaker]
    kind = rng.choice(("knight", "knave", "knight", "knave", "same", "number", "and", "or", "if"))
    if kind == "same":
        return ["same", speaker, rng.choice(others)]
    if kind == "number" and depth == 0:
        return ["number", rng.randint(0, count)]
    if kind in ("and", "or", "if") and depth == 0:
        return [kind, *(_statement(rng, count, speaker, 1) for _ in range(2))]
    return [rng.choice(("knight", "knave")), rng.choice(others)]


def question(names: Sequence[str], statements: Sequence[Statement]) -> str:
    """Return a puzzle in words.

    >>> print(question(["Ann", "Bob"], [["knave", 1], ["same", 0, 1]]).splitlines()[1])
    Ann says: "Bob is a knave." Bob says: "Ann and Bob are of the same kind."
    """
    says = " ".join(
        f'{name} says: "{_words(statement, names)}."'
        for name, statement in zip(names, statements, strict=True)
    )
    return (
        "On an island everyone is either a knight, who says only what is true, or a knave, who says"
        f" only what is false. You meet {', '.join(names[:-1])} and {names[-1]}.\n{says}\n"
        "Who is a knight and who is a knave? Answer in the form:"
        f" {', '.join(f'{name} is a knight/knave' for name in names)}."
    )


def _words(statement: Statement, names: Sequence[str]) -> str:
    kind, parts = _checked(statement)
    if kind in ("knight", "knave"):
        return f"{names[parts[0]]} is a {kind}"
    if kind == "same":
        return f"{names[parts[0]]} and {names[parts[1]]} are of the same kind"
    if kind == "number":
        return f"exactly {parts[0]} of us {'is a knight' if parts[0] == 1 else 'are knights'}"
    words = [_words(part, names) for part in parts]
    if kind == "not":
        return f"it is not so that {words[0]}"
    if kind == "if":
        return f"if {words[0]}, then {words[1]}"
    return f"{'both ' if kind == 'and' else 'either '}{f' {kind} '.join(words)}" + (
        "" if kind == "and" else ", or both"
    )


MAX_CHARACTERS = 2000
_BETWEEN = re.compile(r"(?:\s|[,;.*，、。；和]|\band\b|\bwhile\b|\bbut\b|-(?=\s))+", re.IGNORECASE)
_LEAD = re.compile(r"^(?:so|thus|hence|therefore|the answer is|solution|answer)\b[\s,:]*", re.I)


class LogicVerifier(Verifier):
    r"""Decides about knights and knaves: ``problem.meta`` holds ``names`` and ``statements``.

    ``statements[i]`` is what ``names[i]`` says (see ``knights``). The answer, the last ``<answer>``
    or ``\boxed{}`` outside thinking, says of each name once whether it is a knight or a knave
    (``Ann is a knight, Bob: knave``; in Chinese ``安娜是骑士, 本是骗子``), and nothing else. It is
    checked against the statements, not against a stored solution. ``canonical`` is a letter a name,
    ``KN``.

    >>> problem = knights_problem(num_inhabitants=3, seed=0)
    >>> LogicVerifier().verify(f"<answer> {problem.answer} </answer>", problem).status
    'right'
    """

    needs = (("names",), ("statements",))
    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta`` lacks ``names`` or ``statements``, or they do not fit together.
        """
        names, statements = _puzzle(problem)
        answer = extract_final(response)
        if answer is None:
            return conclude("unparsed", None, r"no <answer> and no \boxed{}")
        if len(answer) > MAX_CHARACTERS:
            return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters")
        knights, reason = read_assignment(answer, names)
        if knights is None:
            return conclude("unparsed", None, reason)
        canonical = "".join("K" if knight else "N" for knight in knights)
        speaker = broken(statements, knights)
        if speaker is not None:
            reason = f"what {names[speaker]} says does not fit"
            return conclude("wrong", canonical, reason)
        return conclude("right", canonical, "")


def read_assignment(text: str, names: Sequence[str]) -> tuple[list[bool] | None, str]:
    r"""Return who is a knight, in the order of ``names``, or ``None`` and why not.

    >>> read_assignment("Ann is a knight and **Bob**: Knave.", ["Ann", "Bob"])
    ([True, False], '')
    >>> read_assignment("Ann is a knight, Bob is a knave or a knight", ["Ann", "Bob"])[1]
    "does not understand 'or a knight'"
    """
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    claim = re.compile(
        rf"({one})\**\s*(?:is|=|:|->|→|\(|是|：)\s*\**\s*(?:an?\s+|the\s+)?\**(knight|knave|骑士|骗子)\)?(?!\w)",
        re.IGNORECASE,
    )
    is_knight: dict[str, bool] = {}
    by_key = {name.casefold(): name for name in names}
    text = _LEAD.sub("", text.replace(r"\text", "").replace("{", "").replace("}", "").strip())
    at = 0
    while at < len(text):
        if between := _BETWEEN.match(text, at):
            at = between.end()
            continue
        match = claim.match(text, at)
        if match is None:
            return None, f"does not understand {text[at : at + 40]!r}"
        name = by_key[match[1].casefold()]
        if name in is_knight:
            return None, f"says twice what {name} is"
        is_knight[name] = match[2].casefold() in ("knight", "骑士")
        at = match.end()
    missing = [name for name in names if name not in is_knight]
    if missing:
        return None, f"does not say what {missing[0]} is"
    return [is_knight[name] for name in names], ""


def knights_problem(num_inhabitants: int, seed: int) -> Problem:
    """Return a puzzle with exactly one solution, the same for the same seed.

    Raises:
        ValueError: if ``num_inhabitants`` is not between 2 and 10.
    """
    names, statements = make_puzzle(num_inhabitants, seed)
    (knights,) = solutions(statements)
    answer = ", ".join(
        f"{name} is a {'knight' if knight else 'knave'}"
        for name, knight in zip(names, knights, strict=True)
    )
    return Problem(
        uid=f"knights-{num_inhabitants}-{seed}",
        question=question(names, statements),
        answer=answer,
        source="knights",
        verifier="logic",
        meta={"names": names, "statements": statements},
    )


def _puzzle(problem: Problem) -> tuple[list[str], list[Statement]]:
    missing = {"names", "statements"} - problem.meta.keys()
    if missing:
        raise ValueError(
            f"meta: problem {problem.uid!r} has no {' and no '.join(sorted(missing))}, which the"
            " logic verifier needs"
        )
    names, statements = list(problem.meta["names"]), list(problem.meta["statements"])
    if len(names) != len(statements) or len({name.casefold() for name in names}) != len(names):
        raise ValueError(
            f"meta: problem {problem.uid!r} has {len(statements)} statements for the names {names};"
            " one a name, and no name twice, would be right"
        )
    return names, statements
