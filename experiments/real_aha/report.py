"""Page of the study: each arm before and after RL, the claims with their verdicts, and controls.

Numbers are of held-out problems of six attempts and more, where the claims are made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.by_source import evaluated_in
from experiments.curves import draw_band, style_of
from experiments.real_aha.claims import ACCURACY, ATTEMPTS, Side, claims_table, rise
from experiments.real_aha.pilot import LEAST, is_hard, reading_of, share
from experiments.study import Study
from experiments.tables import (
    as_markdown,
    cells_of,
    group_by,
    mean_cell,
    number,
    seed_table,
)
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.evaluation.records import by_problem
from r1lit.files import Record, read_records
from r1lit.metrics import Graded, accuracy, mean
from r1lit.metrics.seeds import shift_over_seeds

ARMS = {
    "search": "search",
    "filler": "filler",
    "direct": "direct",
    "raft": "own right answers (RAFT)",
    "wrong": "wrong answers only",
    "unprimed": "no priming",
    "format": "format reward alone",
    "sft": "SFT, equal FLOPs (upper line)",
}
BEGINS = {"raft": "search", "format": "search", "sft": "search", "unprimed": "base"}
"""Whose evaluation before is an arm's, where it is not its own."""
KS = (1, 4, 16, 64)
ELSEWHERE = {
    "four_numbers": "four numbers",
    "unseen_numbers": "numbers 13 to 20",
    "ifeval": "IFEval",
    "mmlu": "MMLU",
}
POLICIES = {"base": "base", "primed": "primed", "trained": "RL"}
NUM_SHOWN = 10
NONE = "no rows yet"
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("accuracy", "accuracy", ".3f"),
    ("attempts", "attempts", ".2f"),
    ("tokens", "tokens", ".0f"),
    ("cut", "cut", ".3f"),
    ("wrong computations", "wrong_computations", ".3f"),
    ("checks", "checks", ".2f"),
    ("repeated attempts", "repeated", ".2f"),
    ("mixed groups", "mixed_groups", ".2f"),
    ("accuracy below six", "easy_accuracy", ".3f"),
)
"""Of an arm's table: heading, number of an evaluation, format."""


def read(study: Study) -> list[Record]:
    """Return a record for each arm, base and set of other tasks that is finished, by seed."""
    records: list[Record] = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        base = evaluation_of(run / "base" / "prime_evaluation")
        if base:
            records.append({"arm": "base", "seed": seed, "after": base})
        for arm in ARMS:
            after = evaluation_of(run / arm / "rl_evaluation")
            if after:
                before = evaluation_of(run / BEGINS.get(arm, arm) / "prime_evaluation")
                records.append({
                    "arm": arm, "seed": seed, "before": before, "after": after,
                    "evaluations": curve_of(run / arm / "rl"), "flops": flops_of(run / arm / "rl"),
                })  # fmt: skip
        found = {
            f"{policy}_{task}": score
            for policy in POLICIES
            for task in ELSEWHERE
            if (score := score_of(run / "elsewhere" / f"{policy}_{task}", task)) is not None
        }
        if found:
            records.append({"arm": "elsewhere", "seed": seed, "scores": found})
    return records


def flops_of(run: Path) -> float | None:
    """Return the FLOPs of a training, where they were counted."""
    path = run / "compute.json"
    return float(json.loads(path.read_text())["flops"]) if path.exists() else None


def score_of(folder: Path, task: str) -> float | None:
    """Return pass@1 of an evaluation on another task; a suite has a folder of its own.

    The report above it is the table of all suites.
    """
    for path in (folder / task / "report.json", folder / "report.json"):
        if path.exists():
            return float(json.loads(path.read_text())["pass_at_1"]["value"])
    return None


def curve_of(run: Path) -> list[Record]:
    """Return the numbers of each evaluation while training; none of a run without RL."""
    if not (run / "responses.jsonl").exists():
        return []
    return [
        {"iteration": iteration, **numbers_of([row for row in rows if is_hard(row["uid"])])}
        for iteration, rows in evaluated_in(run).items()
    ]


def evaluation_of(folder: Path) -> Record | None:
    """Return the numbers of a finished evaluation; None of one that is not finished."""
    if not (folder / "report.json").exists():
        return None
    rows = read_records(folder / "responses.jsonl")
    hard, easy = ([row for row in rows if is_hard(row["uid"]) is side] for side in (True, False))
    groups = dict(sorted(by_problem(hard).items()))  # lines stand in the order of their ends
    graded = [[Graded.read(row) for row in own] for own in groups.values()]
    whole = accuracy(graded)
    rights = [sum(own.right for own in group) for group in graded]
    first = [own[0] for own in groups.values()][:NUM_SHOWN]
    return {
        **numbers_of(hard),
        "num_problems": len(groups),
        "num_samples": whole["num_samples"],
        "mixed_groups": mean([float(0 < n < len(g)) for n, g in zip(rights, graded, strict=True)]),
        "easy_accuracy": mean([float(row["status"] == "right") for row in easy]),
        "pass_at_k": {k: own["value"] for k, own in whole["pass_at_k"].items()},
        "cons_at_k": {k: own["value"] for k, own in whole["cons_at_k"].items()},
        "shown": {row["question"]: row["response"] for row in first},
    }


def numbers_of(rows: Sequence[Record]) -> Record:
    """Return the mean numbers of responses, each problem with as many."""
    found = [reading_of(row) for row in rows]
    return {
        "accuracy": mean([float(row["status"] == "right") for row in rows]),
        "attempts": mean([own.attempts for own in found]),
        "tokens": mean([row["num_tokens"] for row in rows]),
        "cut": mean([float(not row["finished"]) for row in rows]),
        "checks": mean([own.checks for own in found]),
        "repeated": mean([own.repeated for own in found]),
        "wrong_computations": share(
            sum(own.wrong for own in found), sum(own.computations for own in found)
        ),
        "false_hits": sum(own.false_hits for own in found),
        "false_hits_found": sum(own.false_hits_found for own in found),
    }


def arms_table(arms: dict[str, list[Record]]) -> str:
    """Return the table of every arm before and after, also of those without rows."""
    rows = []
    for arm, name in ARMS.items():
        own = arms.get(arm, [])
        if not own:
            rows.append([name, "0", NONE, *[""] * len(COLUMNS)])
            continue
        columns = [
            (head, (number("before", key), number("after", key)), f"mean {form} → {form}")
            for head, key, form in COLUMNS
        ]
        flops = mean_cell([r["flops"] and r["flops"] / 1e15 for r in own], ".2f")
        rows.append([name, str(len(own)), *cells_of(own, columns), flops])
    headings = ["arm", "n seeds", *(head for head, _, _ in COLUMNS), "10^15 FLOPs"]
    return as_markdown(headings, rows)


def best_of(record: Record) -> tuple[int, float, float]:
    """Return k, pass@k and majority vote of the primed policy at the trained one's tokens.

    k is the number of its responses that cost the tokens of one trained response, rounded up.
    """
    before, after = record["before"], record["after"]
    k = max(1, math.ceil(after["tokens"] / before["tokens"]))
    k = min(k, before["num_samples"])
    return k, before["pass_at_k"][str(k)], before["cons_at_k"][str(k)]


def untrained_table(search: Sequence[Record]) -> str:
    """Return the trained policy less the primed one's best of k and majority vote."""
    found = [(r, *best_of(r)) for r in search if r["before"]]
    if not found:
        return f"Best of k and majority vote of the primed policy: {NONE}."
    trained = {r["seed"]: r["after"]["accuracy"] for r, *_ in found}
    sides = {
        "best of k (needs a verifier)": {r["seed"]: best for r, _, best, _ in found},
        "majority vote of k": {r["seed"]: vote for r, _, _, vote in found},
    }
    rows = [
        [name, str(len(own)), mean_cell(list(trained.values()), ".3f"),
         mean_cell(list(own.values()), ".3f")]
        for name, own in sides.items()
    ]  # fmt: skip
    shifts = [
        ([f"RL less {name}"], shift)
        for name, own in sides.items()
        if (shift := shift_over_seeds(trained, own)) is not None
    ]
    ks = ", ".join(f"{k} (seed {r['seed']})" for r, k, _, _ in found)
    table = as_markdown(["primed policy", "n seeds", "RL, one response", "primed"], rows)
    tested = seed_table(shifts, ["accuracy"])
    said = f"k is the trained response's tokens over the primed one's, rounded up: {ks}."
    return "\n\n".join(part for part in (table, said, tested) if part)


def passes_table(arms: dict[str, list[Record]]) -> str:
    """Return pass@k of base, primed and trained policy."""
    search = arms.get("search", [])
    sides = {
        "base": [r["after"] for r in arms.get("base", [])],
        "primed": [r["before"] for r in search if r["before"]],
        "trained": [r["after"] for r in search],
    }
    rows = []
    for policy, own in sides.items():
        if not own:
            rows.append([POLICIES[policy], "0", NONE, *[""] * (len(KS) - 1), ""])
            continue
        cells = [mean_cell([r["pass_at_k"].get(str(k)) for r in own], ".3f") for k in KS]
        hits = (sum(r[key] for r in own) for key in ("false_hits_found", "false_hits"))
        rows.append([POLICIES[policy], str(len(own)), *cells, " of ".join(map(str, hits))])
    headings = ["policy", "n seeds", *(f"pass@{k}" for k in KS), "false hits found by the check"]
    return as_markdown(headings, rows)


def elsewhere_table(records: Sequence[Record]) -> str:
    """Return pass@1 of base, primed and trained policy on tasks that RL did not have."""
    rows = []
    for task, name in ELSEWHERE.items():
        names = [f"{policy}_{task}" for policy in POLICIES]
        own = [r["scores"] for r in records if r["scores"].keys() & set(names)]
        cells = [mean_cell([scores.get(key) for scores in own], ".3f") for key in names]
        rows.append([name, str(len(own)), *(cells if own else [NONE, "", ""])])
    table = as_markdown(["task", "n seeds", *POLICIES.values()], rows)
    shifts = []
    for task, name in ELSEWHERE.items():
        trained, primed = (
            {r["seed"]: s for r in records if (s := r["scores"].get(f"{who}_{task}")) is not None}
            for who in ("trained", "primed")
        )
        if (shift := shift_over_seeds(trained, primed)) is not None:
            shifts.append(([name], shift))
    return "\n\n".join(part for part in (table, seed_table(shifts, ["RL less primed"])) if part)


def shown_responses(search: Sequence[Record]) -> str:
    """Return the first response to each of the first ten problems by uid, before and after."""
    own = next((r for r in search if r["before"]), None)
    if own is None:
        return f"Responses: {NONE}."
    lines = [
        f"First response to each of the first {len(own['before']['shown'])} problems of six"
        f" attempts and more, seed {own['seed']}:"
    ]
    for asked, before in own["before"]["shown"].items():
        after = own["after"]["shown"][asked]
        lines.append(f"- {asked}\n  - primed: {quoted(before)}\n  - RL: {quoted(after)}")
    return "\n".join(lines)


def quoted(text: str) -> str:
    """Return a response as one line of code."""
    return f"`{' '.join(text.replace('`', chr(39)).split()) or ' '}`"


def draw(arms: dict[str, list[Record]]) -> Figure:
    """Return the figure: accuracy, attempts and tokens along RL, a line an arm."""
    figure = Figure(figsize=(14, 4.4), dpi=110, layout="constrained")
    panels = (
        ("Accuracy", "right answers", "accuracy"),
        ("Attempts", "attempts per response", "attempts"),
        ("Tokens", "tokens per response", "tokens"),
    )
    for axes, (title, label, key) in zip(figure.subplots(1, 3), panels, strict=True):
        for index, (arm, name) in enumerate(ARMS.items()):
            if own := [r for r in arms.get(arm, []) if r["evaluations"]]:
                color, marker, line = style_of(index)
                draw_band(axes, own, number(key), name, color, marker + line)
        tidy(axes, title, xlabel="iteration", ylabel=label)
        if axes.has_data():
            axes.legend(frameon=False, fontsize=8)
    seeds = seeds_of({r["seed"] for own in arms.values() for r in own})
    add_caption(
        figure,
        f"SmolLM2-135M-Instruct, held-out problems of {LEAST} attempts and more, {seeds}; lines:"
        " means over seeds, bands: ± 1 s.e. of them",
    )
    return figure


def sides_of(arms: dict[str, list[Record]]) -> Callable[[str, str], Side]:
    """Return what reads an arm's rise of a number by seed."""
    return lambda arm, key: rise(arms.get(arm, []), key)


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables as Markdown, and the figure."""
    arms = group_by("arm", records)
    elsewhere = arms.pop("elsewhere", [])
    trained = {arm: own for arm, own in arms.items() if arm in ARMS}
    search = arms.get("search", [])
    parts = [
        f"Held-out problems of {LEAST} attempts and more; before → after, means over seeds."
        f" Claims count {ACCURACY} and {ATTEMPTS} of the evaluations before and after.",
        "### Claims",
        claims_table(sides_of(arms)),
        "### Arms",
        arms_table(arms),
        "### Without training",
        untrained_table(search),
        "### Elicited or learnt",
        passes_table(arms),
        elsewhere_table(elsewhere),
        shown_responses(search),
    ]
    return "\n\n".join(parts), draw(trained)
