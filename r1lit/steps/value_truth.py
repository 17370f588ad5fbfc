"""The truth about a critic's values: prefixes of responses, continued by the policy.

P prefixes of responses   N completions of each   B rows (responses)   T response tokens
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.errors import check_at_least
from r1lit.objectives.gae import monte_carlo_returns_BT
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.seeding import generator
from r1lit.steps.base import Run

TRUTH_STREAM = 3 << 32

TRUTH_METRICS = tuple(
    f"train/value_truth/{name}"
    for name in ("mean_abs_error", "bias", "correlation", "standard_error")
)

Prefix = tuple[int, int]  # row, and how many of its tokens


@dataclass(frozen=True, kw_only=True)
class ValueTruth:
    """Measures values against Monte-Carlo continuations (VinePPO, 2410.01679, §4), now and then.

    A prefix of a response is completed ``num_completions`` times by the policy that wrote it; the
    mean return of the completions is what the critic's value there should be. It costs rollouts,
    and changes nothing of the training.

    Args:
        every_n_iterations: how often, from the first iteration on.
        num_prefixes: of different responses, on each rank; all responses if there are fewer.
        num_completions: N, of a prefix; 2 at least, to estimate the error of the truth.
    """

    every_n_iterations: int = 5
    num_prefixes: int = 32
    num_completions: int = 16

    def __post_init__(self) -> None:
        check_at_least("truth.every_n_iterations", self.every_n_iterations, 1)
        check_at_least("truth.num_prefixes", self.num_prefixes, 2)
        check_at_least("truth.num_completions", self.num_completions, 2)

    def continue_prefixes(self, rollout: Rollout, run: Run) -> tuple[list[Prefix], Rollout | None]:
        """Return prefixes of the rollout and their continuations, where they are due.

        All ranks call it. Rewards of tokens that steps before the critic have written, such as a KL
        penalty, are written for the continuations too.
        """
        if rollout.iteration % self.every_n_iterations:
            return [], None
        sampling = run.sampling_at(rollout.iteration)
        worker = run.worker(sampling, run.seed + TRUTH_STREAM, training=True)
        prefixes = self.prefixes(rollout, run.seed)
        with run.whole_weights_for_sampling():
            continued = self.continued(worker, rollout, prefixes, run.context_length)
        for step in run.steps:
            if "reward_BT" in step.writes:
                continued, _ = step(continued, run)
        return prefixes, continued

    def metrics(
        self, value_BT: Tensor, prefixes: list[Prefix], continued: Rollout | None, gamma: float
    ) -> dict[str, float]:
        """Return how near values at prefixes were to the returns of what continued them."""
        if continued is None:  # Lightning would show the last ones again
            return dict.fromkeys(TRUTH_METRICS, math.nan)
        rows, places = torch.tensor(prefixes, device=value_BT.device).T
        return_BT = monte_carlo_returns_BT(continued, gamma)
        place_B = places.repeat_interleave(continued.group_size)
        return_PN = return_BT.gather(1, place_B[:, None]).reshape(len(prefixes), -1)
        numbers = compare(value_BT[rows, places], return_PN)
        return dict(zip(TRUTH_METRICS, numbers, strict=True))

    def prefixes(self, rollout: Rollout, seed: int) -> list[Prefix]:
        """Return the prefixes to complete: responses cut at uniformly sampled tokens."""
        rng = generator(seed, "value truth", rollout.iteration)
        if rollout.environment_BT is not None:
            raise ValueError(
                "truth: a prefix of an episode cannot be continued, its environment has moved"
                " on; set truth to null"
            )
        lengths = rollout.length_B.tolist()
        rows = rng.permutation(len(lengths))[: self.num_prefixes].tolist()
        return [(row, int(rng.random() * lengths[row])) for row in rows]

    def continued(
        self,
        worker: RolloutWorker,
        rollout: Rollout,
        prefixes: list[Prefix],
        context: int | None = None,
    ) -> Rollout:
        """Return P groups of N responses that begin with the prefixes, rewarded as in training.

        All are generated with the token limit that the shortest prefix leaves, where the policy's
        ``context`` has room for it, and then cut: engines decode equal limits together.
        """
        batch = PromptBatch(
            iteration=rollout.iteration,
            problems=tuple(rollout.responses[row].problem for row, _ in prefixes),
            prompts=tuple(rollout.prompts[row // rollout.group_size] for row, _ in prefixes),
            group_size=self.num_completions,
            num_prompts=len(prefixes),
            positions=tuple(range(len(prefixes))),
        )
        every = range(len(prefixes))
        kept = [
            (rollout.response_BT[row, :t], rollout.logp_sampler_BT[row, :t]) for row, t in prefixes
        ]
        max_tokens = worker.sampling.max_tokens
        most = max_tokens - min(t for _, t in prefixes)
        requests = []
        for request, (ids, _) in zip(
            worker.requests(batch, every, rollout.iteration), kept, strict=True
        ):
            prompt = (*request.prompt, *ids.tolist())
            limit = most if context is None else min(most, context - len(prompt))
            sampling = replace(request.sampling, max_tokens=limit)
            requests.append(replace(request, prompt=prompt, sampling=sampling))
        completions = worker.engine.generate(requests)
        whole = []
        for index, completion in enumerate(completions):
            ids, logps = kept[index // self.num_completions]
            assert completion.token_ids is not None and completion.logps is not None
            is_cut = len(ids) + completion.num_tokens > max_tokens
            whole.append(
                replace(
                    completion,
                    token_ids=torch.cat([ids, completion.token_ids.to(ids)])[:max_tokens],
                    logps=torch.cat([logps, completion.logps.to(logps)])[:max_tokens],
                    finish_reason="length" if is_cut else completion.finish_reason,
                )
            )
        return worker.grade(whole, batch, every, Timings())


def compare(value_P: Tensor, return_PN: Tensor) -> tuple[float, float, float, float]:
    """Return mean absolute error, bias and correlation of values, and the truth's standard error.

    The bias is the mean of values less truth: a critic that lags behind a policy that improves has
    values too low.

    The truth is itself a mean of N; a critic that is exact has a mean absolute error of some 0.8 of
    that standard error. The correlation is NaN where all values, or all truths, are equal.
    """
    truth_P = return_PN.mean(-1)
    gap_P = value_P - truth_P
    error_P = return_PN.std(-1, correction=1) / math.sqrt(return_PN.shape[1])
    x_P, y_P = (v - v.mean() for v in (value_P, truth_P))
    scale = float(x_P.norm() * y_P.norm())
    return (
        float(gap_P.abs().mean()),
        float(gap_P.mean()),
        float((x_P * y_P).sum()) / scale if scale else math.nan,
        float(error_P.mean()),
    )
