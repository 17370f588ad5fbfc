"""Measures of the page: language consistency and accuracy on mathematics, programs and puzzles."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments import by_source
from experiments.study import Study
from r1lit.files import Record

KINDS = {"mathematics": ("countdown", "chain"), "code": ("programs",), "logic": ("puzzles",)}
MEASURES: by_source.Measures = {
    f"{title}, {kind}": (sources.__contains__, value)
    for title, value in (
        ("language consistency", by_source.reward("language_consistency")),
        ("pass@1", by_source.is_right),
    )
    for kind, sources in KINDS.items()
}

YLABELS = {
    name: "words in the question's language" if name.startswith("language") else "pass@1"
    for name in MEASURES
}


def read(study: Study) -> list[Record]:
    """Return the curves of each finished point."""
    return by_source.read(study.sweep(), MEASURES)


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables and the figure."""
    return by_source.report(results, "language reward", YLABELS)
