"""The paper's stage table, and whether a run has its shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.r1.stages import COLUMNS, STUDENTS
from r1lit.metrics import mean_and_error

PAPER: dict[str, tuple[float, ...]] = {
    "AIME 2024": (77.9, 59.0, 74.0, 78.1, 79.8),
    "MATH-500": (95.9, 94.2, 95.9, 95.4, 97.3),
    "LiveCodeBench": (50.0, 57.5, 63.5, 64.6, 65.9),
    "IF-Eval": (46.6, 71.7, 72.0, 78.1, 83.3),
    "AlpacaEval 2": (24.7, 50.1, 55.8, 62.1, 87.6),
    "ArenaHard": (53.6, 77.0, 73.2, 75.6, 92.3),
}
"""Nature 645:633, Table 2: R1-Zero, Dev1, Dev2, Dev3, R1."""

Summary = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A step of the shape: ``key`` of stage ``after`` is above (or below) that of ``before``.

    With ``keeps``, it is enough that it does not fall by more than two standard errors.
    """

    says: str
    key: str
    before: str
    after: str
    rises: bool = True
    keeps: bool = False
    paper: str = ""


CLAIMS = (
    Claim(says="cold start lowers reasoning", key="reasoning_pass_at_1", before="zero",
          after="dev1", rises=False, paper="AIME 77.9 → 59.0"),
    Claim(says="cold start lifts instruction following", key="instruction_following",
          before="zero", after="dev1", paper="IF-Eval 46.6 → 71.7"),
    Claim(says="RL-1 restores reasoning above the cold start", key="reasoning_pass_at_1",
          before="dev1", after="dev2", paper="AIME 59.0 → 74.0"),
    Claim(says="RL-2 lifts the true preference", key="helpfulness_true", before="dev3",
          after="r1", paper="AlpacaEval 62.1 → 87.6"),
    Claim(says="RL-2 lifts the reward model's preference", key="helpfulness_rm", before="dev3",
          after="r1", paper="ArenaHard 75.6 → 92.3"),
    Claim(says="RL-2 lifts safety", key="safety", before="dev3", after="r1"),
    Claim(says="RL-2 does not lose reasoning", key="reasoning_pass_at_1", before="dev3",
          after="r1", keeps=True, paper="AIME 78.1 → 79.8"),
)  # fmt: skip


def check(summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return for each claim whether it holds over the runs, and the numbers.

    The difference of two stages is the mean over runs; its standard error is that over runs where
    there are several, else that of two independent means over problems (an upper bound where a
    problem is as hard for both). ``holds`` is None where a stage was not measured.
    """
    found = []
    for claim in CLAIMS:
        pairs = [
            (_stage(summary, claim.before), _stage(summary, claim.after)) for summary in summaries
        ]
        measured = [
            (before, after)
            for before, after in pairs
            if before.get(claim.key) is not None and after.get(claim.key) is not None
        ]
        result: dict[str, Any] = {"says": claim.says, "key": claim.key, "before": claim.before}
        result |= {"after": claim.after, "paper": claim.paper, "holds": None, "runs": len(measured)}
        if measured:
            result |= _judged(claim, measured)
        found.append(result)
    return found


def _judged(claim: Claim, pairs: Sequence[tuple[Summary, Summary]]) -> dict[str, Any]:
    differences = [after[claim.key] - before[claim.key] for before, after in pairs]
    difference, error = mean_and_error(differences)
    if error is None:
        [(before, after)] = pairs
        errors = [stage.get(f"{claim.key}_se") or 0.0 for stage in (before, after)]
        error = math.hypot(*errors)
    signed = difference if claim.rises else -difference
    return {
        "from": sum(before[claim.key] for before, _ in pairs) / len(pairs),
        "to": sum(after[claim.key] for _, after in pairs) / len(pairs),
        "difference": difference,
        "difference_se": error,
        "holds": signed >= -2 * error if claim.keeps else signed > 0,
        "clear": claim.keeps or abs(difference) > 2 * error,
    }


def as_lines(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line a claim: whether it holds, and the numbers."""
    lines = []
    for result in results:
        if result["holds"] is None:
            lines.append(f"not measured: {result['says']} ({result['key']})")
            continue
        verdict = "holds" if result["holds"] else "does not hold"
        if result["holds"] and not result["clear"]:
            verdict = "holds, within two standard errors of none"
        paper = f"; the paper: {result['paper']}" if result["paper"] else ""
        lines.append(
            f"{verdict}: {result['says']}: {result['key']} {result['from']:.3f} →"
            f" {result['to']:.3f} (difference {result['difference']:+.3f} ±"
            f" {result['difference_se']:.3f}{paper})"
        )
    return lines


def _stage(summary: Summary, name: str) -> Summary:
    return next((stage for stage in summary["stages"] if stage["name"] == name), {})


def combine(summaries: Sequence[Summary]) -> Summary:
    """Return the mean over runs, with its standard error over runs; one run is left as it is.

    A stage is of the runs that have it; ``num_runs`` says of how many.
    """
    if len(summaries) == 1:
        return summaries[0]
    names = dict.fromkeys(stage["name"] for summary in summaries for stage in summary["stages"])
    combined: Summary = {
        "stages": [
            _mean_stage([s for summary in summaries if (s := _stage(summary, name))])
            for name in names
        ]
    }
    for name in STUDENTS:
        found = [summary[name] for summary in summaries if summary.get(name)]
        combined[name] = _mean_stage(found) if found else None
    return combined


def _mean_stage(stages: Sequence[Summary]) -> Summary:
    record: Summary = {"name": stages[0]["name"], "num_runs": len(stages)}
    for key in (column.key for column in COLUMNS):
        values = [stage[key] for stage in stages if stage[key] is not None]
        if len(values) > 1:
            record[key], record[f"{key}_se"] = mean_and_error(values)
        else:
            record[key] = values[0] if values else None
            record[f"{key}_se"] = None
    return {**record, "cons_k": stages[0]["cons_k"], "settings": stages[0]["settings"]}
