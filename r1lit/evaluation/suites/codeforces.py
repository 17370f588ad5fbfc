"""Codeforces: problems with their checkers, and a rating from contests as CodeElo computes it.

A contest's rating is that at which Elo expects the place that the model's points would have had
among the people who took part (CodeElo, arXiv 2501.01257; Codeforces' own expected rank).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from r1lit.data import ProblemSource
from r1lit.data.tables import Table
from r1lit.evaluation.suites.scores import Groups, Score, pass_at_1
from r1lit.files import JSONLFile
from r1lit.problems import Problem
from r1lit.seeding import generator

WORDING = """{title} (time limit {time_limit} s)

{description}

Input: {input_format}

Output: {output_format}

{examples}

{note}

Write a program in Python or C++ that reads the input from stdin and writes the output to stdout. End with the whole program in one fenced code block that names its language."""  # noqa: E501
STANDINGS = "codeforces_standings.jsonl"
FEWEST_PEOPLE = 200
"""Contests with fewer rated people give no rating, as in CodeElo."""
NUM_ORDERS = 200
PENALTY_POINTS, PENALTY_MINUTES = 50.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A contest's people and problems.

    ``points`` holds a problem's points by its index, none where the contest counts problems.
    ``people`` are points, penalty and rating before the contest, a row each; ``after`` are ratings.
    """

    name: str
    points: Mapping[str, float]
    people: np.ndarray = field(repr=False)
    after: Mapping[str, float] = field(repr=False)

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Contest:
        """Return a contest from the results of Codeforces' API.

        Args:
            line: ``standings``, the result of contest.standings, and ``rating_changes``, that of
                contest.ratingChanges.

        Raises:
            ValueError: naming what is missing.
        """
        try:
            standings, changes = line["standings"], line["rating_changes"]
            rated = {change["handle"]: change for change in changes}
            people = [
                (row["points"], row["penalty"], rated[handle]["oldRating"])
                for row in standings["rows"]
                for handle in [row["party"]["members"][0]["handle"]]
                if handle in rated
            ]
            return cls(
                name=str(standings["contest"]["id"]),
                points={p["index"]: p["points"] for p in standings["problems"] if p.get("points")},
                people=np.array(people, dtype=float).reshape(-1, 3),
                after={handle: change["newRating"] for handle, change in rated.items()},
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"a line of {STANDINGS} lacks {error}; it needs standings (contest.standings of"
                " Codeforces' API) and rating_changes (contest.ratingChanges)"
            ) from error

    @cached_property
    def old_ratings(self) -> np.ndarray:
        """The ratings before the contest."""
        ratings: np.ndarray = self.people[:, 2]
        return ratings

    def place(self, points: float, penalty: float) -> int:
        """Return how many people are not behind this result: its place, from 0."""
        own, fines = self.people[:, 0], self.people[:, 1]
        return int(((own > points) | ((own == points) & (fines <= penalty))).sum())

    def rating(self, points: float, penalty: float) -> int:
        """Return the rating whose expected place is the result's, by binary search over integers.

        The expected place of R is 1 + sum over people of 1 / (1 + 10^((R - r) / 400)).
        """
        place = self.place(points, penalty)
        low, high = 0, int(self.old_ratings.max()) + 100
        while high - low > 1:
            middle = (low + high) // 2
            expected = 1 + (1 / (1 + 10 ** ((middle - self.old_ratings) / 400))).sum()
            low, high = (low, middle) if expected < place else (middle, high)
        return low


class Codeforces(ProblemSource):
    """Problems of open-r1/codeforces with their tests, checkers and contests.

    Problems that are interactive or read files are left out. ``codeforces_standings.jsonl`` beside
    a local file has the contests' people; without it there is no rating.

    Args:
        path: a table with the columns of open-r1/codeforces.
        name: the data set's configuration.
        split: its split.
        standings: a file of contests, a line each as `Contest.read` takes it; the one beside
            ``path`` if left out.
        division: only contests whose name holds it, such as "Div. 2"; all if left out.
        limit: rows read.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        split: str = "test",
        standings: str | None = None,
        division: str | None = None,
        limit: int | None = None,
    ) -> None:
        local = "." in Path(path).name and Path(path).expanduser().is_file()
        self.table = Table(path=path, name=None if local else name, split=split, limit=limit)
        self.standings = Path(standings or Path(path).with_name(STANDINGS)).expanduser()
        self.division = division

    def left_out(self) -> list[str]:
        """Say that there is no rating where there are no standings."""
        if self.standings.is_file():
            return []
        return [
            f"no rating and percentile: there is no {self.standings}, with contest.standings and"
            " contest.ratingChanges of Codeforces' API a line"
        ]

    def problems(self) -> list[Problem]:
        """Return the problems that read standard input."""
        contests: dict[str, Contest] = {}
        if self.standings.is_file():
            for line in JSONLFile(self.standings, "standings").read():
                contest = Contest.read(line)
                contests[contest.name] = contest
        columns = {key: key for key in ("id", "contest_id", "index", "official_tests", "rating")}
        rows = [row for _, row in self.table.rows(columns) if self._is_kept(row)]
        if not rows:
            raise ValueError(f"division: {self.table.path} has no problem of {self.division!r}")
        return [self._problem(row, contests.get(str(row["contest_id"]))) for row in rows]

    def _is_kept(self, row: Mapping[str, Any]) -> bool:
        plain = row.get("input_mode") in (None, "stdio") and not row.get("interaction_format")
        division = self.division is None or self.division in str(row.get("contest_name"))
        return bool(plain and division and row["official_tests"])

    def _problem(self, row: Mapping[str, Any], contest: Contest | None) -> Problem:
        question = WORDING
        for key in ("title", "time_limit", "description", "input_format", "output_format", "note"):
            question = question.replace(f"{{{key}}}", str(row.get(key) or ""))
        examples = json.dumps(row.get("examples") or [], ensure_ascii=False)
        tests = row["official_tests"]
        return Problem(
            uid=str(row["id"]),
            question=question.replace("{examples}", examples),
            answer="",
            source="codeforces",
            verifier="stdin_code",
            meta={
                "tests": {
                    "inputs": [test["input"] for test in tests],
                    "outputs": [test["output"] for test in tests],
                },
                "checker": row.get("generated_checker") or "",
                "rating": row["rating"],
                "contest": contest,
                "index": row["index"],
            },
        )


@dataclass(frozen=True, kw_only=True)
class Tries:
    """The responses to one problem: its points, and whether each response is right."""

    points: float | None
    right: Sequence[bool]

    def score(self, order: Sequence[int]) -> tuple[float, float]:
        """Return points and penalty where responses are handed in by ``order`` until one is right.

        >>> Tries(points=500.0, right=[False, True]).score([0, 1])
        (450.0, 0.0)
        >>> Tries(points=None, right=[False, True]).score([0, 1])
        (1.0, 10.0)
        """
        for failed, place in enumerate(order):
            if self.right[place]:
                if self.points is None:
                    return 1.0, PENALTY_MINUTES * failed
                return max(0.0, self.points - PENALTY_POINTS * failed), 0.0
        return 0.0, 0.0


def contest_rating(groups: Groups, *, seed: int = 0, problems: Sequence[Problem] = ()) -> Score:
    """Return the mean rating over contests, with percentile; pass@1 where no contest is known.

    The k responses to a problem are tries, in ``NUM_ORDERS`` random orders over which points are
    not averaged but ratings are. The interval resamples contests. ``percentile`` is the share of
    the contests' people whose newest rating is below.
    """
    by_contest: dict[str, tuple[Contest, list[Tries]]] = {}
    for problem in problems:
        contest, group = problem.meta.get("contest"), groups.get(problem.uid)
        if contest is None or not group or len(contest.people) < FEWEST_PEOPLE:
            continue
        tries = Tries(
            points=contest.points.get(problem.meta["index"]) if contest.points else None,
            right=[record["value"] == 1.0 for record in group],
        )
        by_contest.setdefault(contest.name, (contest, []))[1].append(tries)
    solved = pass_at_1(groups, seed=seed)
    if not by_contest:
        return solved
    ratings = [
        _mean_rating(contest, tries, seed) for _, (contest, tries) in sorted(by_contest.items())
    ]
    random = np.random.default_rng(seed)
    resampled = np.array(ratings)[random.integers(len(ratings), size=(2000, len(ratings)))].mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    value = float(np.mean(ratings))
    people = sorted({h: r for c, _ in by_contest.values() for h, r in c.after.items()}.values())
    return {
        "name": "rating",
        "unit": "rating",
        "value": value,
        "low": float(low),
        "high": float(high),
        "percentile": 100 * bisect_left(people, value) / len(people),
        "num_contests": len(ratings),
        "pass_at_1": solved["value"],
    }


def _mean_rating(contest: Contest, tries: Sequence[Tries], seed: int) -> float:
    """Return the rating of one contest, on average over orders of the tries."""
    found: list[int] = []
    known: dict[tuple[float, float], int] = {}
    for number in range(NUM_ORDERS):
        random = generator(seed, "codeforces", contest.name, number)
        results = [one.score(random.permutation(len(one.right)).tolist()) for one in tries]
        total = sum(points for points, _ in results), sum(fines for _, fines in results)
        if total not in known:
            known[total] = contest.rating(*total)
        found.append(known[total])
    return float(np.mean(found))
