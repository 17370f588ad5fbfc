"""The verdicts of the study, by the rules that README.md stated before any run.

A run here is a record of the study: its evaluations along training, and ``wrong``, by problem the
number of wrong responses of the last evaluation and their mean tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from experiments.tables import as_markdown, at_ends, by_seed, number
from experiments.until_clear import Question, looks_of
from r1lit.files import Record
from r1lit.metrics import mean
from r1lit.metrics.seeds import Shift, holm, paired_shift

CONTROL = "dr-grpo"
PARTS = ("length", "std", "epsilon")
"""Arms that differ from the control in one part of R1's objective."""
NORM_CLIP = "norm-clip"
"""The control with its gradient's norm clipped as often as that of ``length``, which is larger."""
LEAST_SEEDS = 3
"""Seeds that a verdict needs."""
MOST_SEEDS = 8
"""Seeds at most, of the sequential test."""
WRONG, RIGHT = "response_length_wrong", "response_length_right"
RULES = (
    "Rules, stated before any run. An arm *fails* if its pass@1 is lower than the control's (95 %,"
    " paired by seed), or if its wrong responses grow more than its right ones (95 %, paired by"
    " seed). Wrong responses are *longer* if their growth less the control's is clear, by Holm's"
    " correction for all arms, and positive. The part that lengthens them is the longer one of"
    f" {', '.join(PARTS)} with the largest growth. The verdict names an objection where the"
    f" sequential test is not clear, or where {NORM_CLIP} explains `length`. With fewer than"
    f" {LEAST_SEEDS} seeds there is no verdict."
)

Arms = dict[str, list[Record]]
"""The runs by arm."""
Pair = Callable[[Record, Record], float | None]
"""A number of a run and the control's of the same seed; None where it cannot be measured."""


def growth(key: str) -> Callable[[Record], float | None]:
    """Return what reads how much a number of a run grows from its first evaluation to its last."""

    def read(run: Record) -> float | None:
        before, after = (end(run) for end in at_ends(number(key)))
        return None if before is None or after is None else after - before

    return read


def gap(run: Record) -> float | None:
    """Return how many tokens more a run's wrong responses grow than its right ones."""
    wrong, right = growth(WRONG)(run), growth(RIGHT)(run)
    return None if wrong is None or right is None else wrong - right


def gap_of(runs: Sequence[Record]) -> Shift | None:
    """Return the mean over runs of their `gap`; None of fewer than two."""
    found = [own for run in runs if (own := gap(run)) is not None]
    return paired_shift(found) if len(found) > 1 else None


def on_same_problems(run: Record, control: Record) -> float | None:
    """Return the tokens of wrong responses less the control's, on the same problems.

    These are the problems with wrong responses of both runs. Each has a mean over its wrong
    responses, and counts once.
    """
    ours, theirs = run.get("wrong") or {}, control.get("wrong") or {}
    both = ours.keys() & theirs.keys()
    return mean([ours[uid][1] - theirs[uid][1] for uid in sorted(both)]) if both else None


def at_equal_accuracy(run: Record, control: Record) -> float | None:
    """Return the tokens of wrong responses less the control's, at the lower of their last pass@1.

    That of the more accurate run is read at the time when it last passed that pass@1.
    """
    target = min(one["evaluations"][-1]["pass_at_1"] for one in (run, control))
    ours, theirs = (tokens_at(one, target) for one in (run, control))
    return None if ours is None or theirs is None else ours - theirs


def tokens_at(run: Record, accuracy: float) -> float | None:
    """Return the tokens of wrong responses when pass@1 last rose to ``accuracy``.

    Between two evaluations it is read off a straight line; None where pass@1 never rose to it.
    """
    points = [(e["pass_at_1"], e[WRONG]) for e in run["evaluations"] if e[WRONG] is not None]
    if points and points[-1][0] == accuracy:
        return float(points[-1][1])
    for (low, before), (high, after) in reversed(list(pairwise(points))):
        if low <= accuracy <= high:
            share = (accuracy - low) / (high - low) if high > low else 1.0
            return float(before + share * (after - before))
    return None


def common(arms: Arms, arm: str) -> list[int]:
    """Return the seeds that an arm and the control both have."""
    own, control = ({run["seed"] for run in arms.get(name, [])} for name in (arm, CONTROL))
    return sorted(own & control)


def paired(arms: Arms, arm: str, value: Pair) -> Shift | None:
    """Return the mean over common seeds of a number of two runs; None of fewer than two."""
    own, control = ({run["seed"]: run for run in arms.get(name, [])} for name in (arm, CONTROL))
    found = [value(own[seed], control[seed]) for seed in common(arms, arm)]
    known = [one for one in found if one is not None]
    return paired_shift(known) if len(known) > 1 else None


def less_control(arms: Arms, value: Callable[[Record], float | None]) -> dict[str, Shift | None]:
    """Return by arm a number of its runs less that of the control's."""
    control = arms.get(CONTROL, [])
    return {arm: by_seed(own, control, value) for arm, own in arms.items() if arm != CONTROL}


def over_pairs(arms: Arms, value: Pair) -> dict[str, Shift | None]:
    """Return by arm the mean of a number of two runs."""
    return {arm: paired(arms, arm, value) for arm in arms if arm != CONTROL}


def clear(shifts: dict[str, Shift | None]) -> dict[str, str]:
    """Return by arm ``longer``, ``shorter`` or ``not clear``, after Holm's correction for all."""
    known = {arm: shift for arm, shift in shifts.items() if shift is not None}
    corrected = holm([shift.p_value for shift in known.values()])
    found = dict.fromkeys(shifts, "–")
    for (arm, shift), p_value in zip(known.items(), corrected, strict=True):
        side = "longer" if shift.mean > 0 else "shorter"
        enough = shift.num_seeds >= LEAST_SEEDS
        found[arm] = (side if p_value < 0.05 else "not clear") if enough else too_few(shift)
    return found


def too_few(shift: Shift | None) -> str:
    """Return the verdict of too few seeds."""
    seeds = 0 if shift is None else shift.num_seeds
    return f"no verdict yet: {seeds} of {LEAST_SEEDS} seeds"


def fails(arms: Arms, arm: str) -> str:
    """Return whether an arm fails, and by what; the control only by length."""
    shift = gap_of(arms[arm])
    if shift is None or shift.num_seeds < LEAST_SEEDS:
        return too_few(shift)
    reasons = ["length"] if shift.low > 0 else []
    if arm != CONTROL:
        accuracy = by_seed(arms[arm], arms.get(CONTROL, []), at_ends(number("pass_at_1"))[1])
        if accuracy is None or len(common(arms, arm)) < LEAST_SEEDS:
            return f"no verdict yet: {len(common(arms, arm))} of {LEAST_SEEDS} seeds"
        reasons = ["pass@1", *reasons] if accuracy.high < 0 else reasons
    return f"fails: {', '.join(reasons)}" if reasons else "does not fail"


def question(arms: Arms) -> Question:
    """Return what ``--until-clear --most 8 --measure response_length_wrong`` settles."""
    return Question(variants=list(arms), against=CONTROL, most=MOST_SEEDS, measure=WRONG)


def is_settled(arms: Arms, arm: str) -> bool:
    """Return whether the sequential test calls an arm's tokens of wrong responses clear.

    It does not if some run has no wrong response.
    """
    runs = [run for own in arms.values() for run in own]
    if any(run["final"][WRONG] is None for run in runs):
        return False
    own = looks_of(runs, question(arms))[arm]
    return own is not None and own.is_clear


def part_that_lengthens(arms: Arms) -> str:
    """Return the part of R1's objective that lengthens wrong responses, with objections to it."""
    missing = {arm: len(common(arms, arm)) for arm in PARTS}
    if min(missing.values()) < LEAST_SEEDS:
        few = ", ".join(f"{arm} {seeds}" for arm, seeds in missing.items() if seeds < LEAST_SEEDS)
        return f"no verdict yet: seeds of {LEAST_SEEDS}: {few}"
    shifts = less_control(arms, growth(WRONG))
    found = clear(shifts)
    longer = {arm: shift.mean for arm in PARTS if found[arm] == "longer" and (shift := shifts[arm])}
    if not longer:
        return "no single part"
    part = max(longer, key=longer.__getitem__)
    against = []
    if not is_settled(arms, part):
        against.append("the sequential test does not call it clear")
    if part == "length" and found.get(NORM_CLIP) == "longer":
        against.append("clipping the norm as often lengthens them too")
    return f"{part}; but {' and '.join(against)}" if against else part


def verdict_table(arms: Arms) -> str:
    """Return the verdicts as Markdown."""
    columns = [
        clear(less_control(arms, growth(WRONG))),
        clear(less_control(arms, gap)),
        clear(over_pairs(arms, on_same_problems)),
        clear(over_pairs(arms, at_equal_accuracy)),
    ]
    rows = [
        [arm, str(len(own)), fails(arms, arm), *(column.get(arm, "–") for column in columns)]
        for arm, own in arms.items()
    ]
    headings = ["arm", "n seeds", "does it fail?", "wrong responses", "wrong less right"]
    headings += ["wrong, same problems", "wrong, equal pass@1"]
    said = f"The last four columns are less {CONTROL}."
    return f"{as_markdown(headings, rows, num_text=7)}\n\n{said}"
