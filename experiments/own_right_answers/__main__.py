"""Page of supervised fine-tuning on own right answers against RL, from four studies' rows.

python -m experiments own_right_answers   # reads results.jsonl of each, trains nothing
"""

from __future__ import annotations

import sys

from experiments.pooled import Comparison, as_table, make_page
from experiments.tables import ends, number

_, last_pass = ends("pass_at_1")
_, last_tokens = ends("response_length_tokens")
COMPARISONS = [
    Comparison(
        study="real_stages", key="stage", ours="sft", others="rl",
        value=number("pass_at_1", "value"), tokens=number("tokens"),
    ),
    Comparison(
        study="real_model", key="variant", ours="own-right-answers", others="right-answer",
        value=last_pass, tokens=last_tokens,
    ),
    Comparison(
        study="repair", key="stage", ours="sft", others="rl", value=number("right"),
        tokens=number("tokens"),
    ),
    Comparison(
        study="algorithms", key="variant", ours="raft", others="grpo", value=last_pass,
        tokens=last_tokens,
    ),
]  # fmt: skip
"""Own right answers first."""


def report() -> str:
    """Return the table of the four studies and their mean."""
    return as_table(COMPARISONS)


if __name__ == "__main__":
    sys.exit(make_page("own_right_answers", __doc__, report, sys.argv[1:]))
