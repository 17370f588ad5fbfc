"""Metrics of rollouts: length, reflection words, group health, and majority vote."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.batches import Rollout
from r1lit.callbacks import keys
from r1lit.callbacks.base import RolloutStatistics, gather, log_evaluation, rollout_of, stage_of
from r1lit.errors import check_above, check_at_least
from r1lit.metrics import Graded, lengths, mean, share_right
from r1lit.metrics.majority_vote import MajorityVote
from r1lit.metrics.reflection import REFLECTION_WORDS, count_reflection_words
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
        check_at_least("window", window, 1)
        check_above("growth", growth, 0, finite=False)
        check_above("min_rate", min_rate, 0, finite=False)
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
            ReflectionRow(response.num_sampled, count_reflection_words(response.text))
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
        """Return the measured rates, which decide the onsets after a resume."""
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


MANY = 5


class GroupRow(NamedTuple):
    """One group's source, its counts of responses, and whether their rewards and texts differ."""

    source: str
    num_right: int
    size: int
    rewards_differ: bool
    num_truncated: int
    texts_differ: bool


def _find_cause(rows: list[GroupRow]) -> str:
    """Return why no rewards differ, and the key that may change it."""
    size, right = sum(row.size for row in rows), sum(row.num_right for row in rows)
    if not any(row.texts_differ for row in rows):
        return "all responses to a problem are the same; set model.sampling.temperature: 1.0"
    if sum(row.num_truncated for row in rows) == size:
        return "all responses were cut at the limit; raise model.sampling.max_tokens"
    if right == 0:
        return (
            "all responses are wrong; give data.train problems that the policy sometimes solves, or"
            " raise data.rollout.group_size"
        )
    if right == size:
        return "all responses are right; give data.train harder problems"
    return (
        "each problem is either always or never solved; give data.train problems in between, or"
        " raise data.rollout.group_size"
    )


class GroupHealth(RolloutStatistics[GroupRow]):
    """Logs shares of groups under ``<stage>/groups/``, over all and by source.

    By verdict, a group is ``all_right``, ``all_wrong`` or ``mixed``; the three sum to 1. With the
    accuracy reward alone only mixed groups have a non-zero advantage. ``mixed/<source>`` and so on
    are the shares among that source's groups; NaN in an iteration without the source.

    Where no group's rewards differ for several iterations, nothing is learned: that is warned of.
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_equal = 0
        self._sources: dict[str, set[str]] = {}

    def rows(self, rollout: Rollout) -> list[GroupRow]:
        """Return one row a group."""
        return [
            GroupRow(
                group[0].problem.source,
                sum(response.verdict.value == 1.0 for response in group),
                rollout.group_size,
                bool(reward_G.max() > reward_G.min()),
                sum(not response.finished for response in group),
                len({response.text for response in group}) > 1,
            )
            for group, reward_G in zip(rollout.groups(), rollout.reward_PG, strict=True)
        ]

    def summarise(self, rows: list[GroupRow], stage: str) -> dict[str, float]:
        """Return the shares over all groups and by source."""
        if stage == "train":
            self._num_equal = 0 if any(row.rewards_differ for row in rows) else self._num_equal + 1
            if self._num_equal == MANY:
                rank_zero_warn(
                    f"rewards: in {MANY} iterations all responses to a problem got the same reward,"
                    f" so nothing is learned: {_find_cause(rows)}"
                    " (docs/TROUBLESHOOTING.md#no_mixed_groups)"
                )
        values = _shares(rows, "")
        sources = self._sources.setdefault(stage, set())
        sources.update(row.source for row in rows)
        for source in sorted(sources):
            values.update(_shares([row for row in rows if row.source == source], f"/{source}"))
        return values


def _shares(rows: list[GroupRow], suffix: str) -> dict[str, float]:
    right = sum(row.num_right == row.size for row in rows)
    wrong = sum(row.num_right == 0 for row in rows)
    counts = {
        keys.GROUPS_MIXED: len(rows) - right - wrong,
        keys.GROUPS_ALL_RIGHT: right,
        keys.GROUPS_ALL_WRONG: wrong,
    }
    return {
        name + suffix: count / len(rows) if rows else math.nan for name, count in counts.items()
    }


class MajorityVoteEvaluation(Callback):
    """Logs everything `MajorityVote` computes under ``val/`` and ``test/``.

    That is ``pass_at_1``, ``pass_at_1_stderr``, ``pass_at_<k>`` and ``cons_at_<k>`` for all k up to
    the samples, ``num_problems`` and ``num_samples``; and ``pass_at_1/<source>``, pass@1 over
    the problems of one source, and ``pass_at_1_of_kind/<kind>``, over those of one kind (of their
    ``meta``): reasoning apart from general requests.
    """

    def __init__(self) -> None:
        self._metric = MajorityVote()
        self._shares: list[tuple[str, str | None, float]] = []

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start an empty evaluation."""
        self._metric = self._metric.to(pl_module.device)
        self._metric.reset()
        self._shares = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the votes of this batch."""
        rollout = rollout_of(outputs)
        if rollout is None:
            return
        self._metric.update(rollout)
        for group in rollout.groups():
            problem = group[0].problem
            share = share_right([Graded.of(response) for response in group])
            self._shares.append((problem.source, problem.meta.get("kind"), share))

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the evaluation."""
        rows, self._shares = gather(self._shares), []
        if not rows:
            return
        values = {name: float(value) for name, value in self._metric.compute().items()}
        shares: dict[str, list[float]] = {}
        for source, kind, share in rows:
            shares.setdefault(f"{keys.PASS_AT_1}/{source}", []).append(share)
            if kind is not None:
                shares.setdefault(f"{keys.PASS_AT_1_OF_KIND}{kind}", []).append(share)
        values |= {name: mean(own) for name, own in sorted(shares.items())}
        self._metric.reset()
        stage = stage_of(trainer)
        named = {f"{stage}/{name}": value for name, value in values.items()}
        log_evaluation(pl_module, named, batch_size=len(rows))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
