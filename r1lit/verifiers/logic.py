"""Logic puzzles: does an assignment agree with every statement? The checker is generated."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.knights import Statement, broken, make_puzzle, question, solutions

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

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta`` lacks ``names`` or ``statements``, or they do not fit together.
        """
        start = time.perf_counter()
        names, statements = _puzzle(problem)
        answer = extract_final(response)
        if answer is None:
            return conclude("unparsed", None, r"no <answer> and no \boxed{}", start)
        if len(answer) > MAX_CHARACTERS:
            return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters", start)
        knights, reason = read_assignment(answer, names)
        if knights is None:
            return conclude("unparsed", None, reason, start)
        canonical = "".join("K" if knight else "N" for knight in knights)
        speaker = broken(statements, knights)
        if speaker is not None:
            reason = f"what {names[speaker]} says does not fit"
            return conclude("wrong", canonical, reason, start)
        return conclude("right", canonical, "", start)


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
