"""Teachers: models whose next-token distributions a student learns from.

R rows of L tokens   K tokens, k some of them   D hidden size   V vocabulary   X outcomes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import PackedRows
from r1lit.policy.loading import context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.outputs import Logits, LogProbs, Scores, States
from r1lit.policy.policy import HiddenStates, Policy, Responses
from r1lit.policy.source import ModelSource


class Teacher(ABC):
    """A constant policy that scores tokens; no part of a checkpoint, and never trained.

    ``name`` is what errors call it. ``full_distributions``: whether its
    scores are of the whole vocabulary.
    """

    name: str
    full_distributions: bool

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the teacher's tokenizer, which must be the student's."""

    def context_length(self) -> int | None:
        """Return the most tokens that the teacher attends over, if known."""
        return None

    def load(self, device: torch.device) -> None:
        """Make ready for scoring on a device; a second call does nothing."""
        return

    @abstractmethod
    def score_documents(self, rows: PackedRows) -> Scores:
        """Score the targets of packed rows, within their documents, in order."""

    @abstractmethod
    def score_responses(self, responses: Responses) -> Scores:
        """Score the tokens of responses, row after row."""


class ModelTeacher(Teacher):
    """A teacher in this process, in evaluation mode and without gradients.

    Each rank holds a whole copy. It computes under the trainer's precision, as the student does.

    Args:
        model: a Hugging Face directory, or a model's name on the hub. Its weights are never
            updated, so ``dtype: bfloat16`` loses little and halves memory.
    """

    full_distributions = True

    def __init__(self, model: str | ModelSource) -> None:
        self.source = ModelSource.frozen(model, "teacher")
        self.name = self.source.path
        self._policy: Policy | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer."""
        return load_tokenizer(self.source)

    def context_length(self) -> int | None:
        """Return what the configuration says."""
        return context_length(load_config(self.source))

    def load(self, device: torch.device) -> None:
        """Load the weights, once, and move them to the device."""
        if self._policy is None:
            self._policy = load_policy(self.source).eval().requires_grad_(False)
        self._policy.to(device)

    @property
    def policy(self) -> Policy:
        """The teacher's policy, once loaded."""
        assert self._policy is not None, "load comes first"
        return self._policy

    def score_documents(self, rows: PackedRows) -> Scores:
        """Run the teacher over the rows."""
        return FullScores.of(self.policy, rows)

    def score_responses(self, responses: Responses) -> Scores:
        """Run the teacher over prompts and responses."""
        return FullScores.of(self.policy, responses)


@dataclass(frozen=True, kw_only=True)
class FullScores(Scores):
    """Scores of a teacher in this process: X = V.

    Heads of one tokenizer may differ in width (Qwen2.5 pads its to 151,936 or to 152,064). Logits
    beyond the narrower one belong to no token, and are left out.
    """

    policy: Policy
    states_KD: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, policy: Policy, inputs: Responses | PackedRows) -> FullScores:
        """Run a policy, and keep its last hidden states."""
        return cls(policy=policy, states_KD=policy(inputs, States()).states_KD)

    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log softmax(logits / temperature) of both."""
        teacher_kV = self._logits(self.states_KD[chunk])
        width = min(logits_kV.shape[-1], teacher_kV.shape[-1])
        student_kV, teacher_kV = logits_kV[:, :width], teacher_kV[:, :width]
        return (
            (student_kV / temperature).log_softmax(-1),
            (teacher_kV / temperature).log_softmax(-1),
        )

    @torch.no_grad()
    def _logits(self, states_kD: Tensor) -> Tensor:
        no_target = torch.zeros(len(states_kD), dtype=torch.long, device=states_kD.device)
        return self.policy(
            HiddenStates(states_KD=states_kD, target_K=no_target), Logits()
        ).logits_KV

    @torch.no_grad()
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""
        states = HiddenStates(states_KD=self.states_KD, target_K=target_K)
        return self.policy(states, LogProbs(temperature=temperature)).logp_K


def check_same_vocabulary(
    student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, name: str
) -> None:
    """Check that next-token distributions of student and teacher are over the same tokens.

    Args:
        student: the policy's tokenizer.
        teacher: the teacher's tokenizer.
        name: what errors call the teacher.

    Raises:
        ValueError: naming both sizes, or a token that differs, or the two EOS tokens.
    """
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    remedy = (
        "; take a teacher with the policy's tokenizer, or learn from its responses alone with"
        " logit_weight: 0"
    )
    if len(ours) != len(theirs):
        raise ValueError(
            f"teacher: {name!r} has a vocabulary of {len(theirs):,} tokens and the policy one of"
            f" {len(ours):,}, so their next-token distributions cannot be compared{remedy}"
        )
    if ours != theirs:
        their_token = {token_id: token for token, token_id in theirs.items()}
        differ = sorted(
            (token_id, token)
            for token, token_id in ours.items()
            if their_token.get(token_id) != token
        )
        token_id, token = differ[0]
        raise ValueError(
            f"teacher: {name!r} and the policy have vocabularies of {len(ours):,} tokens each, but"
            f" other ones: {len(differ):,} differ, such as {token_id}, which is"
            f" {their_token.get(token_id)!r} to the teacher and {token!r} to the policy{remedy}"
        )
    if student.eos_token_id != teacher.eos_token_id:
        raise ValueError(
            f"teacher: {name!r} ends its responses with {teacher.eos_token!r} and the policy with"
            f" {student.eos_token!r}, which the teacher would teach it never to say; set the same"
            " eos_token in both tokenizer_config.json"
        )
