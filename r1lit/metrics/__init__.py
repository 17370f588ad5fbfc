"""Metrics of responses: accuracy and its errors, reflection words, language consistency.

The torchmetric `r1lit.metrics.majority_vote.MajorityVote` is imported from its own file: torch
takes seconds to import.
"""

from r1lit.metrics.estimates import (
    Graded,
    accuracy,
    cons_at_k,
    elo_rating,
    lengths,
    mean,
    mean_and_error,
    pass_at_k,
    share_right,
    with_error,
)
from r1lit.metrics.intervals import (
    Difference,
    bootstrap_intervals,
    paired_difference,
    standard_error,
    wilson_interval,
)
from r1lit.metrics.language import language_consistency, language_of
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words

__all__ = [
    "REFLECTION_WORDS",
    "Difference",
    "Graded",
    "accuracy",
    "bootstrap_intervals",
    "cons_at_k",
    "count_reflection_words",
    "elo_rating",
    "language_consistency",
    "language_of",
    "lengths",
    "mean",
    "mean_and_error",
    "paired_difference",
    "pass_at_k",
    "share_right",
    "standard_error",
    "wilson_interval",
    "with_error",
]
