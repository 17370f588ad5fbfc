"""Loading of reward models: a policy's body with a head that gives one number."""

from __future__ import annotations

from functools import cached_property

import torch
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from r1lit.errors import check_at_least
from r1lit.policy.loading import (
    Loaded,
    Model,
    finish_loading,
    load_config,
    load_tokenizer,
    load_weights,
    read_config,
)
from r1lit.policy.scalar_head import HEAD, MEAN, STD, ScalarModel
from r1lit.policy.source import ModelSource


def is_reward_model(config: PretrainedConfig) -> bool:
    """Return whether a directory holds a reward model already, not the policy to make one of."""
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or [])


def load_reward_config(model: Model) -> PretrainedConfig:
    """Load the configuration of a reward model, or of a policy whose body is to become one.

    Raises:
        ValueError: if there is neither, or the reward model gives more than one number.
    """
    source = ModelSource.of(model)
    config = read_config(source)
    if not is_reward_model(config):
        return load_config(source)
    if config.num_labels != 1:
        raise ValueError(
            f"{source.key}: {source.path!r} gives {config.num_labels} numbers, where a reward model"
            " gives 1"
        )
    return config


def load_reward_model(
    model: Model,
    *,
    pad_id: int,
    dropout: bool = True,
    gradient_checkpointing: bool = False,
    sharded: bool = False,
) -> ScalarModel:
    """Load a reward model in training mode, or make one of a policy's body and a head of zeros.

    Every reward of a new head is 0, the loss of a pair log 2, and the first update moves the head
    alone. The head has no bias: what the rewards of a reference set have as their mean is kept in
    the configuration, see ``normalised``.

    Args:
        model: a policy whose LM head is left out, or a reward model. With ``from_scratch`` its body
            has fresh weights, with ``adapter`` that is trained, with the head; see ``load_policy``.
        pad_id: of the tokenizer, for those that run the exported model with padded rows.
        dropout: keep the dropout of the configuration.
        gradient_checkpointing: trade time for memory.
        sharded: leave the body's weights for ``read_shares``; see ``load_policy``.

    Raises:
        ValueError: if it cannot be loaded, lacks weights of the body, or has no linear head.
    """
    source = ModelSource.of(model)
    if source.quantization is not None:
        raise ValueError("quantization: reward models in 4 bits are not supported; leave it out")
    config = load_reward_config(source)
    has_new_head = source.from_scratch or not is_reward_model(config)
    config.num_labels = 1
    config.pad_token_id = pad_id
    kind = AutoModelForSequenceClassification
    loaded = load_weights(source, config, kind, sharded, HEAD, has_new_head)
    _set_head(loaded, source, has_new_head)
    made = ScalarModel(loaded.model, dropout)
    finish_loading(made, loaded, source, gradient_checkpointing)
    return made.train()


def _set_head(loaded: Loaded, source: ModelSource, new: bool) -> None:
    """Give the head its weights: zeros if it is new, or else those that are still in the files.

    Raises:
        ValueError: if it is not linear.
    """
    model = loaded.model
    head = getattr(model, HEAD, None)
    if not isinstance(head, torch.nn.Linear):
        raise ValueError(
            f"{source.key}: {type(model).__name__} has no linear head named {HEAD!r}; reward models"
            " are made of decoders such as Llama, Qwen, Mistral, Gemma and GPT-2"
        )
    if loaded.unread is not None:
        head.to_empty(device="cpu")
        for name, weight in head.named_parameters():
            if not new:
                weight.data.copy_(loaded.unread[f"{HEAD}.{name}"].read())
    if new:
        torch.nn.init.zeros_(head.weight)
        if head.bias is not None:
            torch.nn.init.zeros_(head.bias)
        for key in (MEAN, STD):
            setattr(model.config, key, None)


class FrozenScorer:
    """A scalar model that rewards and searches read; loaded at the first use, never trained.

    Args:
        model: a sequence classifier of one number.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.

    Raises:
        ValueError: if there is none, or a language model.
    """

    def __init__(self, model: Model, batch_tokens: int, device: str | None) -> None:
        check_at_least("batch_tokens", batch_tokens, 1)
        self.source = ModelSource.frozen(model, "model")
        self.batch_tokens = batch_tokens
        self.config = load_reward_config(self.source)
        if not is_reward_model(self.config):
            raise ValueError(
                f"model: {self.source.path!r} holds a language model, not a reward model (a"
                " sequence classifier of one number); RewardModule makes one of it"
            )
        self.tokenizer = load_tokenizer(self.source)
        self._device = device

    @cached_property
    def model(self) -> ScalarModel:
        """The model, on its device.

        An evaluation may load it first: what is made in its mode could not be used in training.
        """
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        with torch.inference_mode(False):
            model = load_reward_model(self.source, pad_id=pad_id)
            device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
            return model.eval().requires_grad_(False).to(device)
