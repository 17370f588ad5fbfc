"""A rule: one fault, how it is seen in a run's files, what it means, and the key to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from r1lit.doctor.run import Run
from r1lit.files import Record

Evidence = str | None
"""The observation that a rule goes by, or None where the rule does not apply."""
PAGE = "docs/TROUBLESHOOTING.md"
ACCURACY = "train/reward/accuracy"


@dataclass(frozen=True)
class Rule:
    """A fault's name, how it is seen, what it means, and what to change.

    ``symptom`` is what a user notices before any rule is asked, for docs/TROUBLESHOOTING.md.
    ``shows`` says whether a recorded response is an example, where single responses are.
    """

    name: str
    see: Callable[[Run], Evidence]
    meaning: str
    change: str
    symptom: str
    shows: Callable[[Record], bool] | None = None

    @property
    def link(self) -> str:
        """Return where docs/TROUBLESHOOTING.md explains the fault."""
        return f"{PAGE}#{self.name}"


def above(key: str, bound: float) -> Callable[[Run], Evidence]:
    """Return a function that sees whether a metric's mean is above a bound."""

    def see(run: Run) -> Evidence:
        mean = run.mean(key)
        return f"{key} is {mean:.3g} on average (good: at most {bound:g})" if mean > bound else None

    return see
