"""How often the paper's reflection words occur, and when each sets in."""

from __future__ import annotations

from typing import Any, NamedTuple

from r1lit.batches import Rollout
from r1lit.callbacks import keys
from r1lit.callbacks.statistics import RolloutStatistics
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words


class ReflectionRow(NamedTuple):
    """One response's reflection words."""

    num_tokens: int
    counts: dict[str, int]


class ReflectionWords(RolloutStatistics[ReflectionRow]):
    """Logs reflection words under ``<stage>/reflection/`` and finds each word's onset.

    ``per_response`` and ``per_1000_tokens`` count all ten words; ``word/<word>`` is one word per
    response. Longer responses hold more words at the same habit: read both rates.

    The **onset** of a word is the first training iteration i (0-based, i >= window) with

        mean rate over iterations i - window + 1 .. i  >=  max(min_rate, growth * baseline),

    where the rate is the word's occurrences per response and the baseline its mean rate over the
    first ``window`` iterations. It is logged as ``train/reflection/onset/<word>`` from then on,
    never before. ``window`` guards against one chatty rollout. The state is checkpointed, so a
    resumed run finds the same onsets.

    Args:
        growth: By which factor a word must have grown over its baseline.
        min_rate: Occurrences per response below which no word has set in.
        window: Iterations averaged.
    """

    def __init__(self, growth: float = 2.0, min_rate: float = 0.05, window: int = 5) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"window={window} must be at least 1 iteration")
        if growth <= 0 or min_rate <= 0:
            raise ValueError(f"growth={growth} and min_rate={min_rate} must be positive")
        self.growth = growth
        self.min_rate = min_rate
        self.window = window
        self._num_measured = 0
        self._recent: dict[str, list[float]] = {word: [] for word in REFLECTION_WORDS}
        self._baseline: dict[str, float] = {}
        self._onset: dict[str, int] = {}

    def rows(self, rollout: Rollout) -> list[ReflectionRow]:
        """Return one row a response."""
        return [
            ReflectionRow(response.num_tokens, count_reflection_words(response.text))
            for response in rollout.responses
        ]

    def summarise(self, rows: list[ReflectionRow], stage: str) -> dict[str, float]:
        """Return rates per response, per 1,000 tokens and per word."""
        counts = {word: sum(row.counts[word] for row in rows) for word in REFLECTION_WORDS}
        num_tokens = sum(row.num_tokens for row in rows)
        total = sum(counts.values())
        return {
            keys.REFLECTION_PER_RESPONSE: total / len(rows),
            "reflection/per_1000_tokens": 1000.0 * total / max(num_tokens, 1),
            **{keys.REFLECTION_WORD + word: count / len(rows) for word, count in counts.items()},
        }

    def on_iteration_summarised(self, rollout: Rollout, values: dict[str, float]) -> None:
        """Look for onsets and add those found to the logged values."""
        self._num_measured += 1
        for word, recent in self._recent.items():
            recent.append(values[keys.REFLECTION_WORD + word])
            del recent[: -self.window]
            mean = sum(recent) / len(recent)
            if self._num_measured == self.window:
                self._baseline[word] = mean
            elif self._num_measured > self.window:
                threshold = max(self.min_rate, self.growth * self._baseline[word])
                if mean >= threshold:
                    self._onset.setdefault(word, rollout.iteration)
        values.update({keys.REFLECTION_ONSET + w: float(i) for w, i in self._onset.items()})

    def state_dict(self) -> dict[str, Any]:
        """Return what the onsets depend on."""
        return {
            "num_measured": self._num_measured,
            "recent": {word: list(rates) for word, rates in self._recent.items()},
            "baseline": dict(self._baseline),
            "onset": dict(self._onset),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up where a checkpoint left off."""
        self._num_measured = state_dict["num_measured"]
        self._recent = {word: list(rates) for word, rates in state_dict["recent"].items()}
        self._baseline = dict(state_dict["baseline"])
        self._onset = dict(state_dict["onset"])
