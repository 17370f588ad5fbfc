"""Numbers about responses: accuracy by majority vote, and reflection words."""

from r1lit.metrics.majority import cons_at_k
from r1lit.metrics.majority_vote import MajorityVote
from r1lit.metrics.pass_at_k import pass_at_k
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words

__all__ = ["REFLECTION_WORDS", "MajorityVote", "cons_at_k", "count_reflection_words", "pass_at_k"]
