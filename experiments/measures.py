"""What a sweep's table and figure show of an evaluation, and how runs become cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from r1lit.callbacks.keys import CONS_AT
from r1lit.files import Record
from r1lit.metrics import mean_and_error

Measure = Callable[[Record], float | None]
"""A number of an evaluation, None where it was not measured."""


def cons_at_most(evaluation: Record) -> float | None:
    """Return cons@k for the largest k of an evaluation."""
    ks = [int(key.removeprefix(CONS_AT)) for key in evaluation if key.startswith(CONS_AT)]
    return evaluation[f"{CONS_AT}{max(ks)}"] if ks else None


def number(*keys: str) -> Measure:
    """Return what reads a number of an evaluation; of nested ones, the outermost key comes first.

    >>> number("rewards", "process")({"rewards": {"process": 0.5}}), number("loss")({})
    (0.5, None)
    """

    def read(evaluation: Record) -> float | None:
        found = evaluation
        for key in keys:
            found = (found or {}).get(key)
        return found

    return read


COLUMNS: tuple[tuple[str, Measure, str], ...] = (
    ("pass@1", number("pass_at_1"), ".3f"),
    ("cons@k", cons_at_most, ".3f"),
    ("AUROC", number("reward_model", "auroc"), ".3f"),
    ("accuracy", number("reward_model", "accuracy"), ".3f"),
    ("validation loss", number("loss"), ".4f"),
    ("tokens per response", number("response_length_tokens"), ".0f"),
    ("reflection words per response", number("reflection_words_per_response"), ".2f"),
    ("well-formed", number("format"), ".3f"),
    ("process score", number("rewards", "process"), ".3f"),
    ("language consistency", number("rewards", "language_consistency"), ".3f"),
)
"""What the table says of the first and of the last evaluation: heading, value, format."""

PANELS: tuple[tuple[str, str, Measure], ...] = (
    (
        "Language consistency",
        "words in the question's language",
        number("rewards", "language_consistency"),
    ),
    ("Accuracy on held-out problems", "pass@1", number("pass_at_1")),
    ("Response length", "tokens per response", number("response_length_tokens")),
    ("Reflection words", "words per response", number("reflection_words_per_response")),
    ("Score of the process model", "mean over responses", number("rewards", "process")),
    ("Held-out prompts", "AUROC", number("reward_model", "auroc")),
    ("Held-out pairs", "accuracy", number("reward_model", "accuracy")),
    ("Held-out documents", "loss", number("loss")),
)
"""What the figure shows along training: title, label, value."""


def is_measured(results: Sequence[Record], value: Measure) -> bool:
    """Return whether any evaluation of a run has a value."""
    return any(value(e) is not None for r in results for e in r["evaluations"])


def group_by(key: str, results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the results by variant, arm or the like, in the order of their first appearance."""
    groups: dict[str, list[Record]] = {}
    for result in results:
        groups.setdefault(result[key], []).append(result)
    return groups


def mean_cell(values: Sequence[float | None], form: str, *, error: bool = True) -> str:
    """Return mean ± standard error as a table shows it; those that are None or NaN do not count."""
    present = [value for value in values if value is not None and not math.isnan(value)]
    if not present:
        return "–"
    mean, deviation = mean_and_error(present)
    if deviation is None or not error:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {deviation:{form}}"
