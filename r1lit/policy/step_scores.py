"""Reading a process model at the steps of many rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from r1lit.policy.scalar import ScalarModel, Tokens, split_by_length


@torch.no_grad()
def score_steps(
    model: ScalarModel, rows: Sequence[Tokens], places: Sequence[Tokens], batch_tokens: int
) -> list[list[float]]:
    """Return what is read at some tokens of each row, at least one; see ``score_rows``."""
    scores: list[list[float]] = [[] for _ in rows]
    for part in split_by_length([len(row) for row in rows], batch_tokens):
        read = iter(model([rows[i] for i in part], [places[i] for i in part]).tolist())
        for i in part:
            scores[i] = [next(read) for _ in places[i]]
    return scores
