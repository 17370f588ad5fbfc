"""Seeds one by one, until the sequential test settles every comparison of a study.

    python -m experiments objectives --until-clear --most 20

After each seed each variant is compared with the first (or ``--against``), paired by seed, by the
test of `experiments.sequential`; the error of the whole family is 5 % (Bonferroni's share each). A
variant that is settled gets no further seeds, and the study ends when all are, or at the most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.launch import Launch
from experiments.sequential import ALPHA, FIRST, Look, look
from experiments.sweep import Point, Sweep, check_variants, run_sweep, score_of
from experiments.tables import as_markdown
from r1lit.files import Record

MOST = 20
"""Seeds at most, if the command names no other number."""
Looks = dict[str, Look | None]
"""By variant, where its comparison stands; None while it has fewer than `FIRST` pairs."""


def looks_of(results: Sequence[Record], variants: Sequence[str], against: str, most: int) -> Looks:
    """Return where each comparison stands, over the seeds from 0 on that both sides have.

    Seeds count in their order, and only up to the first that is missing: which of them were made
    must not depend on what they came to.
    """
    scores: dict[str, dict[int, float]] = {}
    for result in results:
        score = score_of(result["final"])
        if score is not None:
            scores.setdefault(result["variant"], {})[result["seed"]] = score[1]
    others = [variant for variant in variants if variant != against]
    control, found = scores.get(against, {}), {}
    for variant in others:
        own, differences = scores.get(variant, {}), []
        for seed in range(most):
            if seed not in own or seed not in control:
                break
            differences.append(own[seed] - control[seed])
        found[variant] = look(differences, most, ALPHA / len(others))
    return found


def run_until_clear(sweep: Sweep, most: int, against: str, launch: Launch) -> list[Point]:
    """Make seeds in order until every comparison is clear; return the points that failed.

    A seed that is made already is not made again, and an interrupted study goes on.
    """
    check_variants([p for p in sweep.points(range(FIRST)) if p.state != "finished"])
    for seed in range(most):
        looks = looks_of(sweep.results(), list(sweep.variants), against, most)
        wanted = [v for v, own in looks.items() if own is None or not own.is_clear]
        if not wanted:
            break
        variants = {v: sweep.variants[v] for v in (against, *wanted)}
        print(f"seed {seed}: {', '.join(wanted)} less {against}", flush=True)
        failed = run_sweep(replace(sweep, variants=variants), [seed], launch, wait=True)
        if failed:
            return failed
    return []


def as_table(looks: Looks, against: str, most: int) -> str:
    """Return the Markdown: a row a comparison, and what the words mean."""
    rows = []
    for variant, own in looks.items():
        if own is None:
            rows.append([variant, f"fewer than {FIRST}", "–", "–", "more seeds"])
            continue
        seeds = own.shift.num_seeds
        end = "clear" if own.is_clear else "not clear" if seeds == most else "more seeds"
        interval = f"{own.shift.mean:+.3f} ({own.low:+.3f} to {own.high:+.3f})"
        rows.append([variant, str(seeds), interval, f"{own.shift.p_value:.2g}", end])
    headings = [f"less {against}", "n seeds", "difference, 95 % at all looks", "p", "verdict"]
    said = (
        f"A sequential test, looked at after every seed from {FIRST} to {most}: all"
        f" {len(looks)} comparisons together err in 5 of 100 studies. The interval holds at all"
        " looks; a difference that stopped its study early is too large on average."
    )
    return f"{as_markdown(headings, rows)}\n\n{said}"


def settle(
    sweep: Sweep,
    most: int,
    against: str | None,
    launch: Launch | None,
    recorded: Callable[[], Sequence[Record]],
) -> tuple[int, str]:
    """Make what is needed and return the exit status, and the table of where all stands.

    Args:
        sweep: the study's grid.
        most: seeds at most.
        against: the variant that others are compared with; the first if left out.
        launch: makes a point; None to make nothing.
        recorded: what is known where nothing is made and no run is here.

    Raises:
        ValueError: if there are no two variants, none called ``against``, or too few seeds.
    """
    names = list(sweep.variants)
    if against is not None and against not in names:
        raise ValueError(f"against: {against!r} is none of {', '.join(names)}")
    if len(names) < 2:
        raise ValueError(f"--until-clear: {names[0]} is the only variant; nothing to compare")
    if most < FIRST:
        raise ValueError(f"--most: {most} is too few; the first look is after {FIRST} seeds")
    against = against or names[0]
    failed = [] if launch is None else run_until_clear(sweep, most, against, launch)
    results = sweep.results() or (recorded() if launch is None else [])
    return int(bool(failed)), as_table(looks_of(results, names, against, most), against, most)
