"""Rows of a rollout as models read them.

B rows (responses)   T response tokens   b some of the rows
"""

from __future__ import annotations

from torch import Tensor

from r1lit.batches import Candidates, Rollout
from r1lit.policy import Responses


def model_inputs(rollout: Rollout, rows_b: Tensor) -> Responses:
    """Return some rows of a rollout as models read them, as wide as the longest of them."""
    rows = rows_b.tolist()
    width = max(rollout.responses[row].num_tokens for row in rows)
    written_BT = rollout.environment_BT
    candidates = None
    if rollout.candidates is not None:
        candidates = Candidates.joined([rollout.candidates[row] for row in rows])
    return Responses(
        prompts=[rollout.prompts[row // rollout.group_size] for row in rows],
        response_BT=rollout.response_BT[rows_b, :width],
        mask_BT=rollout.mask_BT[rows_b, :width],
        environment_BT=None if written_BT is None else written_BT[rows_b, :width],
        candidates=candidates,
    )
