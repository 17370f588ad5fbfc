"""Variants of a sweep compared in pairs: over seeds, and over problems.

Two tests answer two questions. `all_pairs` is over seeds: would training anew, under other seeds,
show the difference again? `paired_table` is over problems: would other problems show it, from these
very runs? A difference is worth a sentence when it stands on both legs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from experiments.page import as_markdown
from experiments.points import score_of
from r1lit.files import Record
from r1lit.metrics import (
    Difference,
    Shift,
    holm,
    mean,
    mean_and_error,
    paired_difference,
    welch_shift,
)

Shares = dict[str, float] | None
"""Of a run: by problem the share of right responses (`experiments.points.shares_of`)."""


def paired_table(results: Sequence[Record], against: str | None = None) -> str:
    """Return the Markdown table: each variant's score less that of ``against``.

    Args:
        results: of finished points.
        against: a variant; the first with results if left out.

    Returns:
        A row a variant, over the seeds that both have, and below it p over problems after Holm's
        correction for as many comparisons; nothing if there is no pair.
    """
    by_seed: dict[str, dict[int, Record]] = {}
    for result in results:
        by_seed.setdefault(result["variant"], {})[result["seed"]] = result
    against = against or next(iter(by_seed), None)
    if against is None or against not in by_seed or len(by_seed) < 2:
        return ""
    name, _ = score_of(results[0]["final"]) or ("score", 0.0)
    headings = [f"less {against}", "n seeds", f"{name} ± s.e.", "95 % interval, problems"]
    headings += ["p, problems", "problems better, worse"]
    rows = []
    p_values: dict[str, float] = {}
    for variant, own in by_seed.items():
        seeds = [seed for seed in own if seed in by_seed[against]]
        if variant == against or not seeds:
            continue
        pairs = [(own[s]["final"], by_seed[against][s]["final"]) for s in seeds]
        scores = [(score_of(a), score_of(b)) for a, b in pairs]
        known = [a[1] - b[1] for a, b in scores if a and b and a[0] == b[0] == name]
        if not known:
            continue
        difference, error = mean_and_error(known)
        cells = [variant, str(len(known)), f"{difference:+.3f}"]
        cells[-1] += "" if error is None else f" ± {error:.3f}"
        found = over_problems(*([side[s].get("shares") for s in seeds]
                                for side in (own, by_seed[against])))  # fmt: skip
        rows.append([*cells, *_cells(found)])
        if found:
            p_values[variant] = found.p_value
    if not rows:
        return ""
    table = as_markdown(headings, rows)
    if len(p_values) > 1:
        corrected = zip(p_values, holm(list(p_values.values())), strict=True)
        listed = ", ".join(f"{variant} {p_value:.2g}" for variant, p_value in corrected)
        table += (
            f"\n\nPaired by seed and by problem. p over problems after Holm's correction for"
            f" {len(p_values)} comparisons: {listed}."
        )
    return table


def all_pairs(results: Sequence[Record]) -> str:
    """Return the differences in final score of every two variants as Markdown, clearest first.

    Each has its 95 % interval by Welch's t over seeds, and its p-value alone and after Holm's
    correction for all of them. Variants of one seed are left out, and pairs that were evaluated on
    different problems or by different scores; nothing if no pair remains.
    """
    finals: dict[str, list[float]] = {}
    measured: dict[str, set[str]] = {}  # the score's name, and problems
    for result in results:
        score = score_of(result["final"])
        if score is not None:
            finals.setdefault(result["variant"], []).append(score[1])
            asked = measured.setdefault(result["variant"], set())
            asked.update((score[0], *(result.get("shares") or ())))
    several = [variant for variant, values in finals.items() if len(values) > 1]
    pairs = [
        (a, b, welch_shift(finals[a], finals[b]))
        for a, b in combinations(several, 2)
        if measured[a] == measured[b]
    ]
    if not pairs:
        return ""
    corrected = holm([shift.p_value for *_, shift in pairs])
    num_clear = sum(p_value < 0.05 for p_value in corrected)
    said = f"All pairs, over seeds: {num_clear} of {len(pairs)} clear after Holm's correction."
    ranked = sorted(zip(pairs, corrected, strict=True), key=lambda found: found[0][2].p_value)
    rows = [[f"{b} − {a}", *difference_cells(shift, p_value)] for (a, b, shift), p_value in ranked]
    headings = ["comparison", "difference, 95 % interval", "p", "p, Holm"]
    return f"{said}\n\n{as_markdown(headings, rows)}"


def difference_cells(found: Difference | Shift, corrected: float) -> list[str]:
    """Return the cells of a difference: with its 95 % interval, its p, and p after correction."""
    interval = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
    return [interval, f"{found.p_value:.2g}", f"{corrected:.2g}"]


def tested_cells(found: Sequence[Difference | Shift]) -> list[list[str]]:
    """Return the cells of each difference, p after Holm's correction for all of them."""
    corrected = holm([difference.p_value for difference in found])
    return [difference_cells(one, p_value) for one, p_value in zip(found, corrected, strict=True)]


def _cells(found: Difference | None) -> list[str]:
    if found is None:
        return ["–", "–", "–"]
    return [
        f"{found.low:+.3f} to {found.high:+.3f}",
        f"{found.p_value:.2g}",
        f"{found.better}, {found.worse} of {found.num_problems}",
    ]


def over_problems(own: Sequence[Shares], others: Sequence[Shares]) -> Difference | None:
    """Return the first runs less the others: each problem's share right, the mean over seeds.

    None where a run's shares are not known, or of other problems than the rest.
    """
    uids = sorted(own[0] or ())
    if not uids or any(sorted(one or ()) != uids for one in (*own, *others)):
        return None
    a, b = ([mean([one[uid] for one in side if one]) for uid in uids] for side in (own, others))
    return paired_difference(a, b)
