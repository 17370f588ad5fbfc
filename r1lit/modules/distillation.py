"""Distillation: a student learns from a teacher's responses or next-token distributions.

    R1         SFT on the teacher's responses (Nature 645:633, Methods)
    off policy the teacher's distributions at the tokens of given responses (1503.02531)
    on policy  its distributions at the tokens that the student generated (GKD, 2306.13649)
    self       the student's own, with a demonstration in its prompt (SDFT, 2601.19897)

P prompts   G responses per prompt   B = P*G rows   T response tokens   K tokens that count
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, PromptBatch, Rollout
from r1lit.errors import check_at_least, check_between
from r1lit.groups import join_rollouts
from r1lit.modules.plan import BatchPlan
from r1lit.modules.rollouts import outcome_metrics
from r1lit.modules.sft import SFTModule
from r1lit.modules.supervised_losses import LossAccumulator
from r1lit.objectives import Divergence, ForwardKL, SampledReverseKL
from r1lit.objectives.terms import divisor, hide_padding
from r1lit.policy import (
    Divergences,
    ModelSource,
    ModelTeacher,
    Policy,
    Responses,
    Scores,
    Teacher,
    check_same_vocabulary,
    is_packed,
)
from r1lit.rewards import Reward
from r1lit.rollout import Completion, RolloutEngine, Sampling
from r1lit.rollout.model_inputs import model_inputs
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.seeding import generator
from r1lit.supervised_batches import PackedRows
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

    The teacher is a constant, neither in the checkpoint nor with the optimiser, unless
    ``teacher_rate`` has it follow the student.

    Self-distillation (SDFT): the teacher is the policy itself and reads a ``demonstration`` after
    the question, which the student does not see: KL(Q(y|x) || P(y|x, c)) at the student's own
    tokens (``divergence: ReverseKL``). Its weights are the student's, a moving average of them
    (``teacher_rate``), or those that the run begins with.

    Args:
        policy: the student, a Hugging Face directory or a model's name on the hub.
        teacher: scores tokens; needed with ``logit_weight`` above 0.
        divergence: D; ForwardKL if left out.
        sft_weight: of the cross-entropy.
        logit_weight: of the divergence.
        temperature: tau; must be 1 for a server's teacher.
        demonstration: the key of a problem's meta that holds what the teacher alone reads after the
            question; needs ``on_policy`` 1.
        teacher_rate: after each update the teacher's weights move by this share towards the
            student's; 1 makes them equal. Needs a ``ModelTeacher`` of the student's model.
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
        policy: str | ModelSource,
        teacher: Teacher | None = None,
        divergence: Divergence | SampledReverseKL | None = None,
        sft_weight: float = 1.0,
        logit_weight: float = 0.0,
        temperature: float = 1.0,
        demonstration: str | None = None,
        teacher_rate: float = 0.0,
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
        check_self_distillation(demonstration, teacher_rate, on_policy, self.teacher)
        self.demonstration = demonstration
        self.teacher_rate = teacher_rate
        self._shown: dict[str, tuple[int, ...]] = {}  # the teacher's prompts, by uid

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
        if self.demonstration is not None:
            problems = self.data.problems["train"]
            shown = [demonstrated(problem, self.demonstration) for problem in problems]
            prompts = self.data.encode([self.data.literal(text) for text in shown], "train")
            self._shown = {p.uid: ids for p, ids in zip(problems, prompts, strict=True)}
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
        if self.teacher_rate:
            check_same_weights(self.policy, self._followed())

    def _followed(self) -> Policy:
        """Return the teacher's policy, whose weights follow the student's."""
        assert isinstance(self.teacher, ModelTeacher)
        return self.teacher.policy

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in the teacher's weights, if they change."""
        super().on_save_checkpoint(checkpoint)
        if self.teacher_rate:
            checkpoint[TEACHER] = self._followed().state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Give the teacher its weights back, if they change."""
        super().on_load_checkpoint(checkpoint)
        if self.teacher_rate and TEACHER in checkpoint:
            self._followed().load_state_dict(checkpoint[TEACHER])

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the teacher's weights towards the student's."""
        own = dict(self.policy.named_parameters())
        for name, weight in self._followed().named_parameters():
            weight.lerp_(own[name].to(weight.dtype), self.teacher_rate)

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if not self.on_policy:
            super().on_fit_start()
        elif self.trainer.is_global_zero and self.data is not None:
            self.plan.print(self.data.describe(), self.sampling.max_tokens)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Make one update, from rows of documents or from prompts."""
        if isinstance(batch, PackedRows):
            outputs: Any = super().training_step(batch, batch_idx)
        else:
            outputs = self._on_policy_step(batch)
        if self.teacher_rate:
            self._follow()
        return outputs

    def summed_losses(self, rows: PackedRows) -> dict[str, Tensor]:
        """Return the loss and its parts, summed over the rows' target tokens."""
        if self.teacher is None:
            return {"loss": self.sft_weight * super().summed_losses(rows)["loss"]}
        return self._losses(rows, self.teacher.score_documents(rows))

    def _losses(
        self,
        inputs: PackedRows | Responses,
        teacher: Scores,
        counts_K: Tensor | None = None,
        off_policy_K: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the loss and its terms, summed over tokens.

        Of responses ``counts_K`` is true at the tokens that count, and ``off_policy_K`` at those of
        stored ones.
        """
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

        def hide(value_K: Tensor) -> Tensor:
            return value_K if counts_K is None else hide_padding(value_K, counts_K)

        divergence = hide(student.divergence_K).sum()
        losses = {"divergence": divergence}
        losses["loss"] = self.logit_weight * self.temperature**2 * divergence
        if imitates:
            logp_K = hide(student.logp_K)
            if off_policy_K is not None:
                logp_K = torch.where(off_policy_K, logp_K, 0.0)
            losses["cross_entropy"] = -logp_K.sum()
            losses["loss"] = self.sft_weight * losses["cross_entropy"] + losses["loss"]
        return losses

    def _on_policy_step(self, batch: PromptBatch) -> dict[str, Rollout]:
        self.check_iteration(batch.iteration)
        worker = self.worker(self.sampling, self.seed)
        timings = Timings(sync=self.sync_seconds)
        with self.whole_weights_for_sampling():
            rollout, on_policy_B = roll_out_share(
                worker, batch, timings, self.on_policy, self.stored_response
            )
        started = time.perf_counter()
        num_tokens = divisor(self.mean_over_ranks(rollout.loss_mask_BT.sum()))
        rows_B = torch.arange(len(rollout.responses), device=rollout.response_BT.device)
        sums = LossAccumulator()

        def loss_of(rows_b: Tensor) -> Tensor:
            losses_of = partial(self._row_losses, rollout, rows_b, on_policy_B)
            return sums.share(losses_of, num_tokens)

        loss, norm = self.update_rows(
            self.policy_optimizer, rollout, rows_B, loss_of, packed=is_packed(self.policy)
        )
        metrics = {
            "train/loss": loss,
            "train/grad_norm": norm,
            "train/num_tokens": num_tokens,
            "train/on_policy_share": float(on_policy_B.float().mean()),
            **outcome_metrics(rollout, "train"),
            **timings.metrics(),
            "time/update_s": time.perf_counter() - started,
            **sums.metrics("train", num_tokens),
        }
        self.end_iteration(metrics, len(rollout.responses))
        return {"rollout": rollout}

    def _row_losses(
        self, rollout: Rollout, rows_b: Tensor, on_policy_B: Tensor
    ) -> dict[str, Tensor]:
        """Return the loss and its parts, summed over the tokens of some rows."""
        assert self.teacher is not None
        seen = responses = model_inputs(rollout, rows_b)
        if self.demonstration is not None:
            uids = [rollout.responses[row].problem.uid for row in rows_b.tolist()]
            seen = replace(responses, prompts=[self._shown[uid] for uid in uids])
        off_policy_K = ~on_policy_B[rows_b].repeat_interleave(rollout.length_B[rows_b])
        counts_K = rollout.loss_mask_BT[rows_b][rollout.mask_BT[rows_b]]
        return self._losses(responses, self.teacher.score_responses(seen), counts_K, off_policy_K)


# responses: generated by the student, or stored with the problem


def roll_out_share(
    worker: RolloutWorker,
    batch: PromptBatch,
    timings: Timings,
    share: float,
    key: str,
) -> tuple[Rollout, Tensor]:
    """Generate responses to a share of the prompts, and take those stored with the others.

    Which prompt is of which kind depends on (seed, iteration, its place in the iteration) alone.

    Returns:
        The rollout, on-policy responses first, and which of its rows are on-policy (B).
    """
    on_policy = [
        p
        for p in range(batch.num_prompts)
        if generator(worker.seed, "on-policy", batch.iteration, batch.positions[p]).random() < share
    ]
    stored = [p for p in range(batch.num_prompts) if p not in set(on_policy)]
    rollouts = []
    if on_policy:
        rollouts.append(worker.collect(batch, on_policy, timings))
    if stored:
        completions = [
            Completion(
                token_ids=torch.tensor(stored_tokens(worker.tokenizer, batch.problems[p], key)),
                finish_reason="stop",
            )
            for p in stored
        ]
        rollouts.append(worker.grade(completions, batch, stored, timings))
    rollout = join_rollouts(rollouts)
    row_B = torch.arange(len(rollout.responses), device=rollout.response_BT.device)
    return rollout, row_B < len(on_policy) * batch.group_size


def stored_tokens(tokenizer: PreTrainedTokenizerBase, problem: Problem, key: str) -> list[int]:
    """Return the tokens of the response stored with a problem, tokenised as a document's."""
    text = problem.meta.get(key)
    if not isinstance(text, str) or not text:
        raise ValueError(
            f"stored_response: problem {problem.uid!r} holds no text under {key!r} in its meta, and"
            " on_policy below 1 learns from it; name the column of responses in the source's meta"
        )
    tokens = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    eos = int(tokenizer.eos_token_id)
    return tokens if tokens and tokens[-1] == eos else [*tokens, eos]


def check_stored(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], key: str, max_tokens: int
) -> None:
    """Check that every problem has a stored response, not longer than a generated one may be.

    Raises:
        ValueError: naming the first problem that has none, or how many are too long.
    """
    lengths = [len(stored_tokens(tokenizer, problem, key)) for problem in problems]
    num_longer = sum(length > max_tokens for length in lengths)
    if num_longer:
        raise ValueError(
            f"max_tokens: {num_longer} of {len(lengths)} stored responses are longer than"
            f" {max_tokens} tokens; the longest has {max(lengths)}"
        )


# self-distillation


TEACHER = "teacher_policy"
"""The key of a checkpoint that holds the weights of a teacher that follows the student."""
SHOWN = "{question}\n\nAn example of a response:\n{demonstration}\n\nGive a response of your own."
"""The teacher's prompt in place of the question."""


def demonstrated(problem: Problem, key: str) -> str:
    """Return the question with its demonstration.

    Raises:
        ValueError: if the problem has none.
    """
    text = problem.meta.get(key)
    if not isinstance(text, str) or not text:
        raise ValueError(
            f"demonstration: problem {problem.uid!r} holds no text under {key!r} in its meta; name"
            " the column of demonstrations in the source's meta"
        )
    return SHOWN.format(question=problem.question, demonstration=text)


def check_self_distillation(
    demonstration: str | None, teacher_rate: float, on_policy: float, teacher: Teacher | None
) -> None:
    """Check the options of a teacher that is the student itself.

    Raises:
        ValueError: naming the key, its value and what would be right.
    """
    if demonstration is not None and on_policy != 1:
        raise ValueError(
            f"demonstration: {demonstration!r} with on_policy: {on_policy}; the teacher reads it"
            " before responses that the student generates, so set on_policy to 1"
        )
    check_between("teacher_rate", teacher_rate, 0, 1)
    if teacher_rate and not isinstance(teacher, ModelTeacher):
        raise ValueError(
            f"teacher_rate: {teacher_rate} moves the weights of a teacher in this process, and"
            f" teacher is {type(teacher).__name__}; take r1lit.policy.ModelTeacher"
        )


def check_same_weights(student: Policy, teacher: Policy) -> None:
    """Raise a ValueError if a teacher cannot follow the student weight by weight."""
    own = {name: tuple(weight.shape) for name, weight in student.named_parameters()}
    there = {name: tuple(weight.shape) for name, weight in teacher.named_parameters()}
    sharded = any(isinstance(weight, DTensor) for weight in student.parameters())
    if own != there or sharded:
        raise ValueError(
            "teacher_rate: the teacher's weights are not those of the student's model, or the"
            " student has an adapter or is sharded; name the student's own model as the teacher,"
            " on one GPU or under DDP, or set it to 0"
        )


# checks of settings and data


def check_settings(
    *,
    teacher: Teacher | None,
    divergence: Divergence | SampledReverseKL,
    sft_weight: float,
    logit_weight: float,
    temperature: float,
    on_policy: float,
    sampling: Sampling | None,
) -> None:
    """Check settings that do not depend on the data.

    Raises:
        ValueError: naming the key, its value and what would be right.
    """
    for key, weight in (("sft_weight", sft_weight), ("logit_weight", logit_weight)):
        check_at_least(key, weight, 0, "1 is usual")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature: {temperature} is not above 0; 1 leaves distributions as is")
    check_between("on_policy", on_policy, 0, 1)
    if not (sft_weight or logit_weight):
        raise ValueError("sft_weight and logit_weight are both 0: there is nothing to learn from")
    if logit_weight and teacher is None:
        raise ValueError(
            f"teacher: null, but logit_weight: {logit_weight} needs its distributions; name one,"
            " such as r1lit.policy.ModelTeacher, or set logit_weight: 0"
        )
    if on_policy and not logit_weight:
        raise ValueError(
            f"logit_weight: 0 leaves nothing to learn from the student's own responses (on_policy:"
            f" {on_policy}); 1 is usual"
        )
    if on_policy and sampling is None:
        raise ValueError(f"sampling: null, but on_policy: {on_policy} generates responses: say how")
    if logit_weight and teacher is not None and not teacher.full_distributions and temperature != 1:
        raise ValueError(
            f"temperature: {temperature} needs the teacher's whole distributions;"
            f" {type(teacher).__name__} returns those of temperature 1"
        )
    if isinstance(divergence, SampledReverseKL) and logit_weight:
        _check_sampled(temperature, on_policy, sampling)


def _check_sampled(temperature: float, on_policy: float, sampling: Sampling | None) -> None:
    if on_policy != 1 or sampling is None:
        raise ValueError(
            f"divergence: SampledReverseKL is right at tokens that the student sampled, not with"
            f" on_policy: {on_policy}; set it to 1, or take ReverseKL"
        )
    if sampling.temperature != temperature or sampling.top_p != 1 or sampling.top_k:
        raise ValueError(
            f"sampling: temperature {sampling.temperature}, top_p {sampling.top_p} and top_k"
            f" {sampling.top_k} are not the distribution of SampledReverseKL: temperature"
            f" {temperature}, top_p 1 and top_k 0"
        )


def check_data(data: Any, on_policy: float) -> None:
    """Check that the data module has what ``on_policy`` learns from.

    Raises:
        ValueError: naming the key to fill.
    """
    if not on_policy and not data.documents.get("train"):
        raise ValueError(
            "data.documents: null, but on_policy: 0 learns from responses that are there already;"
            " give documents, or set on_policy above 0 to learn from data.train's prompts"
        )
    if on_policy and not data.problems.get("train"):
        raise ValueError(
            f"data.train: null, but with on_policy: {on_policy} the student generates responses to"
            " problems; give problems, or set on_policy: 0 to learn from data.documents"
        )
    rollout = data.rollout
    if 0 < on_policy < 1 and rollout.group_size > 1:
        raise ValueError(
            f"data.rollout.group_size: {rollout.group_size} with on_policy: {on_policy} would learn"
            f" each stored response {rollout.group_size} times; set it to 1"
        )
    if on_policy and rollout.num_reserve_prompts:
        raise ValueError(
            f"data.rollout.num_reserve_prompts: {rollout.num_reserve_prompts} are for dynamic"
            " sampling, which distillation has not; set it to 0"
        )
