"""MCTS as training: a search guided by the critic makes the answers that policy and critic learn.

R1's unsuccessful attempt (arXiv 2501.12948v1, §4.2.2): "we then employ MCTS guided by a pre-trained
value model to find answers; subsequently, we use the resulting question-answer pairs to train both
the actor model and the value model, iteratively refining the process".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect import Fresh
from r1lit.modules import PPOModule
from r1lit.objectives import GAE
from r1lit.policy import ModelSource, ScalarModel, evaluating
from r1lit.policy.scalar_head import score_rows
from r1lit.rollout.worker import Timings
from r1lit.search import Query, Scorer, Search
from r1lit.search.generation import PartialResponse

SEARCH_STREAM = 5 << 32
SEARCH_TOKENS = "train/search/num_tokens"


class CriticScorer(Scorer):
    """The value of the critic that is being trained, between 0 and 1; read as ``ValueScorer``'s.

    ``SearchTraining`` gives it the critic.
    """

    _critic: ScalarModel | None = None

    def bind(self, critic: ScalarModel) -> None:
        """Read this critic from now on."""
        self._critic = critic

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one value a response."""
        assert self._critic is not None, "SearchTraining binds it"
        rows = [
            (*r.query.prompt, *(r.token_ids[:-1] if r.finished else r.token_ids)) for r in responses
        ]
        with evaluating(self._critic):
            values = score_rows(self._critic, rows, 16384)
        return values.clamp(0, 1).tolist()


class RightResponses(GAE):
    """Advantage 1 at the tokens of right responses, 0 of others: the policy imitates what is right.

    With ``PolicyGradient`` the loss is the negative log-likelihood of the right responses. The
    critic learns the returns of ``GAE`` with lambda 1.
    """

    def __init__(self) -> None:
        super().__init__(lambda_policy=1.0, lambda_critic=1.0)

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return 1 or 0 at each token."""
        return (rollout.mask_BT & rollout.is_right_B[:, None]).float()


class SearchTraining(PPOModule):
    """Every response of a rollout is what a search of its own chose.

    In the critic's warm-up responses are sampled, so that it is pre-trained on the policy's own.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        search: makes the responses; a ``CriticScorer`` in it reads the critic of this module.
        **options: of ``PPOModule``.
    """

    def __init__(self, policy: str | ModelSource, search: Search, **options: Any) -> None:
        super().__init__(policy, **options)
        if type(self.collector) is not Fresh:
            raise ValueError("search: a response is searched for in its own iteration; leave out"
                             " model.collector")  # fmt: skip
        self.search = search

    def _copy_policy(self) -> None:
        super()._copy_policy()
        if isinstance(self.search.scorer, CriticScorer):
            self.search.scorer.bind(self.critic)

    def collect(self, batch: PromptBatch) -> tuple[Rollout, dict[str, float]]:
        """Return the iteration's rollout, and what to log of the searches."""
        if self.critic_alone:
            rollout, metrics = super().collect(batch)
            return rollout, metrics | {SEARCH_TOKENS: float(rollout.length_B.sum())}
        sampling = self.sampling_at(batch.iteration)
        worker = self.worker(sampling, self.seed, training=True)
        prompts = range(batch.num_prompts)
        queries = [
            Query(problem=batch.problems[p], prompt=batch.prompts[p], sample=sample)
            for p, samples in zip(prompts, _groups(batch), strict=True)
            for sample in samples
        ]
        started = time.perf_counter()
        with self.whole_weights_for_sampling():
            results = self.search.run(
                queries, worker.engine, sampling, self.seed + SEARCH_STREAM + batch.iteration
            )
        completions = [result.chosen.response.completion() for result in results]
        timings = Timings(sync=self.sync_seconds, rollout=time.perf_counter() - started)
        rollout = worker.grade(completions, batch, prompts, timings)
        # a search keeps no log-probs; the policy that it asked is still the one that trains
        logp_BT = self.log_probs(rollout, self.policy)
        rollout = replace(rollout, logp_sampler_BT=logp_BT, logp_old_BT=logp_BT)
        found = [len(result.candidates) for result in results]
        return rollout, timings.metrics() | {
            "train/num_groups_dropped": 0.0,
            SEARCH_TOKENS: float(sum(result.num_tokens for result in results)),
            "train/search/num_candidates": sum(found) / len(found),
            "train/search/share_distinct": share_distinct(rollout),
        }

    def teardown(self, stage: str) -> None:
        """Let go what the search has started, too."""
        self.search.close()
        super().teardown(stage)


def _groups(batch: PromptBatch) -> list[list[int]]:
    return [batch.samples([p]) for p in range(batch.num_prompts)]


def share_distinct(rollout: Rollout) -> float:
    """Return how many of a group's responses differ, as a share, the mean over groups.

    1: all differ; 1/G: the searches of a prompt all end in one response, a local optimum.
    """
    texts = [response.text for response in rollout.responses]
    size = rollout.group_size
    groups = [texts[i : i + size] for i in range(0, len(texts), size)]
    return sum(len(set(group)) / size for group in groups) / len(groups)
