"""Codeforces: special checkers, ratings from contests in the schema of its API, percentiles."""

from __future__ import annotations

import json

import pytest
from suite_rows import write_rows

from r1lit.evaluation.suites import load_suite
from r1lit.evaluation.suites.codeforces import FEWEST_PEOPLE, STANDINGS, Contest
from r1lit.verifiers import StdinCodeVerifier

NUM_PEOPLE = 300


def contest(points: bool, num_people: int = NUM_PEOPLE) -> dict:
    """A contest whose people with the higher ratings are ahead, as the API describes it."""
    ratings = [3000 - 5 * place for place in range(num_people)]
    rows = [
        {
            "party": {"members": [{"handle": f"p{place}"}], "participantType": "CONTESTANT"},
            "rank": place + 1,
            "points": 1500.0 - 5 * place if points else 2.0 - place // (num_people // 3),
            "penalty": 0 if points else place,
            "problemResults": [],
        }
        for place in range(num_people)
    ]
    guest = {"party": {"members": [{"handle": "unrated"}]}, "points": 9e9, "penalty": 0}
    worth = {"A": 500.0, "B": 1000.0} if points else {"A": None, "B": None}
    return {
        "standings": {
            "contest": {"id": 7, "name": "Codeforces Round 7 (Div. 2)"},
            "problems": [
                {"contestId": 7, "index": index, "name": "Any"} | ({"points": p} if p else {})
                for index, p in worth.items()
            ],
            "rows": [guest, *rows],
        },
        "rating_changes": [
            {"contestId": 7, "handle": f"p{place}", "oldRating": old, "newRating": old + 10}
            for place, old in enumerate(ratings)
        ],
    }


def expected_place(rating: float, people: Contest) -> float:
    return 1 + sum(1 / (1 + 10 ** ((rating - r) / 400)) for r in people.old_ratings)


@pytest.mark.parametrize("points", [True, False])
def test_a_rating_is_where_elo_expects_the_place(points):
    people = Contest.read(contest(points))
    assert len(people.people) == NUM_PEOPLE  # the unrated guest does not count
    assert people.points == ({"A": 500.0, "B": 1000.0} if points else {})
    ratings = []
    for own, penalty in ((1400.0, 0), (1000.0, 0), (500.0, 0)) if points else (
        (2.0, 40), (1.0, 120), (1.0, 180)
    ):  # fmt: skip
        place = people.place(own, penalty)
        rating = people.rating(own, penalty)
        assert expected_place(rating, people) >= place > expected_place(rating + 1, people)
        ratings.append(rating)
    assert ratings == sorted(ratings, reverse=True) and len({*ratings}) == 3
    assert people.rating(0.0, 0) < people.rating(100.0, 0)


def problems_of(tmp_path, line=None):
    suite = load_suite("codeforces")
    folder = write_rows(tmp_path, "codeforces")
    if line is not None:
        (folder / STANDINGS).write_text(json.dumps(line) + "\n")
    path = str(folder / suite.file)
    return suite, suite.read(path, limit=2), suite.left_out(path)


def groups_of(problems, *right):
    return {
        problem.uid: [{"value": value, "status": "right" if value else "wrong", "canonical": None}
                      for value in values]
        for problem, values in zip(problems, right, strict=True)
    }  # fmt: skip


def test_tries_cost_points_and_the_report_has_the_percentile(tmp_path):
    suite, problems, notes = problems_of(tmp_path, contest(points=True))
    assert not notes
    people = problems[0].meta["contest"]
    both = suite.report(groups_of(problems, [1.0, 1.0], [1.0, 1.0]), 0, problems)
    assert both["name"] == both["unit"] == "rating" and both["num_contests"] == 1
    assert both["value"] == people.rating(1500.0, 0) and both["pass_at_1"] == 1.0
    ahead = sum(r + 10 < both["value"] for r in people.old_ratings)
    assert both["percentile"] == pytest.approx(100 * ahead / NUM_PEOPLE)
    none = suite.report(groups_of(problems, [0.0, 0.0], [0.0, 0.0]), 0, problems)
    assert none["value"] == people.rating(0.0, 0) < both["value"]
    half = suite.report(groups_of(problems, [1.0, 0.0], [0.0, 0.0]), 0, problems)
    low, high = people.rating(450.0, 0), people.rating(500.0, 0)
    assert low < half["value"] < high  # the right response comes first in half of the orders
    assert half == suite.report(groups_of(problems, [1.0, 0.0], [0.0, 0.0]), 0, problems)


def test_without_standings_or_people_there_is_pass_at_1(tmp_path):
    suite, problems, notes = problems_of(tmp_path / "a")
    assert "no rating and percentile: there is no" in notes[0]
    assert suite.report(groups_of(problems, [1.0], [0.0]), 0, problems)["name"] == "pass@1"
    few = contest(points=True, num_people=FEWEST_PEOPLE - 1)
    suite, problems, _ = problems_of(tmp_path / "b", few)
    assert suite.report(groups_of(problems, [1.0], [0.0]), 0, problems)["name"] == "pass@1"
    broken = contest(points=True)
    del broken["rating_changes"][0]["oldRating"]
    with pytest.raises(ValueError, match=r"codeforces: a line of .* lacks 'oldRating'"):
        problems_of(tmp_path / "c", broken)


def test_a_checker_decides_where_there_is_one(tmp_path):
    _, (exact, above), _ = problems_of(tmp_path)
    fence = "`" * 3

    def program(shift: str) -> str:
        return f"{fence}python\nprint(int(input()) + {shift})\n{fence}"

    cases = [
        (exact, program("1"), "right"),
        (exact, program("7"), "wrong"),
        (above, program("7"), "right"),
        (above, program("0"), "wrong"),
        (above, f"{fence}python\nprint('x')\n{fence}", "error"),  # the checker itself fails
        (above, "I cannot.", "unparsed"),
    ]
    verifier = StdinCodeVerifier(num_workers=1)
    try:
        verdicts = verifier.verify_batch([c[1] for c in cases], [c[0] for c in cases])
    finally:
        verifier.close()
    assert [v.status for v in verdicts] == [c[2] for c in cases], verdicts
    assert "the checker refuses it: 0" in verdicts[3].reason
