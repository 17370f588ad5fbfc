"""An engine that never draws some tokens, to see what a policy's habits are worth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from r1lit.rollout import InProcessEngine, ModelSpec, Sampling


class Banning(InProcessEngine):
    """Generates without these words; its log-probs are those among the tokens that are left.

    Args:
        words: each one token of the policy's tokenizer, white space included: ``" wait"``.
        max_rows: as of ``InProcessEngine``.
    """

    def __init__(self, words: Sequence[str], max_rows: int | None = None) -> None:
        super().__init__(max_rows)
        self.words = list(words)
        self._sample_whole, self._sample_tokens = self._sample_tokens, self._sample_others

    def bind(self, model: ModelSpec) -> None:
        """Look the words up; see ``InProcessEngine.bind``.

        Raises:
            ValueError: if one is not a single token.
        """
        super().bind(model)
        banned = []
        for word in self.words:
            ids = model.tokenizer.encode(word, add_special_tokens=False)
            if len(ids) != 1:
                raise ValueError(f"words: {word!r} is {len(ids)} tokens of {model.name}, not one")
            banned += ids
        self._banned_N = torch.tensor(banned)

    def _sample_others(
        self, logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling
    ) -> tuple[Tensor, Tensor]:
        banned_N = self._banned_N.to(logits_BV.device)
        left_BV = logits_BV.index_fill(-1, banned_N, float("-inf"))
        return self._sample_whole(left_BV, uniform_B, sampling)
