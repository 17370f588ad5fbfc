"""Curves by source: what variants end at, compared by hand, and the figure's panels."""

from __future__ import annotations

from experiments.by_source import differences, draw, report


def point(variant: str, seed: int, **ends: float) -> dict:
    curves = {name: [(0, 0.5), (4, end)] for name, end in ends.items()}
    return {"variant": variant, "seed": seed, "seconds": 60.0, "curves": curves}


POINTS = [
    point("late", 0, truth=0.4, score=1.0),
    point("late", 1, truth=0.6, score=1.0),
    point("early", 0, truth=0.4, score=3.0),
    point("early", 1, truth=0.2, score=3.2),
    point("alone", 0, truth=0.9, score=9.0),
]


def test_differences_are_of_the_ends_less_the_first_variant():
    _, _, truth, score = differences(POINTS).splitlines()
    # means 0.3 and 0.5, variance 0.02 of each two: a standard error of sqrt(0.02) with 2 degrees of
    # freedom, whose 97.5 % point is 4.3027
    assert truth.startswith("| early | truth | -0.200 (-0.808 to +0.408) | 0.29 | 0.29 |")
    assert score.startswith("| early | score | +2.100 (+0.829 to +3.371) |")
    assert differences(POINTS[:2]) == differences([POINTS[0], POINTS[2]]) == ""


def test_the_figure_has_a_panel_a_measure_and_the_table_a_row_a_variant():
    more = [{**p, "curves": {**p["curves"], "third": p["curves"]["truth"]}} for p in POINTS]
    assert [axes.get_title(loc="left") for axes in draw(more).axes] == ["truth", "score", "third"]
    text, _ = report(more, "schedule")
    assert "| schedule | n seeds | truth | score | third | seconds |" in text
    assert "| late | 2 | 0.50 ± 0.00 → 0.55 ± 0.05 → 0.50 ± 0.10 |" in text
