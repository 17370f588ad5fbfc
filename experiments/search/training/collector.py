"""MCTS as training: a search guided by the critic makes the answers that policy and critic learn.

R1's unsuccessful attempt (arXiv 2501.12948v1, §4.2.2): "we then employ MCTS guided by a pre-trained
value model to find answers; subsequently, we use the resulting question-answer pairs to train both
the actor model and the value model, iteratively refining the process".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect import Collected, Collector, Fresh
from r1lit.objectives import GAE
from r1lit.policy import ScalarModel, evaluating
from r1lit.policy.scalar_head import score_rows
from r1lit.rollout.worker import Timings
from r1lit.search import Query, Scorer, Search
from r1lit.search.base import SearchResult
from r1lit.search.generation import PartialResponse
from r1lit.steps import Critic, Run

SEARCH_STREAM = 5 << 32
SEARCH_TOKENS = "train/search/num_tokens"


class CriticScorer(Scorer):
    """The value of the critic that is being trained, between 0 and 1; read as ``ValueScorer``'s.

    ``Searched`` gives it the critic.
    """

    _critic: ScalarModel | None = None

    def bind(self, critic: ScalarModel) -> None:
        """Read this critic from now on."""
        self._critic = critic

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one value a response."""
        assert self._critic is not None, "Searched binds it"
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


class Searched(Collector):
    """Every response of a rollout is what a search of its own chose.

    In the critic's warm-up responses are sampled, so that it is pre-trained on the policy's own.

    Args:
        search: makes the responses; a ``CriticScorer`` in it reads the run's critic.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._sampled = Fresh()

    def check(self, run: Run) -> None:
        """Refuse a run without a critic, whose warm-up decides when searches begin."""
        if not any(isinstance(step, Critic) for step in run.steps):
            raise ValueError(
                "model.steps: Searched waits for a critic's warm-up; add r1lit.steps.Critic"
            )
        self._sampled.check(run)

    def __call__(self, batch: PromptBatch, run: Run, timings: Timings) -> Collected:
        """Return the iteration's rollout, and what to log of the searches."""
        [critic] = [step for step in run.steps if isinstance(step, Critic)]
        if isinstance(self.search.scorer, CriticScorer):
            assert isinstance(critic.critic, ScalarModel)
            self.search.scorer.bind(critic.critic)
        if critic.holds_policy(batch.iteration):
            fresh = self._sampled(batch, run, timings)
            tokens = {SEARCH_TOKENS: float(fresh.rollout.length_B.sum())}
            return replace(fresh, metrics={**fresh.metrics, **tokens})
        results, rollout = self._search(batch, range(batch.num_prompts), run, timings)
        # a search keeps no log-probs; the policy that it asked is still the one that trains
        logp_BT = run.log_probs(rollout, run.policy)
        rollout = replace(rollout, logp_sampler_BT=logp_BT, logp_old_BT=logp_BT)
        found = [len(result.candidates) for result in results]
        metrics = {
            SEARCH_TOKENS: float(sum(result.num_tokens for result in results)),
            "train/search/num_candidates": sum(found) / len(found),
            "train/search/share_distinct": share_distinct(rollout),
        }
        return Collected(rollout=rollout, sampled=(rollout,), metrics=metrics)

    def groups(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> Rollout:
        """Return a rollout of some of the batch's prompts, without the sampler's log-probs."""
        return self._search(batch, prompts, run, timings)[1]

    def _search(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> tuple[list[SearchResult], Rollout]:
        sampling = run.sampling_at(batch.iteration)
        worker = run.worker(sampling, run.seed, training=True)
        queries = [
            Query(problem=batch.problems[p], prompt=batch.prompts[p], sample=sample)
            for p in prompts
            for sample in batch.samples([p])
        ]
        started = time.perf_counter()
        with run.whole_weights_for_sampling():
            results = self.search.run(
                queries, worker.engine, sampling, run.seed + SEARCH_STREAM + batch.iteration
            )
        timings.rollout += time.perf_counter() - started
        completions = [result.chosen.response.completion() for result in results]
        return results, worker.grade(completions, batch, prompts, timings)

    def close(self) -> None:
        """Let go what the search has started."""
        self.search.close()


def share_distinct(rollout: Rollout) -> float:
    """Return how many of a group's responses differ, as a share, the mean over groups.

    1: all differ; 1/G: the searches of a prompt all end in one response, a local optimum.
    """
    texts = [response.text for response in rollout.responses]
    size = rollout.group_size
    groups = [texts[i : i + size] for i in range(0, len(texts), size)]
    return sum(len(set(group)) / size for group in groups) / len(groups)
