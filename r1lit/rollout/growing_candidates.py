"""Candidates of tokens that are sampled one after another."""

from __future__ import annotations

from array import array

import numpy as np
import torch
from torch import Tensor

from r1lit.batches import Candidates


class GrowingCandidates:
    """The candidates of each row's tokens while it grows, four bytes each on the host."""

    def __init__(self, num_rows: int) -> None:
        self._ids = [array("i") for _ in range(num_rows)]
        self._num = [array("i") for _ in range(num_rows)]

    def append(self, row_R: Tensor, left_RV: Tensor) -> None:
        """Keep the candidates of the rows' next token, true in ``left_RV``."""
        ids = left_RV.nonzero()[:, 1].int().cpu().numpy()
        ends = left_RV.sum(-1).cumsum(0).tolist()
        for row, start, end in zip(row_R.tolist(), [0, *ends], ends, strict=False):
            self._ids[row].frombytes(ids[start:end].tobytes())
            self._num[row].append(end - start)

    def of(self, row: int) -> Candidates:
        """Return the candidates of a row's tokens."""
        ids, num = (np.array(values[row], np.int32) for values in (self._ids, self._num))
        return Candidates(ids_N=torch.from_numpy(ids), num_K=torch.from_numpy(num))
