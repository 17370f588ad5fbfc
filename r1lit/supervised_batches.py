"""Batches of documents and of preferences.

R rows   L tokens of a row   B rows (responses)   T response tokens
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows of documents packed end to end for supervised training.

    ``input_ids_RL`` holds R rows of L tokens; ``position_ids_RL`` restarts at 0 at each document,
    which is how attention is kept within it; ``loss_mask_RL`` is true at the tokens whose
    prediction counts. ``iteration`` is the index of the batch in the run.
    """

    iteration: int
    input_ids_RL: Tensor
    position_ids_RL: Tensor
    loss_mask_RL: Tensor

    def __post_init__(self) -> None:
        shape = self.input_ids_RL.shape
        assert self.input_ids_RL.ndim == 2, shape
        assert self.position_ids_RL.shape == shape
        assert self.loss_mask_RL.shape == shape and self.loss_mask_RL.dtype == torch.bool

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PackedRows:
        """Return a copy on ``device``."""
        return PackedRows(
            iteration=self.iteration,
            input_ids_RL=self.input_ids_RL.to(device, non_blocking=non_blocking),
            position_ids_RL=self.position_ids_RL.to(device, non_blocking=non_blocking),
            loss_mask_RL=self.loss_mask_RL.to(device, non_blocking=non_blocking),
        )


@dataclass(frozen=True, kw_only=True)
class PreferenceBatch:
    """Examples that a reward model learns from: N of them, each of K rows of token ids.

    K is 2 for pairs, chosen first, and 1 for labelled responses. ``lengths`` counts the tokens of
    each row's response, prompt and EOS left out. ``label_N`` is 1 for a pair and for a safe
    response, 0 for an unsafe one. ``groups`` name what examples share, such as a prompt.

    Where steps are labelled, ``step_places`` are each example's tokens at which its steps end, by
    their index in its only row, and ``step_labels`` their labels.
    """

    iteration: int
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    label_N: Tensor
    groups: tuple[str, ...]
    step_places: tuple[tuple[int, ...], ...] = ()
    step_labels: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        num = len(self.rows)
        assert num == len(self.lengths) == len(self.groups) and self.label_N.shape == (num,)
        assert len({len(rows) for rows in self.rows}) <= 1, "all examples are of one kind"

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PreferenceBatch:
        """Return itself: rows are plain integers, the module pads and places them."""
        return self
