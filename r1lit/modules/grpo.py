"""Group relative policy optimisation: R1's reinforcement learning, one iteration at a time.

    rollout -> rewards -> advantages -> minibatch updates

P prompts   G responses per prompt   B = P*G rows   T response tokens   V vocabulary
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.modules.micro_batches import micro_batches
from r1lit.modules.plan import BatchPlan
from r1lit.modules.rollout_worker import Timings, collect_mixed
from r1lit.modules.rollouts import RolloutModule, outcome_metrics
from r1lit.modules.update_metrics import UpdateMetrics
from r1lit.objectives import Objective
from r1lit.policy import LogProbs, Responses, is_packed
from r1lit.rewards import Reward
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.seeding import permutation
from r1lit.verifiers import Grader

LARGE_MISMATCH = 0.05  # nats; float32 has 1e-6, bfloat16 some 1e-3


class GRPOModule(RolloutModule):
    """One ``training_step`` is one iteration: rollout, rewards, advantages, minibatch updates.

    The old policy is the policy that sampled: its log-probs are recorded with the tokens, and how
    far the training forward is from them before the first update is logged as the mismatch. A
    reference is kept only when ``objective.beta`` is above 0; it is part of the checkpoint.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        objective: what is maximised, for example ``r1lit.objectives.GRPO``.
        rewards: reward functions or plain callables; their weighted sum is the reward.
        sampling: how responses are drawn in training.
        validation_sampling: how they are drawn in evaluation; as in training if left out.
        train_batch_size: rows of a minibatch, over all ranks.
        num_inner_epochs: passes over an iteration's rows.
        dynamic_sampling: replace groups whose rewards are all equal by prompts of the reserve
            (``data.num_reserve_prompts``).
        engine: draws responses.
        grader: decides about them; Countdown and mathematics if left out.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str,
        objective: Objective,
        rewards: list[Reward],
        sampling: Sampling,
        validation_sampling: Sampling | None = None,
        train_batch_size: int = 64,
        num_inner_epochs: int = 1,
        dynamic_sampling: bool = False,
        engine: RolloutEngine | None = None,
        grader: Grader | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            policy,
            rewards=rewards,
            sampling=sampling,
            validation_sampling=validation_sampling,
            engine=engine,
            grader=grader,
            **options,
        )
        if train_batch_size < 1:
            raise ValueError(f"train_batch_size: {train_batch_size} is not at least 1")
        if num_inner_epochs < 1:
            raise ValueError(f"num_inner_epochs: {num_inner_epochs} is not at least 1")
        self.objective = objective
        self.train_batch_size = train_batch_size
        self.num_inner_epochs = num_inner_epochs
        self.dynamic_sampling = dynamic_sampling

    # set-up

    def setup(self, stage: str) -> None:
        """Check the batch plan before anything is loaded."""
        super().setup(stage)
        data = self.data
        if data is not None and stage == "fit":
            smallest = self.objective.advantage.min_group_size
            if data.group_size < smallest:
                raise ValueError(
                    f"group_size: {data.group_size} is below {smallest}, which"
                    f" {type(self.objective.advantage).__name__} needs to compare responses"
                )
            self.plan = BatchPlan(
                num_prompts=data.prompts_per_iteration,
                group_size=data.group_size,
                train_batch_size=self.train_batch_size,
                micro_batch_tokens=self.micro_batch_tokens,
                num_inner_epochs=self.num_inner_epochs,
                world_size=self.trainer.world_size,
            )
            if self.dynamic_sampling and not data.num_reserve_prompts:
                raise ValueError(
                    "num_reserve_prompts: 0 leaves dynamic_sampling nothing to draw from; twice"
                    f" prompts_per_iteration, {2 * data.prompts_per_iteration}, is usual"
                )

    def configure_model(self) -> None:
        """Load the policy, and its reference if the objective penalises the distance to it."""
        super().configure_model()
        if self.objective.beta > 0 and not hasattr(self, "reference"):
            self.reference = copy.deepcopy(self.policy).eval().requires_grad_(False)

    def refresh_reference(self) -> None:
        """Replace the reference by the policy, as R1 does every 400 updates."""
        self.reference.load_state_dict(self.policy.state_dict())

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if self.trainer.is_global_zero and self.data is not None:
            self.plan.print(self.data.describe(), self.sampling.max_tokens)

    # one iteration

    def training_step(self, batch: PromptBatch, batch_idx: int) -> dict[str, Rollout]:
        """Run one iteration."""
        self.check_iteration(batch.iteration)
        timings = Timings()
        worker = self.worker(self.sampling, self.seed, self.objective.advantage)

        def collect(rows: range) -> Rollout:
            return worker.collect(self.policy, batch, rows, timings)

        if self.dynamic_sampling:
            rollout, num_dropped = collect_mixed(collect, batch)
        else:
            rollout, num_dropped = collect(range(batch.num_prompts)), 0
        started = time.perf_counter()
        metrics = self._maximise(rollout)
        if metrics["train/mismatch/mean_abs"] > LARGE_MISMATCH:
            rank_zero_warn(
                f"train/mismatch/mean_abs is above {LARGE_MISMATCH}: the log-probs of the rollout,"
                " which stand for the old policy, are not those of the training forward; set the"
                " trainer's precision or the model's dtype higher"
            )
        metrics |= {
            **outcome_metrics(rollout, "train"),
            "train/reward_std": float(rollout.reward_PG.std(-1, correction=0).mean()),
            "train/num_tokens": float(rollout.mask_BT.sum()),
            "train/num_groups_dropped": float(num_dropped),
            "time/rollout_s": timings.rollout,
            "time/grade_s": timings.grade,
            "time/update_s": time.perf_counter() - started,
        }
        self.iteration += 1
        self.log_dict(metrics, batch_size=len(rollout.responses), sync_dist=True)
        return {"rollout": rollout}

    def _maximise(self, rollout: Rollout) -> dict[str, float]:
        """Make the iteration's updates; return what to log about them."""
        watch = UpdateMetrics(self.objective)
        losses, norms = [], []
        packed, skip = is_packed(self.policy), self.objective.skips_zero_advantage()
        for index, rows_b in enumerate(self._minibatches(rollout)):
            mask_bT = rollout.mask_BT[rows_b]
            weight_bT = self.objective.token_weight_BT(
                mask_bT, num_rows=len(rows_b), num_tokens=self.mean_over_ranks(mask_bT.sum())
            )
            loss, norm = self.make_update(
                [
                    partial(
                        self._loss, rollout, rows_b[part], weight_bT[part], watch, first=index == 0
                    )
                    for part in micro_batches(
                        rollout,
                        rows_b,
                        self.micro_batch_tokens,
                        packed=packed,
                        skip=skip,
                    )
                ]
            )
            losses.append(loss)
            norms.append(norm)
        return {
            "train/loss": sum(losses) / len(losses),
            "train/grad_norm": sum(norms) / len(norms),
            "train/learning_rate": self.learning_rate(),
            **watch.metrics(),
        }

    def _minibatches(self, rollout: Rollout) -> Iterator[Tensor]:
        num_rows = len(rollout.responses)
        size = self.train_batch_size // self.trainer.world_size
        for epoch in range(self.num_inner_epochs):
            order = permutation(num_rows, self.seed, "rows", rollout.iteration, epoch)
            yield from torch.tensor(order, device=rollout.response_BT.device).split(size)

    def _loss(
        self,
        rollout: Rollout,
        rows_b: Tensor,
        weight_bT: Tensor,
        watch: UpdateMetrics,
        *,
        first: bool,
    ) -> Tensor:
        """Return the loss of one micro-batch of rows, its share of the minibatch's."""
        width = int(rollout.mask_BT[rows_b].sum(-1).max())
        prompts = [rollout.prompts[row // rollout.group_size] for row in rows_b.tolist()]
        responses = Responses(
            prompts=prompts,
            response_BT=rollout.response_BT[rows_b, :width],
            mask_BT=rollout.mask_BT[rows_b, :width],
        )
        log_probs = LogProbs(temperature=self.sampling.temperature)
        output = self.policy(responses, log_probs)
        logp_ref_bT = None
        if self.objective.beta > 0:
            with torch.no_grad():
                logp_ref_bT = responses.to_rows(self.reference(responses, log_probs).logp_K)
        arguments: dict[str, Tensor] = {
            "logp_BT": responses.to_rows(output.logp_K),
            "logp_old_BT": rollout.logp_old_BT[rows_b, :width],
            "advantage_B": rollout.advantage_B[rows_b],
            "mask_BT": rollout.mask_BT[rows_b, :width],
        }
        watch.add(
            entropy_BT=responses.to_rows(output.entropy_K),
            logp_ref_BT=logp_ref_bT,
            before_update=first,
            **arguments,
        )
        return self.objective.loss(
            logp_ref_BT=logp_ref_bT, weight_BT=weight_bT[:, :width], **arguments
        )
