"""Numbers about responses: accuracy by majority vote, reflection words, language consistency."""

from r1lit.metrics.language import language_of
from r1lit.metrics.language_consistency import language_consistency
from r1lit.metrics.majority import cons_at_k
from r1lit.metrics.majority_vote import MajorityVote
from r1lit.metrics.pass_at_k import pass_at_k
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words

__all__ = [
    "REFLECTION_WORDS",
    "MajorityVote",
    "cons_at_k",
    "count_reflection_words",
    "language_consistency",
    "language_of",
    "pass_at_k",
]
