"""Seeds one by one, until the sequential test settles every comparison of a study.

    python -m experiments objectives --until-clear --most 20
    python -m experiments wrong_length --until-clear --most 8 --measure response_length_wrong

After each seed each variant is compared with the first (or ``--against``), paired by seed, by the
test of `experiments.sequential`; the error of the whole family is 5 % (Bonferroni's share each). A
variant that is settled gets no further seeds, and the study ends when all are, or at the most. Runs
are judged by the score of their last evaluation, or by another number of it (``--measure``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.compose import value_at
from experiments.launch import Launch
from experiments.sequential import ALPHA, FIRST, Look, look
from experiments.sweep import Point, Sweep, check_variants, run_sweep, score_of
from experiments.tables import as_markdown
from r1lit.files import Record

MOST = 20
"""Seeds at most, if the command names no other number."""
Looks = dict[str, Look | None]
"""By variant, where its comparison stands; None while it has fewer than `FIRST` pairs."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """The comparisons that a study settles: of which variants, with which, and by which number.

    ``measure`` is a number of the last evaluation, dotted where it is nested, such as
    ``rewards.format``; None for the evaluation's score. ``most`` is how many seeds there may be.
    """

    variants: Sequence[str]
    against: str
    most: int = MOST
    measure: str | None = None

    def numbers(self, results: Sequence[Record]) -> dict[str, dict[int, float]]:
        """Return what each run is judged by: by variant and seed.

        Raises:
            ValueError: if a run has not measured it; the message names what that run has measured.
        """
        found: dict[str, dict[int, float]] = {}
        for result in results:
            variant, seed, final = result["variant"], result["seed"], result["final"]
            if self.measure is None:
                value = (score_of(final) or (None, None))[1]
            else:
                value = value_at(final, self.measure)
                if not _is_number(value):
                    raise ValueError(
                        f"--measure: {self.measure!r} is no number of the last evaluation of"
                        f" {variant}, seed {seed}; that has {', '.join(_numbers_in(final))}"
                    )
            if value is not None:
                found.setdefault(variant, {})[seed] = value
        return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers_in(evaluation: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield the names of an evaluation's numbers, dotted where they are nested."""
    for name, value in evaluation.items():
        if isinstance(value, Mapping):
            yield from _numbers_in(value, f"{within}{name}.")
        elif _is_number(value):
            yield f"{within}{name}"


def looks_of(results: Sequence[Record], question: Question) -> Looks:
    """Return where each comparison stands, over the seeds from 0 on that both sides have.

    Seeds count in their order, and only up to the first that is missing: which of them were made
    must not depend on what they came to.

    Raises:
        ValueError: if a run has not measured what is asked.
    """
    numbers = question.numbers(results)
    others = [variant for variant in question.variants if variant != question.against]
    control, found = numbers.get(question.against, {}), {}
    for variant in others:
        own, differences = numbers.get(variant, {}), []
        for seed in range(question.most):
            if seed not in own or seed not in control:
                break
            differences.append(own[seed] - control[seed])
        found[variant] = look(differences, question.most, ALPHA / len(others))
    return found


def run_until_clear(sweep: Sweep, question: Question, launch: Launch) -> list[Point]:
    """Make seeds in order until every comparison is clear; return the points that failed.

    A seed that is made already is not made again, and an interrupted study goes on.

    Raises:
        ValueError: if a run has not measured what is asked: after the first seed.
    """
    check_variants([p for p in sweep.points(range(FIRST)) if p.state != "finished"])
    for seed in range(question.most):
        looks = looks_of(sweep.results(), question)
        wanted = [v for v, own in looks.items() if own is None or not own.is_clear]
        if not wanted:
            break
        variants = {v: sweep.variants[v] for v in (question.against, *wanted)}
        print(f"seed {seed}: {', '.join(wanted)} less {question.against}", flush=True)
        failed = run_sweep(replace(sweep, variants=variants), [seed], launch, wait=True)
        if failed:
            return failed
    return []


def as_table(results: Sequence[Record], question: Question) -> str:
    """Return the Markdown: a row a comparison, and what the words mean.

    Differences of a score have three decimals, those of a ``measure`` as its numbers need.

    Raises:
        ValueError: if a run has not measured what is asked.
    """
    against, most = question.against, question.most
    looks = looks_of(results, question)
    name, form = question.measure, "+.3f"
    if name is None:
        scores = (score_of(result["final"]) for result in results)
        name = next((score[0] for score in scores if score is not None), "score")
    else:
        numbers = question.numbers(results).values()
        form = _form_of([value for own in numbers for value in own.values()])
    rows = []
    for variant, own in looks.items():
        if own is None:
            rows.append([variant, f"fewer than {FIRST}", "–", "–", "more seeds"])
            continue
        seeds = own.shift.num_seeds
        end = "clear" if own.is_clear else "not clear" if seeds == most else "more seeds"
        interval = f"{own.shift.mean:{form}} ({own.low:{form}} to {own.high:{form}})"
        rows.append([variant, str(seeds), interval, f"{own.shift.p_value:.2g}", end])
    headings = [f"less {against}", "n seeds", f"{name}, 95 % at all looks", "p", "verdict"]
    said = (
        f"A sequential test, looked at after every seed from {FIRST} to {most}: all"
        f" {len(looks)} comparisons together err in 5 of 100 studies. The interval holds at all"
        " looks; a difference that stopped its study early is too large on average."
    )
    return f"{as_markdown(headings, rows)}\n\n{said}"


def _form_of(values: Sequence[float]) -> str:
    """Return the format of differences: three decimals up to 1, then three digits.

    >>> _form_of([0.25, 0.5]), _form_of([1.25]), _form_of([261.0, 44.0])
    ('+.3f', '+.2f', '+.0f')
    """
    largest = max(map(abs, values), default=0.0)
    return "+.3f" if largest <= 1 else f"+.{max(0, 2 - math.floor(math.log10(largest)))}f"


def settle(
    sweep: Sweep,
    question: Question,
    launch: Launch | None,
    recorded: Callable[[], Sequence[Record]],
) -> tuple[int, str]:
    """Make what is needed and return the exit status, and the table of where all stands.

    Args:
        sweep: the study's grid.
        question: what is compared, and by what.
        launch: makes a point; None to make nothing.
        recorded: what is known where nothing is made and no run is here.

    Raises:
        ValueError: if there are no two variants, none called ``against``, too few seeds, or a run
            that has not measured what is asked.
    """
    names = question.variants
    if question.against not in names:
        raise ValueError(f"against: {question.against!r} is none of {', '.join(names)}")
    if len(names) < 2:
        raise ValueError(f"--until-clear: {names[0]} is the only variant; nothing to compare")
    if question.most < FIRST:
        raise ValueError(
            f"--most: {question.most} is too few; the first look is after {FIRST} seeds"
        )
    failed = [] if launch is None else run_until_clear(sweep, question, launch)
    results = sweep.results() or (recorded() if launch is None else [])
    return int(bool(failed)), as_table(results, question)
