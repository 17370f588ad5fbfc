"""Numbers about responses: accuracy, how sure it is, reflection words, language consistency."""

from r1lit.metrics.elo import elo_rating
from r1lit.metrics.estimates import (
    Difference,
    bootstrap_interval,
    bootstrap_intervals,
    paired_difference,
    standard_error,
)
from r1lit.metrics.language import language_of
from r1lit.metrics.language_consistency import language_consistency
from r1lit.metrics.majority import cons_at_k
from r1lit.metrics.majority_vote import MajorityVote
from r1lit.metrics.pass_at_k import pass_at_k
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words

__all__ = [
    "REFLECTION_WORDS",
    "Difference",
    "MajorityVote",
    "bootstrap_interval",
    "bootstrap_intervals",
    "cons_at_k",
    "count_reflection_words",
    "elo_rating",
    "language_consistency",
    "language_of",
    "paired_difference",
    "pass_at_k",
    "standard_error",
]
