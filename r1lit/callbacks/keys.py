"""Names of the logged metrics that more than one file must agree on.

A key is ``<stage>/<name>``; the stage is ``train``, ``val`` or ``test``. The whole list, with
meanings, is docs/METRICS.md.
"""

from __future__ import annotations

REWARD = "reward/"
REWARD_ACCURACY = f"{REWARD}accuracy"
REWARD_FORMAT = f"{REWARD}format"

PASS_AT_1 = "pass_at_1"
PASS_AT_1_STDERR = "pass_at_1_stderr"
PASS_AT_1_OF_KIND = "pass_at_1_of_kind/"
CONS_AT = "cons_at_"
NUM_PROBLEMS = "num_problems"
NUM_SAMPLES = "num_samples"

LENGTH_MEAN = "length/mean"
LENGTH_RIGHT = "length/right"
LENGTH_WRONG = "length/wrong"
LENGTH_TRUNCATED = "length/truncated"
THINKING_SHARE = "length/thinking_share"

REFLECTION_PER_RESPONSE = "reflection/per_response"
REFLECTION_WORD = "reflection/word/"
REFLECTION_ONSET = "reflection/onset/"

GROUPS_MIXED = "groups/mixed"
GROUPS_ALL_RIGHT = "groups/all_right"
GROUPS_ALL_WRONG = "groups/all_wrong"
