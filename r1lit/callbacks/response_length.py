"""How long responses are, by correctness, and how much of them is thinking."""

from __future__ import annotations

from r1lit.batches import Rollout
from r1lit.callbacks import keys
from r1lit.callbacks.statistics import RolloutStatistics
from r1lit.metrics import Graded, lengths, mean
from r1lit.text.extract import thinking_and_answer


class ResponseLength(RolloutStatistics[tuple[Graded, float]]):
    """Logs response length in tokens under ``<stage>/length/``.

    ``mean``, ``p90`` (90th percentile, interpolated) and ``max``; ``right`` and ``wrong``, the mean
    over right and over not right responses (NaN while there is none); ``truncated``, the share cut
    at the token limit; ``thinking_share``, the mean share of a response's characters that stand in
    its thinking, tags not counted as thinking.

    R1's figure is ``train/length/mean`` against the iteration.
    """

    def rows(self, rollout: Rollout) -> list[tuple[Graded, float]]:
        """Return each graded response with the share of its characters that is thinking."""
        return [(Graded.of(r), _thinking_share(r.text)) for r in rollout.responses]

    def summarise(self, rows: list[tuple[Graded, float]], stage: str) -> dict[str, float]:
        """Return means, 90th percentile and maximum of the lengths."""
        graded = [row for row, _ in rows]
        of = lengths(graded)
        return {
            keys.LENGTH_MEAN: of["mean"],
            "length/p90": of["p90"],
            "length/max": float(of["max"]),
            keys.LENGTH_RIGHT: of["right"],
            keys.LENGTH_WRONG: of["wrong"],
            keys.LENGTH_TRUNCATED: mean([not row.finished for row in graded]),
            keys.THINKING_SHARE: mean([share for _, share in rows]),
        }


def _thinking_share(text: str) -> float:
    thinking, _ = thinking_and_answer(text)
    return len(thinking) / len(text) if text else 0.0
