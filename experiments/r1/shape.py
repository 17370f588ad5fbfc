"""The paper's stage table, and whether a run has its shape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.r1.stages import BASE, COLUMNS, STAGES, STUDENTS
from experiments.tables import OVER_SEEDS, RULE, as_markdown, planned_cells
from r1lit.metrics import mean, mean_and_error
from r1lit.metrics.seeds import Shift, holm, paired_shift

PAPER: dict[str, tuple[float, ...]] = {
    "AIME 2024": (77.9, 59.0, 74.0, 78.1, 79.8),
    "MATH-500": (95.9, 94.2, 95.9, 95.4, 97.3),
    "LiveCodeBench": (50.0, 57.5, 63.5, 64.6, 65.9),
    "IF-Eval": (46.6, 71.7, 72.0, 78.1, 83.3),
    "AlpacaEval 2": (24.7, 50.1, 55.8, 62.1, 87.6),
    "ArenaHard": (53.6, 77.0, 73.2, 75.6, 92.3),
}
"""arXiv 2501.12948v2, Table 3 (Nature 645:633, Table 2): R1-Zero, Dev1, Dev2, Dev3, R1."""

COUNTERPARTS = {
    "AIME 2024": "reasoning_pass_at_1",
    "MATH-500": "reasoning_pass_at_1",
    "LiveCodeBench": "programs_pass_at_1",
    "IF-Eval": "instruction_following",
    "AlpacaEval 2": "helpfulness_true",
    "ArenaHard": "helpfulness_true",
}
"""What in the small world a column of the paper is compared with."""

STEPS = (
    ("cold start", "zero", "dev1"),
    ("RL-1", "dev1", "dev2"),
    ("second SFT", "dev2", "dev3"),
    ("RL-2", "dev3", "r1"),
    ("R1 against R1-Zero", "zero", "r1"),
)
OF_OUR_OWN = (("RL-2", "dev3", "r1", "safety"), ("RL-2", "dev3", "r1", "helpfulness_rm"))
"""Tested too, though no column of the paper's says it."""

STAYS = 1.0
"""Points below which a move of the paper's is read as none."""
MARGIN = 0.05
"""Below which a move of ours is none: 5 points, a fourth of what the cold start costs on AIME."""

Summary = dict[str, Any]


def check(summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return every move from stage to stage that the paper's table has a counterpart of.

    Each has its ``shift`` over the runs (Student's t, n - 1 degrees of freedom; of a single run the
    normal one of two independent means over problems) and, by the paper's column, ``verdicts``:

    - agrees, disagrees: the 95 % interval lies on one side of 0;
    - leans: the mean has the paper's direction, the interval holds 0; leans away: the other one;
      no move: the mean is 0;
    - stays: the paper moves by less than ``STAYS`` points, and ours is shown to be within
      ``MARGIN``; not shown to stay: it is not.

    ``p_holm`` is corrected for all moves tested. ``planned`` has what so many seeds can tell, of
    several runs (`experiments.tables.planned_cells`). ``not_lost`` says whether a fall by
    ``MARGIN`` or more is ruled out. A move is left out where a stage was not measured.
    """
    found: list[dict[str, Any]] = []
    keys = list(dict.fromkeys(COUNTERPARTS.values()))
    moves = [(*step, key) for step in STEPS for key in keys]
    for step, before, after, key in (*moves, *OF_OUR_OWN):
        pairs = [(_stage(summary, before), _stage(summary, after)) for summary in summaries]
        measured = [(a, b) for a, b in pairs if a.get(key) is not None and b.get(key) is not None]
        if not measured:
            continue
        shift = _shift(measured, key)
        moved = {
            column: _paper_move(column, before, after)
            for column, counterpart in COUNTERPARTS.items()
            if counterpart == key
        }
        found.append(
            {
                "step": step,
                "key": key,
                "from": mean([a[key] for a, _ in measured]),
                "to": mean([b[key] for _, b in measured]),
                "runs": len(measured),
                "difference": shift.mean,
                "difference_se": shift.stderr,
                "low": shift.low,
                "high": shift.high,
                "p_value": shift.p_value,
                "not_lost": shift.is_above(-MARGIN),
                **({"planned": planned_cells(shift)} if shift.variances else {}),
                "paper": moved,
                "verdicts": {column: _verdict(shift, move) for column, move in moved.items()},
            }
        )
    for move, p_value in zip(found, holm([move["p_value"] for move in found]), strict=True):
        move["p_holm"] = p_value
    return found


def _shift(pairs: Sequence[tuple[Summary, Summary]], key: str) -> Shift:
    differences = [after[key] - before[key] for before, after in pairs]
    if len(pairs) > 1:
        return paired_shift(differences)
    errors = [stage.get(f"{key}_se") or 0.0 for stage in pairs[0]]
    return Shift(mean=differences[0], stderr=math.hypot(*errors), df=math.inf)


def _paper_move(column: str, before: str, after: str) -> float:
    values = dict(zip(STAGES, PAPER[column], strict=True))
    return values[after] - values[before]


def _verdict(shift: Shift, paper: float) -> str:
    if abs(paper) < STAYS:
        return "stays" if shift.is_within(MARGIN) else "not shown to stay"
    if shift.mean == 0:
        return "no move"
    same = shift.mean * paper > 0
    if shift.p_value < 0.05:
        return "agrees" if same else "disagrees"
    return "leans" if same else "leans away"


def as_lines(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the verdicts counted, then a Markdown table with a row a move."""
    verdicts = [(r, column, v) for r in results for column, v in r["verdicts"].items()]
    counts = Counter(verdict for _, _, verdict in verdicts)
    order = ("agrees", "stays", "leans", "not shown to stay", "no move", "leans away", "disagrees")
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])
    against = [
        f"{r['step']}, {column} ({r['key']})"
        for r, column, v in verdicts
        if v in ("leans away", "disagrees")
    ]
    lines = [
        f"Of {len(verdicts)} directions of the paper's table: {counted}."
        + (f" Against the paper: {'; '.join(against)}." if against else ""),
        _distinct(results),
        "",
        *as_rows(results),
        *(["", RULE] if any("planned" in r for r in results) else []),
    ]
    last = {r["step"]: r for r in results if r["key"] == "reasoning_pass_at_1"}.get("RL-2")
    if last is not None:
        ruled_out = "is ruled out" if last["not_lost"] else "is not ruled out"
        lines += ["", f"That RL-2 costs {MARGIN:.2f} of reasoning or more {ruled_out}."]
    left = [f"{r['step']} ({r['key']})" for r in results if r["p_holm"] < 0.05]
    clear = "; ".join(left) or "none"
    return [*lines, "", f"Clear after Holm's correction over all {len(results)} moves: {clear}."]


def _distinct(results: Sequence[dict[str, Any]]) -> str:
    """Return how many moves agree, where columns that share a measure of ours count once."""
    moves = [r for r in results if r["verdicts"]]
    agree = [r for r in moves if set(r["verdicts"].values()) == {"agrees"}]
    sums = [r for r in agree if r["step"] == STEPS[-1][0]]
    return (
        f"Columns that share a measure of ours counted once, {len(agree)} of {len(moves)} moves"
        f" agree, {len(sums)} of them in {STEPS[-1][0]}, which is the sum of the other steps."
    )


def as_rows(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table with a row a move."""
    several = any("planned" in r for r in results)
    tested = OVER_SEEDS if several else OVER_SEEDS[:2]
    headings = ["step", "measure", "the paper", "verdict", "from → to", *tested]
    rows = []
    for r in results:
        paper = ", ".join(f"{column} {move:+.1f}" for column, move in r["paper"].items())
        said = "; ".join(dict.fromkeys(r["verdicts"].values())) or "–"
        if len(set(r["verdicts"].values())) > 1:
            said = "; ".join(f"{column}: {verdict}" for column, verdict in r["verdicts"].items())
        difference = f"{r['difference']:+.3f} ({r['low']:+.3f} to {r['high']:+.3f})"
        cells = [difference, f"{r['p_value']:.2g}"]
        if several:
            cells += [f"{r['p_holm']:.2g}", *r.get("planned", ("–",) * 3)]
        moved = f"{r['from']:.3f} → {r['to']:.3f}"
        rows.append([r["step"], r["key"], paper or "–", said, moved, *cells])
    return as_markdown(headings, rows, num_text=4).split("\n")


def _stage(summary: Summary, name: str) -> Summary:
    return next((stage for stage in summary["stages"] if stage["name"] == name), {})


def combine(summaries: Sequence[Summary]) -> Summary:
    """Return the mean over runs, with its standard error over runs; one run is left as it is.

    A stage is of the runs that have it; ``num_runs`` says of how many.

    Raises:
        ValueError: if runs were evaluated differently: other problems, responses or sampling.
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
    for name in (BASE, *STUDENTS):
        found = [summary[name] for summary in summaries if summary.get(name)]
        combined[name] = _mean_stage(found) if found else None
    return combined


def _mean_stage(stages: Sequence[Summary]) -> Summary:
    first = stages[0]
    for other in stages[1:]:
        for kind in first["settings"].keys() & other["settings"].keys():
            one, two = ({**stage["settings"][kind], "seed": None} for stage in (first, other))
            if one != two:
                raise ValueError(
                    f"runs: stage {first['name']}, {kind}: evaluated under {one} and {two}; their"
                    " mean would be of neither"
                )
    record: Summary = {"name": first["name"], "num_runs": len(stages)}
    for key in (column.key for column in COLUMNS):
        values = [stage[key] for stage in stages if stage.get(key) is not None]
        if len(values) > 1:
            record[key], record[f"{key}_se"] = mean_and_error(values)
        else:
            record[key] = values[0] if values else None
            record[f"{key}_se"] = None
    return {**record, "cons_k": first["cons_k"], "settings": first["settings"]}
