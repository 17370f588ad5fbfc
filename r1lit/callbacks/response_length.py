"""How long responses are, by correctness, and how much of them is thinking."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from r1lit.batches import Rollout
from r1lit.callbacks import keys
from r1lit.callbacks.statistics import RolloutStatistics
from r1lit.text.extract import thinking_and_answer


class LengthRow(NamedTuple):
    """One response's length."""

    num_tokens: int
    right: bool
    truncated: bool
    thinking_share: float


class ResponseLength(RolloutStatistics[LengthRow]):
    """Logs response length in tokens under ``<stage>/length/``.

    ``mean``, ``p90`` (90th percentile, interpolated) and ``max``; ``right`` and ``wrong``, the mean
    over right and over not right responses (NaN while there is none); ``truncated``, the share cut
    at the token limit; ``thinking_share``, the mean share of a response's characters that stand in
    its thinking, tags not counted as thinking.

    R1's figure is ``train/length/mean`` against the iteration.
    """

    def rows(self, rollout: Rollout) -> list[LengthRow]:
        """Return one row a response."""
        return [
            LengthRow(
                num_tokens=response.num_tokens,
                right=response.verdict.value == 1.0,
                truncated=not response.finished,
                thinking_share=_thinking_share(response.text),
            )
            for response in rollout.responses
        ]

    def summarise(self, rows: list[LengthRow], stage: str) -> dict[str, float]:
        """Return means, 90th percentile and maximum of the lengths."""
        lengths = [row.num_tokens for row in rows]
        return {
            keys.LENGTH_MEAN: mean(lengths),
            "length/p90": float(np.percentile(lengths, 90)),
            "length/max": float(max(lengths)),
            keys.LENGTH_RIGHT: mean([row.num_tokens for row in rows if row.right]),
            keys.LENGTH_WRONG: mean([row.num_tokens for row in rows if not row.right]),
            keys.LENGTH_TRUNCATED: mean([row.truncated for row in rows]),
            keys.THINKING_SHARE: mean([row.thinking_share for row in rows]),
        }


def mean(values: list[int] | list[float] | list[bool]) -> float:
    """Return the mean, or NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def _thinking_share(text: str) -> float:
    thinking, _ = thinking_and_answer(text)
    return len(thinking) / len(text) if text else 0.0
