from .estimates import (
    Graded as Graded,
    accuracy as accuracy,
    cons_at_k as cons_at_k,
    elo_rating as elo_rating,
    lengths as lengths,
    mean as mean,
    mean_and_error as mean_and_error,
    pass_at_k as pass_at_k,
    share_right as share_right,
    with_error as with_error,
)
from .intervals import (
    Difference as Difference,
    bootstrap_intervals as bootstrap_intervals,
    paired_difference as paired_difference,
    standard_error as standard_error,
    wilson_interval as wilson_interval,
)
from .language import language_consistency as language_consistency, language_of as language_of
from .reflection import (
    REFLECTION_WORDS as REFLECTION_WORDS,
    count_reflection_words as count_reflection_words,
)
