"""Page of supervised fine-tuning on own right answers against RL, from four studies' rows.

python -m experiments own_right_answers   # reads results.jsonl of each, trains nothing
"""

from __future__ import annotations

import sys

from experiments.pooled import Comparison, make_page
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

if __name__ == "__main__":
    sys.exit(make_page("own_right_answers", __doc__, COMPARISONS, sys.argv[1:]))
