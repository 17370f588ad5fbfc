"""A response token by token while it is generated, for a reader in front of a terminal.

R rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.rollout.in_process import InProcessEngine, StoppingCriterion
from r1lit.rollout.request import Completion, Request
from r1lit.rollout.sampling import Sampling


class StreamingEngine(InProcessEngine):
    """Generates one response in this process, and hands over its text piece by piece.

    Nothing is compiled: the compiler takes longer than a reply.
    """

    def __init__(self) -> None:
        super().__init__(compile=False)
        self._on_token: Callable[[int], bool] = lambda token: True

    def reply(self, request: Request, on_text: Callable[[str], bool]) -> Completion:
        """Return the completion of a request of one sample.

        Args:
            request: what to generate.
            on_text: is called with each piece of the response's text, special tokens left out; if
                it returns False, the response ends there. It is called with empty text too, where
                a token ends no character.
        """
        assert len(request.samples) == 1, "one reply at a time"
        pieces = TextStream(self.model.tokenizer)
        self._on_token = lambda token: on_text(pieces.add(token))
        (completion,) = self.generate([request])
        on_text(pieces.rest())
        return completion

    def stopping_criterion(self, sampling: Sampling, samples: Sequence[int]) -> StoppingCriterion:
        """Return the function that hands over the first row's token, and ends all rows with it.

        A single sample decodes in two equal rows, and a row that has ended decodes on for a while.
        """
        ended = super().stopping_criterion(sampling, samples)
        over = False

        def streamed(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> Tensor:
            nonlocal over
            done_R = ended(token_R, response_BT, rows, token)
            if not over:
                over = not self._on_token(int(token_R[0])) or bool(done_R[0])
            return torch.ones_like(done_R) if over else done_R

        return streamed


class TextStream:
    """Text of token ids that come one at a time, in pieces of whole characters.

    A tokenizer that is not one of the ``tokenizers`` library gives its text at the end.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._fast = getattr(tokenizer, "backend_tokenizer", None)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._num_characters = 0

    def add(self, token: int) -> str:
        """Return the text that a token completes; empty if it ends within a character."""
        self._ids.append(token)
        if self._fast is None:
            return ""
        piece = self._stream.step(self._fast, token) or ""
        self._num_characters += len(piece)
        return piece

    def rest(self) -> str:
        """Return the text that no token has completed."""
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        assert isinstance(text, str)
        return text[self._num_characters :]
