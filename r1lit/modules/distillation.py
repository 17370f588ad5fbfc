"""Distillation: a student learns from a teacher's responses or next-token distributions.

    R1         SFT on the teacher's responses (Nature 645:633, Methods)
    off policy the teacher's distributions at the tokens of given responses (1503.02531)
    on policy  its distributions at the tokens that the student generated (GKD, 2306.13649)

P prompts   G responses per prompt   B = P*G rows   T response tokens   K tokens that count
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import PackedRows, PromptBatch, Rollout
from r1lit.modules.batch_plan import BatchPlan
from r1lit.modules.distillation_checks import check_data, check_settings
from r1lit.modules.loss_accumulator import LossAccumulator
from r1lit.modules.micro_batches import micro_batches, responses_of
from r1lit.modules.rollout_worker import Timings
from r1lit.modules.rollouts import outcome_metrics
from r1lit.modules.sft import SFTModule
from r1lit.modules.student_rollouts import check_stored, roll_out_share
from r1lit.objectives import Divergence, ForwardKL, SampledReverseKL
from r1lit.policy import (
    Divergences,
    Responses,
    Scores,
    Teacher,
    check_same_vocabulary,
    is_packed,
)
from r1lit.rewards import Reward
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.verifiers import Grader


class DistillationModule(SFTModule):
    """SFT on a teacher's responses, a divergence from its distributions, or both.

    loss = 1/K sum over tokens of [sft_weight * cross-entropy + logit_weight * tau^2 * D(P, Q)]

    P and Q are softmax(logits / tau) of teacher and student. tau^2 keeps the gradient's size
    (1503.02531, Section 2.1). With ``logit_weight`` 0 this is ``SFTModule`` bit for bit, and how R1
    distils: no teacher is loaded. Tokens count alike, where GKD takes the mean over each response
    first; under DDP the mean is over all ranks' tokens.

    ``on_policy`` (lambda of GKD, Algorithm 1) 0 learns from documents, batches of rows. Above 0 it
    learns from prompts: one ``training_step`` generates a response to each prompt and makes one
    update at its tokens. Below 1 a prompt is, with probability 1 - lambda, learnt from the
    response stored with its problem; GKD decides this once a batch. The cross-entropy is of such
    responses alone: there is nothing to imitate in what the student generated. The sampling
    is not differentiated.

    The teacher is a constant: neither in the checkpoint nor with the optimiser.

    Args:
        policy: the student, a Hugging Face directory or a model's name on the hub.
        teacher: scores tokens; needed with ``logit_weight`` above 0.
        divergence: D; ForwardKL if left out.
        sft_weight: of the cross-entropy.
        logit_weight: of the divergence.
        temperature: tau; must be 1 for a server's teacher.
        on_policy: share of the prompts whose responses the student generates.
        stored_response: the key of a problem's meta that holds a response to it, as text.
        sampling: how the student samples; needed with ``on_policy`` above 0.
        validation_sampling: how it samples in evaluation; as in training if left out.
        rewards: measured on the student's responses; they do not enter the loss. Accuracy if left
            out.
        engine: generates responses; in this process if left out.
        grader: decides about them.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str,
        teacher: Teacher | None = None,
        divergence: Divergence | SampledReverseKL | None = None,
        sft_weight: float = 1.0,
        logit_weight: float = 0.0,
        temperature: float = 1.0,
        on_policy: float = 0.0,
        stored_response: str = "response",
        sampling: Sampling | None = None,
        validation_sampling: Sampling | None = None,
        rewards: list[Reward] | None = None,
        engine: RolloutEngine | None = None,
        grader: Grader | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            policy,
            validation_sampling=validation_sampling or sampling,
            rewards=rewards,
            engine=engine,
            grader=grader,
            **options,
        )
        self.sampling = sampling or self.validation_sampling
        self.divergence = ForwardKL() if divergence is None else divergence
        check_settings(
            teacher=teacher,
            divergence=self.divergence,
            sft_weight=sft_weight,
            logit_weight=logit_weight,
            temperature=temperature,
            on_policy=on_policy,
            sampling=sampling,
        )
        self.teacher = teacher if logit_weight else None
        self.sft_weight = sft_weight
        self.logit_weight = logit_weight
        self.temperature = temperature
        self.on_policy = on_policy
        self.stored_response = stored_response

    def setup(self, stage: str) -> None:
        """Check data, vocabulary and context before any weights are loaded."""
        if stage == "fit" and self.data is not None:
            check_data(self.data, self.on_policy)
        super().setup(stage)
        if self.teacher is not None:
            check_same_vocabulary(self.tokenizer, self.teacher.tokenizer(), self.teacher.name)
            self._check_teachers_context(self.teacher)
        if stage != "fit" or self.data is None or not self.on_policy:
            return
        if self.on_policy < 1:
            check_stored(
                self.tokenizer,
                self.data.problems["train"],
                self.stored_response,
                self.sampling.max_tokens,
            )
        rollout = self.data.rollout
        self.plan = BatchPlan(
            num_prompts=rollout.prompts_per_iteration,
            group_size=rollout.group_size,
            train_batch_size=rollout.prompts_per_iteration * rollout.group_size,
            micro_batch_tokens=self.micro_batch_tokens,
            num_inner_epochs=1,
            world_size=self.trainer.world_size,
        )

    def _check_teachers_context(self, teacher: Teacher) -> None:
        limit, data = teacher.context_length(), self.data
        if limit is None or data is None:
            return
        longest = max((len(d) for split in data.documents.values() for d in split), default=0)
        if self.on_policy and data.prompt_ids:
            prompts = [len(p) for split in data.prompt_ids.values() for p in split]
            longest = max(prompts) + self.sampling.max_tokens
        if longest > limit:
            raise ValueError(
                f"teacher: {teacher.name!r} attends over {limit} tokens, but there may be"
                f" {longest} to score; lower data.packing.max_seq_len or sampling.max_tokens"
            )

    def configure_model(self) -> None:
        """Load the student, and the teacher if there is one; each once."""
        super().configure_model()
        if self.teacher is not None:
            self.teacher.load(self.trainer.strategy.root_device)

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if not self.on_policy:
            super().on_fit_start()
        elif self.trainer.is_global_zero and self.data is not None:
            self.plan.print(self.data.describe(), self.sampling.max_tokens)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Make one update, from rows of documents or from prompts."""
        if isinstance(batch, PackedRows):
            return super().training_step(batch, batch_idx)
        return self._on_policy_step(batch)

    def summed_losses(self, rows: PackedRows) -> dict[str, Tensor]:
        """Return the loss and its parts, summed over the rows' target tokens."""
        if self.teacher is None:
            return {"loss": self.sft_weight * super().summed_losses(rows)["loss"]}
        return self._losses(rows, self.teacher.score_documents(rows))

    def _losses(
        self, inputs: PackedRows | Responses, teacher: Scores, off_policy_K: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the loss and its terms; ``off_policy_K`` is true at tokens of stored responses."""
        imitates = bool(self.sft_weight) and self.on_policy < 1
        student = self.policy(
            inputs,
            Divergences(
                teacher=teacher,
                divergence=self.divergence,
                temperature=self.temperature,
                with_logp=imitates,
            ),
        )
        divergence = student.divergence_K.sum()
        losses = {"divergence": divergence}
        losses["loss"] = self.logit_weight * self.temperature**2 * divergence
        if imitates:
            logp_K = student.logp_K
            if off_policy_K is not None:
                logp_K = torch.where(off_policy_K, logp_K, 0.0)
            losses["cross_entropy"] = -logp_K.sum()
            losses["loss"] = self.sft_weight * losses["cross_entropy"] + losses["loss"]
        return losses

    def _on_policy_step(self, batch: PromptBatch) -> dict[str, Rollout]:
        self.check_iteration(batch.iteration)
        worker = self.worker(self.sampling, self.seed)
        timings = Timings(sync=self.sync_seconds)
        with self.weights_to_sample():
            rollout, on_policy_B = roll_out_share(
                worker, batch, timings, self.on_policy, self.stored_response
            )
        started = time.perf_counter()
        num_tokens = self.mean_over_ranks(rollout.mask_BT.sum())
        rows_B = torch.arange(len(rollout.responses), device=rollout.response_BT.device)
        sums = LossAccumulator()
        packed = is_packed(self.policy)
        loss, norm = self.make_update(
            self.policy_optimizer,
            [
                partial(
                    sums.share, partial(self._row_losses, rollout, rows_b, on_policy_B), num_tokens
                )
                for rows_b in micro_batches(
                    rollout, rows_B, self.micro_batch_tokens, packed=packed, skip=False
                )
            ],
        )
        metrics = {
            "train/loss": loss,
            "train/grad_norm": norm,
            "train/learning_rate": self.learning_rate(),
            "train/num_tokens": num_tokens,
            "train/on_policy_share": float(on_policy_B.float().mean()),
            **outcome_metrics(rollout, "train"),
            **timings.metrics(),
            "time/update_s": time.perf_counter() - started,
            **sums.metrics("train", num_tokens),
        }
        self.iteration += 1
        self.log_dict(metrics, batch_size=len(rollout.responses), sync_dist=True)
        return {"rollout": rollout}

    def _row_losses(
        self, rollout: Rollout, rows_b: Tensor, on_policy_B: Tensor
    ) -> dict[str, Tensor]:
        """Return the loss and its parts, summed over the tokens of some rows."""
        assert self.teacher is not None
        responses = responses_of(rollout, rows_b)
        off_policy_K = ~on_policy_B[rows_b].repeat_interleave(rollout.length_B[rows_b])
        return self._losses(responses, self.teacher.score_responses(responses), off_policy_K)
