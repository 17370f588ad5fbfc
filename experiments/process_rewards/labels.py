"""How wrong labels from N completions are: against many more, and against the world's truth.

K steps
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.page import as_markdown
from r1lit.files import Record


def label_errors(
    estimates: dict[int, np.ndarray], value_K: np.ndarray, num_truth: int, may_lead_K: np.ndarray
) -> list[Record]:
    """Return a row for each N.

    ``rmse`` is the root mean squared difference of the soft label from the value, ``expected`` what
    binomial noise alone makes of it: sqrt(mean of v (1 - v) (1/N + 1/num_truth)), v (1 - v) without
    bias from the value's own completions. ``hard`` and ``soft`` are the shares of steps whose hard
    label, or whose soft label rounded, says what is true of them; ``optimistic`` are steps that
    cannot lead to the answer with a hard label of 1.

    Args:
        estimates: soft labels of the steps by N.
        value_K: the steps' values, from ``num_truth`` other completions.
        num_truth: that number.
        may_lead_K: 1 where a step may still lead to the answer (``true_steps``).
    """
    spread = float((value_K * (1 - value_K)).mean()) * num_truth / max(1, num_truth - 1)
    true_K = may_lead_K > 0.5
    rows = []
    for n, soft_K in sorted(estimates.items()):
        hard_K = soft_K > 0
        rows.append(
            {
                "n": n,
                "rmse": math.sqrt(float(((soft_K - value_K) ** 2).mean())),
                "expected": math.sqrt(spread * (1 / n + 1 / num_truth)),
                "hard": float((hard_K == true_K).mean()),
                "soft": float(((soft_K >= 0.5) == true_K).mean()),
                "optimistic": float(hard_K[~true_K].mean()) if (~true_K).any() else math.nan,
            }
        )
    return rows


def as_table(rows: Sequence[Record], num_steps: int, num_truth: int) -> str:
    """Return the rows as Markdown."""
    headings = ["N", "error of the soft label", "of binomial noise alone", "hard label is true"]
    headings += ["soft label, rounded, is true", "hard label 1 where nothing leads on"]
    keys = ("rmse", "expected", "hard", "soft", "optimistic")
    cells = [[str(row["n"]), *(f"{row[key]:.3f}" for key in keys)] for row in rows]
    said = f"{num_steps} steps; values from {num_truth} other completions each."
    return f"{said}\n\n{as_markdown(headings, cells, num_text=0)}"
