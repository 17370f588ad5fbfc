"""Teachers: what tells a student how likely each next token is.

P prompts   B rows   T response tokens   R rows of L tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1lit.batches import PackedRows
from r1lit.policy.loading import (
    context_length,
    load_config,
    load_policy,
    load_tokenizer,
    refuse_leaking,
)
from r1lit.policy.logprobs import document_predictions, response_predictions
from r1lit.policy.scores import FullScores, Scores


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
        """Return the most tokens that the teacher attends over, where it says so."""
        return None

    def check_documents(self) -> None:
        """Raise a ValueError if documents of one row would run into each other."""
        return

    def load(self, device: torch.device) -> None:
        """Make ready for scoring on a device; a second call does nothing."""
        return

    @abstractmethod
    def score_documents(self, rows: PackedRows) -> Scores:
        """Score the targets of packed rows, within their documents, in order."""

    @abstractmethod
    def score_responses(
        self, prompts: Sequence[Sequence[int]], response_BT: Tensor, mask_BT: Tensor
    ) -> Scores:
        """Score the tokens of responses, one prompt a row, row after row."""


class ModelTeacher(Teacher):
    """A teacher in this process, in evaluation mode and without gradients.

    Each rank holds a whole copy. It computes under the trainer's precision, as the student does.

    Args:
        path: a Hugging Face directory, or a model's name on the hub.
        dtype: of the weights. They are never updated, so bfloat16 loses little and halves memory.
        attention: Hugging Face attention implementation.
        trust_remote_code: run Python code that comes with the model; it has your rights.
    """

    full_distributions = True

    def __init__(
        self,
        path: str,
        dtype: str = "float32",
        attention: str = "sdpa",
        trust_remote_code: bool = False,
    ) -> None:
        self.name = path
        self._trust = trust_remote_code
        self._options = {"dtype": dtype, "attention": attention}
        self._model: PreTrainedModel | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer."""
        try:
            return load_tokenizer(self.name, self._trust)
        except ValueError as error:
            raise _of_teacher(error) from error

    def context_length(self) -> int | None:
        """Return what the configuration says."""
        try:
            return context_length(load_config(self.name, self._trust))
        except ValueError as error:
            raise _of_teacher(error) from error

    def check_documents(self) -> None:
        """Check attention and layers; see ``refuse_leaking``."""
        try:
            config = load_config(self.name, self._trust)
            refuse_leaking(self.name, config, self._options["attention"])
        except ValueError as error:
            raise _of_teacher(error) from error

    def load(self, device: torch.device) -> None:
        """Load the weights, once, and move them to the device."""
        if self._model is None:
            try:
                model = load_policy(
                    self.name,
                    trust_remote_code=self._trust,
                    **self._options,  # type: ignore[arg-type]
                )
            except ValueError as error:
                raise _of_teacher(error) from error
            self._model = model.eval().requires_grad_(False)
        self._model.to(device)  # type: ignore[arg-type]

    @property
    def model(self) -> PreTrainedModel:
        """The model, once loaded."""
        assert self._model is not None, "load comes first"
        return self._model

    @torch.no_grad()
    def score_documents(self, rows: PackedRows) -> Scores:
        """Run the teacher over the rows."""
        said = document_predictions(
            self.model, rows.input_ids_RL, rows.position_ids_RL, rows.loss_mask_RL
        )
        return FullScores(said=said)

    @torch.no_grad()
    def score_responses(
        self, prompts: Sequence[Sequence[int]], response_BT: Tensor, mask_BT: Tensor
    ) -> Scores:
        """Run the teacher over prompts and responses."""
        said, _ = response_predictions(self.model, prompts, response_BT, mask_BT)
        return FullScores(said=said)


def _of_teacher(error: ValueError) -> ValueError:
    return ValueError("teacher: " + str(error).removeprefix("policy: "))
