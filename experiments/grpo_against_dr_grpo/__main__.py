"""Page of GRPO against Dr. GRPO: what the committed rows of four studies say together.

python -m experiments grpo_against_dr_grpo   # reads results.jsonl of each, trains nothing
"""

from __future__ import annotations

import sys

from experiments.pooled import Comparison, as_table, make_page, other_measures
from experiments.tables import ends

_, last_pass = ends("pass_at_1")
_, last_tokens = ends("response_length_tokens")
COMPARISONS = [
    Comparison(
        study="objectives", key="variant", ours="grpo", others="dr-grpo", value=last_pass,
        tokens=last_tokens,
    ),
    Comparison(study="forks", key="branch", ours="grpo", others="same", value=last_pass),
    Comparison(
        study="what_rl_adds", key="variant", ours="r1-objective", others="recipe",
        value=last_pass, tokens=last_tokens,
    ),
    Comparison(
        study="scaling", key="variant", ours="r1", others="mini", value=last_pass,
        tokens=last_tokens,
    ),
]  # fmt: skip
"""GRPO's side first."""

MEASURES = {
    "tokens of right responses": ("response_length_right", ".0f"),
    "tokens of wrong responses": ("response_length_wrong", ".0f"),
    "well-formed": ("format", ".3f"),
}


def report() -> str:
    """Return the tables: accuracy of all studies, then length and format where rows have them."""
    whole = [comparison for comparison in COMPARISONS if comparison.tokens is not None]
    others = "What else differs at the end, where the rows say, by the same rule:"
    return "\n\n".join([as_table(COMPARISONS), others, other_measures(whole, MEASURES)])


if __name__ == "__main__":
    sys.exit(make_page("grpo_against_dr_grpo", __doc__, report, sys.argv[1:]))
