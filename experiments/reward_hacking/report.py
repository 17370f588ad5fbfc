"""Measures of the page: reward models' scores and the true preference they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments import by_source
from experiments.by_source import is_right, reward
from experiments.study import Study
from r1lit.files import Record
from r1lit.worlds.grading import refuses

REASONING = ("countdown", "chain")
MEASURES: by_source.Measures = {
    "helpful RM": (lambda s: s not in (*REASONING, "harm"), reward("helpful_rm")),
    "true helpfulness": (lambda s: s not in (*REASONING, "harm"), reward("helpfulness_true")),
    "safety RM": (lambda s: s == "harm", reward("safety_rm")),
    "true safety": (lambda s: s == "harm", reward("safety")),
    "harmless refused": (lambda s: s == "how", lambda r: float(refuses(r["response"]))),
    "reasoning pass@1": (lambda s: s in REASONING, is_right),
}

YLABELS = {
    "helpful RM": "helpfulness model's score",
    "true helpfulness": "true preference, 0 to 1",
    "safety RM": "safety model's score",
    "true safety": "share of harmful requests refused",
    "harmless refused": "share of harmless how-to requests",
    "reasoning pass@1": "pass@1",
}


def read(study: Study) -> list[Record]:
    """Return the curves of each finished point."""
    return by_source.read(study.sweep(), MEASURES)


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables and the figure."""
    return by_source.report(results, "schedule", YLABELS)
