"""Win rates of a stage against another on final summaries, plain and length-controlled.

As AlpacaEval 2 controls for length (2404.04475, Eq. 1 and 2): a logistic model of who wins, with a
term in the difference in length that is left out when the rate is read off,

    logit P(a wins) = theta + phi tanh(difference in characters / its standard deviation)
    length-controlled win rate = logistic(theta)

Their third term, how hard an instruction is, is fitted over hundreds of models and left out. The
judge is the true preference: 1 for the more helpful summary, 1/2 where both are equally helpful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from experiments.paper.tables import Cell, Table, Tables
from experiments.r1.figure import LABELS
from experiments.r1.shape import STEPS
from experiments.r1.stages import BASE, STAGES, Group, read_groups
from r1lit.metrics import mean_and_error
from r1lit.worlds.grading import helpfulness, request_asked, summary_of

TITLE = "Win rates on final summaries, judged by the true preference"
NAMES = {BASE: "the base", **dict(zip(STAGES, LABELS, strict=True))}
RIDGE = 0.01  # keeps theta finite where one side wins all

Pairs = list[tuple[float, int]]
"""Who wins (1, 1/2, 0) and by how many characters its summary is longer, of one request."""


def measure(run: Path) -> Tables:
    """Return the table of a run: a row a step of the pipeline, the error over requests."""
    table: Table = {}
    stages = {name: read_groups(run / "eval" / name)["general"] for name in NAMES}
    for _, before, after in (("RL", BASE, "zero"), *STEPS):
        problems = pair(stages[after], stages[before])
        if problems:
            table[f"{NAMES[after]} against {NAMES[before]}"] = {
                "win rate": _over_problems(problems, 0),
                "length-controlled": length_controlled(problems),
                "characters longer": _over_problems(problems, 1),
            }
    return {TITLE: table} if table else {}


def pair(groups: Sequence[Group], others: Sequence[Group]) -> list[Pairs]:
    """Return the comparisons of each request that both answered, sample against sample."""
    by_uid = {group[0]["uid"]: group for group in others}
    problems = []
    for group in groups:
        request = request_asked(group[0]["question"])
        pairs = []
        for record, other in zip(group, by_uid.get(group[0]["uid"], ()), strict=False):
            a, b = summary_of(record["response"]), summary_of(other["response"])
            better = helpfulness(request, a) - helpfulness(request, b)
            pairs.append(((1 + np.sign(round(better, 9))) / 2, len(a) - len(b)))
        if pairs:
            problems.append(pairs)
    return problems


def length_controlled(problems: Sequence[Pairs]) -> Cell:
    """Return the length-controlled win rate and its standard error, a jackknife over requests."""
    value = _fit(problems)
    n = len(problems)
    if n < 2:
        return value, None
    without = [_fit([*problems[:i], *problems[i + 1 :]]) for i in range(n)]
    return value, math.sqrt((n - 1) * float(np.var(without)))


def _fit(problems: Sequence[Pairs]) -> float:
    """Return logistic(theta) of the likeliest model, with a ridge."""
    won, longer = np.array([pair for pairs in problems for pair in pairs], dtype=float).T
    length = np.tanh(longer / (longer.std() or 1.0))

    def loss(weights: np.ndarray) -> float:
        logit = weights[0] + weights[1] * length
        return float((np.logaddexp(0, logit) - won * logit).sum() + RIDGE / 2 * weights @ weights)

    return float(expit(minimize(loss, np.zeros(2)).x[0]))


def _over_problems(problems: Sequence[Pairs], place: int) -> Cell:
    return mean_and_error([float(np.mean([pair[place] for pair in pairs])) for pairs in problems])
