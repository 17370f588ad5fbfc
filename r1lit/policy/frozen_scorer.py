"""A reward model or critic that scores as it is: loaded when it is first used, never trained."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from r1lit.errors import check_at_least, named
from r1lit.policy.loading import load_tokenizer
from r1lit.policy.scalar import (
    ScalarModel,
    is_reward_model,
    load_reward_config,
    load_reward_model,
)


class FrozenScorer:
    """What rewards and searches that read a scalar model have in common.

    Args:
        path: a directory of a sequence classifier of one number, or its name on the hub.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.
        trust_remote_code: run Python code that comes with the model.
        **options: of ``load_reward_model``: dtype, attention.

    Raises:
        ValueError: if there is none, or a language model.
    """

    def __init__(
        self,
        path: str,
        *,
        batch_tokens: int,
        device: str | None,
        trust_remote_code: bool,
        **options: Any,
    ) -> None:
        check_at_least("batch_tokens", batch_tokens, 1)
        self.path = path
        self.batch_tokens = batch_tokens
        with named("path"):
            self.config = load_reward_config(path, trust_remote_code)
        if not is_reward_model(self.config):
            raise ValueError(
                f"path: {path!r} holds a language model, not a reward model (a sequence classifier"
                " of one number); RewardModule makes one of it"
            )
        with named("path"):
            self.tokenizer = load_tokenizer(path, trust_remote_code)
        self._device = device
        self._options = {"trust_remote_code": trust_remote_code, **options}

    @cached_property
    def model(self) -> ScalarModel:
        """The model, on its device.

        An evaluation may load it first: what is made in its mode could not be used in training.
        """
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        with torch.inference_mode(False), named("path"):
            model = load_reward_model(self.path, pad_id=pad_id, **self._options)
            device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
            return model.eval().requires_grad_(False).to(device)
