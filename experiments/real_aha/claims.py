"""The claims of the study and their verdicts, by the rule that README.md stated before any run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.tables import as_markdown, seed_table
from r1lit.files import Record
from r1lit.metrics.seeds import Shift, paired_shift, shift_over_seeds

ACCURACY, ATTEMPTS = "accuracy", "attempts"
LEAST_SEEDS = 3
"""Seeds that a verdict needs."""
Side = dict[int, float]
"""The rise of a number from before to after, by seed."""
Rises = Callable[[str, str], Side]
"""The rise of an arm's number: by arm and number."""
RULE = (
    "Rule, stated before any run: a claim holds if the 95 % interval of each of its differences"
    " lies above zero (Student's t, paired by seed), and is refuted otherwise; with fewer than"
    f" {LEAST_SEEDS} seeds there is no verdict."
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim: its letter and sentence, and the differences that must lie above zero.

    A difference is an arm's rise of a number, less that of another arm if one is named.
    """

    letter: str
    says: str
    differences: tuple[tuple[str, str | None, str], ...]


CLAIMS = (
    Claim(
        letter="a",
        says="RL raises accuracy and attempts",
        differences=(("search", None, ACCURACY), ("search", None, ATTEMPTS)),
    ),
    Claim(
        letter="b",
        says="filler of the same length does not suffice",
        differences=(("search", "filler", ACCURACY),),
    ),
    Claim(
        letter="c",
        says="direct solutions do not suffice",
        differences=(("search", "direct", ACCURACY),),
    ),
)
BESIDE = (
    ("filler", None, ACCURACY),
    ("direct", None, ACCURACY),
    ("raft", None, ACCURACY),
    ("raft", None, ATTEMPTS),
    ("search", "raft", ACCURACY),
)
"""Differences that no claim is about, in the same table and under its correction."""


def rise(records: Sequence[Record], key: str) -> Side:
    """Return by seed what a number rises from the evaluation before to that after."""
    return {r["seed"]: r["after"][key] - r["before"][key] for r in records if r["before"]}


def shift_of(rises: Rises, arm: str, other: str | None, key: str) -> Shift | None:
    """Return an arm's rise, less another's if one is named; None of too few seeds.

    Differences of two arms are over the seeds that both have.
    """
    ours = rises(arm, key)
    if other is None:
        return paired_shift(list(ours.values())) if len(ours) > 1 else None
    both = ours.keys() & (others := rises(other, key)).keys()
    return shift_over_seeds(ours, others) if len(both) > 1 else None


def verdict(claim: Claim, rises: Rises) -> str:
    """Return what the rule says of a claim: holds, refuted, or how many seeds are missing."""
    shifts = [shift_of(rises, *difference) for difference in claim.differences]
    found = [shift.num_seeds for shift in shifts if shift is not None]
    if len(found) < len(shifts) or min(found) < LEAST_SEEDS:
        seeds = min((_seeds(rises, *difference) for difference in claim.differences), default=0)
        return f"no verdict yet: {seeds} of {LEAST_SEEDS} seeds"
    return "holds" if all(shift is not None and shift.low > 0 for shift in shifts) else "refuted"


def _seeds(rises: Rises, arm: str, other: str | None, key: str) -> int:
    ours = rises(arm, key).keys()
    return len(ours if other is None else ours & rises(other, key).keys())


def name_of(arm: str, other: str | None, key: str) -> str:
    """Return a difference in words.

    >>> name_of("search", "filler", "accuracy")
    'accuracy: rise in search less rise in filler'
    """
    return f"{key}: rise in {arm}" + (f" less rise in {other}" if other else "")


def claims_table(rises: Rises) -> str:
    """Return the claims with their verdicts and the differences behind them, as Markdown."""
    verdicts = [[claim.letter, claim.says, verdict(claim, rises)] for claim in CLAIMS]
    table = as_markdown(["claim", "says", "verdict"], verdicts, num_text=3)
    differences = [own for claim in CLAIMS for own in claim.differences]
    shifts = [
        ([name_of(*own), str(shift.num_seeds)], shift)
        for own in (*differences, *BESIDE)
        if (shift := shift_of(rises, *own)) is not None
    ]
    tested = seed_table(shifts, ["difference", "n seeds"]) or "Differences: no rows yet."
    return "\n\n".join((table, RULE, tested))
