"""Accuracy, tokens and habits by level of difficulty, over a run's evaluations.

    python -m experiments.earned_length.levels runs/earned_length

reads the evaluated responses to `WorldSearch` problems in the run's ``responses.jsonl`` and prints,
for each evaluation, pass@1 and tokens of every level; and of all responses the habits that RL
may change: the share of attempts after which a response gives up, the share of attempts that only
seem right and are checked, and the share of equations and glances that are wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.by_source import evaluated_in
from experiments.launch import command_line, reported
from r1lit.evaluation.records import by_problem
from r1lit.files import Record
from r1lit.metrics import mean
from r1lit.metrics.estimates import pass_at_k
from r1lit.worlds.countdown import step
from r1lit.worlds.search_corpus import about, level_of

GLANCE = re.compile(r"(\d+) ([-+*/]) (\d+) ~ (\d+) ([<>~]) (\d+)([.,] \D{0,20}\1 [-+*/] \3 =)?")
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
UID = re.compile(r"-(\d+)-at-(\d+)$")


def habits_of(responses: Sequence[Record]) -> dict[str, float]:
    """Return rates over all attempts; NaN where there was no occasion.

    >>> text = "4 + 3 = 7, 9: 9 + 7 ~ 15 ~ 17, yes."
    >>> habits_of([{"uid": "search-4-3-9-17-at-3", "response": text}])["wrong_equations"]
    0.0
    """
    gave_up = [len(re.findall("give up", r["response"])) for r in responses]
    wrong_glances, deceptive, wrong_equations = [], [], []
    for response in responses:
        target, _ = _asked(response)
        for a, operation, b, value, sign, _, check in GLANCE.findall(response["response"]):
            made = step(int(a), operation, int(b))
            wrong_glances.append(made is None or about(made.result) != int(value))
            if sign == "~" and (made is None or made.result != target):
                deceptive.append(bool(check))
        for a, operation, b, value in EQUATION.findall(response["response"]):
            made = step(int(a), operation, int(b))
            wrong_equations.append(made is None or made.result != int(value))
    attempts = len(wrong_glances)
    return {
        "attempts": attempts / len(responses),
        "gives_up_per_attempt": sum(gave_up) / attempts if attempts else float("nan"),
        "deceptive_per_attempt": len(deceptive) / attempts if attempts else float("nan"),
        "deceptive_checked": mean(deceptive),
        "wrong_glances": mean(wrong_glances),
        "wrong_equations": mean(wrong_equations),
    }


def by_level(responses: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Return pass@1, tokens and truncated share of each level, easy ones first."""
    return {
        level: {
            "pass_at_1": mean([float(r["value"]) for r in own]),
            "tokens": mean([r["num_tokens"] for r in own]),
            "truncated": mean([not r["finished"] for r in own]),
        }
        for level, own in _levels(responses).items()
    }


def attempts_of_right(responses: Sequence[Record], least: int = 6) -> dict[str, float]:
    """Return how right responses came about: shares of those to problems that are not easy.

    ``as_needed``: by as many attempts as the order of the search needs; ``fewer``: whoever leaves
    that order, or knows the answer without a search; ``guessed``: after giving up. The rest took
    detours.

    Args:
        responses: to problems of `WorldSearch`.
        least: attempts that a problem needs to be counted.
    """
    ways = []
    for response in responses:
        _, needed = _asked(response)
        if response["value"] and needed >= least:
            made = len(GLANCE.findall(response["response"]))
            searched = "fewer" if made < needed else "as_needed" if made == needed else "more"
            ways.append("guessed" if gave_up(response) else searched)
    return {name: mean([way == name for way in ways]) for name in ("as_needed", "fewer", "guessed")}


def gave_up(response: Record) -> bool:
    """Return whether a response answers with a guess, after giving up."""
    return "give up" in response["response"]


def found_at_k(responses: Sequence[Record], ks: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return each level's pass@k of right answers that were found, not guessed, easy ones first."""
    levels = {}
    for level, of_level in _levels(responses).items():
        counts = [
            (len(own), sum(bool(r["value"]) and not gave_up(r) for r in own))
            for own in by_problem(of_level).values()
        ]
        possible = [k for k in ks if k <= min(n for n, _ in counts)]
        levels[level] = {str(k): mean([pass_at_k(n, c, k) for n, c in counts]) for k in possible}
    return levels


def _levels(responses: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the responses by their problem's level, easy ones first."""
    levels: dict[str, list[Record]] = {}
    for response in sorted(responses, key=lambda r: _asked(r)[1]):
        levels.setdefault(level_of(_asked(response)[1]), []).append(response)
    return levels


def _asked(response: Record) -> tuple[int, int]:
    """Return the target of a response's problem, and the attempts that it needs."""
    match = UID.search(response["uid"])
    if match is None:
        raise ValueError(f"uid: {response['uid']!r} is no problem of WorldSearch")
    return int(match[1]), int(match[2])


@reported("levels")
def main(args: Sequence[str] | None = None) -> int:
    """Print one JSON line for each evaluation of a run; return the exit status."""
    parser = command_line("experiments.earned_length.levels", __doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    options = parser.parse_args(args)
    for iteration, responses in evaluated_in(options.run).items():
        line = {"iteration": iteration, **habits_of(responses), "levels": by_level(responses)}
        print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
