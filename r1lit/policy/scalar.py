"""Reward models and critics: a policy's body under a head that gives one number a row or a token.

    B rows   S tokens of the longest row   K response tokens   H hidden size

Rows are padded on the right, where causal attention keeps them from the padding without a mask.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from r1lit.policy.adapter import Adapter, PeftConfig, base_of, merge_adapter
from r1lit.policy.loading import first_line, load_config, read_config, torch_dtype
from r1lit.policy.policy import Responses
from r1lit.policy.quantization import Quantization
from r1lit.policy.shards import StoredWeight, build_without_weights, can_be_put, stand_ins
from r1lit.policy.wrapper import ModelWrapper

Tokens = Sequence[int]
HEAD = "score"
MEAN, STD = "reward_mean", "reward_std"


class ScalarModel(ModelWrapper):
    """Wraps a Hugging Face sequence classifier of one number, ``model``: reward model or critic.

    The configuration also holds what its rewards are normalised by.
    """

    def forward(
        self, inputs: Sequence[Tokens] | Responses, places: Sequence[Tokens] | None = None
    ) -> Tensor:
        """Return the head's outputs, float32, as trained.

        Args:
            inputs: rows of token ids; or responses to prompts, read before each of their tokens, as
                a critic's values are.
            places: which tokens of each row are read, as a process model is; the last if left out.

        Returns:
            One number a row (B), or one a token that is read, row after row (K).
        """
        device = self.model.device
        if isinstance(inputs, Responses):
            responses = zip(
                inputs.response_BT.tolist(), inputs.mask_BT.sum(-1).tolist(), strict=True
            )
            rows: Sequence[Tokens] = [
                [*prompt, *response[:length]]
                for prompt, (response, length) in zip(inputs.prompts, responses, strict=True)
            ]
            first_B = torch.tensor([len(prompt) - 1 for prompt in inputs.prompts], device=device)
            row, place = inputs.mask_BT.nonzero(as_tuple=True)
            place = place + first_B[row]
        else:
            rows = inputs
            places = places or [[len(tokens) - 1] for tokens in rows]
            num_B = torch.tensor([len(own) for own in places], device=device)
            row = torch.arange(len(rows), device=device).repeat_interleave(num_B)
            place = torch.tensor([p for own in places for p in own], device=device)
        width = max(map(len, rows))
        pad = int(self.config.pad_token_id)
        padded = [[*tokens, *[pad] * (width - len(tokens))] for tokens in rows]
        ids_BS = torch.tensor(padded, device=device)
        hidden_BSH = self.model.base_model(input_ids=ids_BS, use_cache=False).last_hidden_state
        return getattr(self.model, HEAD)(hidden_BSH[row, place]).squeeze(-1).float()


def is_reward_model(config: PretrainedConfig) -> bool:
    """Return whether a directory holds a reward model already, not the policy to make one of."""
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or [])


def load_reward_config(name_or_path: str, trust_remote_code: bool = False) -> PretrainedConfig:
    """Load the configuration of a reward model, or of a policy whose body is to become one.

    Raises:
        ValueError: if there is neither, or the reward model gives more than one number.
    """
    config = read_config(name_or_path, trust_remote_code)
    if not is_reward_model(config):
        return load_config(name_or_path, trust_remote_code)
    if config.num_labels != 1:
        raise ValueError(
            f"policy: {name_or_path!r} gives {config.num_labels} numbers, where a reward model"
            " gives 1"
        )
    return config


def load_reward_model(
    name_or_path: str,
    *,
    pad_id: int,
    from_scratch: bool = False,
    dtype: str = "float32",
    attention: str = "sdpa",
    gradient_checkpointing: bool = False,
    trust_remote_code: bool = False,
    adapter: PeftConfig | None = None,
    dropout: bool = True,
    quantization: Quantization | None = None,
    sharded: bool = False,
) -> ScalarModel:
    """Load a reward model in training mode, or make one of a policy's body and a head of zeros.

    Every reward of a new head is 0, the loss of a pair log 2, and the first update moves the head
    alone. The head has no bias: what the rewards of a reference set have as their mean is kept in
    the configuration, see ``normalised``.

    Args:
        name_or_path: a policy whose LM head is left out, or a reward model.
        pad_id: of the tokenizer, for those that run the exported model with padded rows.
        from_scratch: fresh weights for the body.
        dtype: of the weights.
        attention: Hugging Face attention implementation.
        gradient_checkpointing: trade time for memory.
        trust_remote_code: run Python code that comes with the model.
        adapter: train one of peft, with the head; see ``load_policy``.
        dropout: keep the dropout of the configuration.
        quantization: refused.
        sharded: leave the body's weights for ``read_shares``; see ``load_policy``.

    Raises:
        ValueError: if it cannot be loaded, lacks weights of the body, or has no linear head.
    """
    if quantization is not None:
        raise ValueError("quantization: a reward model's body is not held in 4 bits; leave it out")
    config = load_reward_config(name_or_path, trust_remote_code)
    new = from_scratch or not is_reward_model(config)
    config.num_labels = 1
    config.pad_token_id = pad_id
    options = {
        "dtype": torch_dtype(dtype),
        "attn_implementation": attention,
        "trust_remote_code": trust_remote_code,
    }
    missing: list[str] = []
    base = base_of(name_or_path)
    folder = None if base == name_or_path or from_scratch else name_or_path
    built = None
    if sharded and not from_scratch and can_be_put(adapter, folder):
        built = build_without_weights(
            AutoModelForSequenceClassification, config, base, new=HEAD if new else None, **options
        )
    unread: dict[str, StoredWeight] | None = None
    try:
        if built is not None:
            model, unread = built
        elif from_scratch:
            model = AutoModelForSequenceClassification.from_config(config, **options)
        else:
            # it reports the head as missing, which is intended; the random state is restored after
            # it, so that the head is initialised as where weights are read in shares
            with _quiet(), torch.random.fork_rng(devices=[]):
                model, info = AutoModelForSequenceClassification.from_pretrained(
                    base, config=config, output_loading_info=True, **options
                )
            missing = sorted(info["missing_keys"])
    except (OSError, ImportError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"policy: no reward model can be made of {name_or_path!r} with attention:"
            f" {attention!r} ({first_line(error)})"
        ) from error
    head = getattr(model, HEAD, None)
    if not isinstance(head, torch.nn.Linear):
        raise ValueError(
            f"policy: {type(model).__name__} has no linear head named {HEAD!r}; reward models are"
            " made of decoders such as Llama, Qwen, Mistral, Gemma and GPT-2"
        )
    missing = [name for name in missing if not ((new or folder) and name.startswith(HEAD))]
    if missing:
        raise ValueError(
            f"policy: {name_or_path!r} lacks {len(missing)} of the model's weights, {missing[0]}"
            " the first"
        )
    if unread is not None:
        head.to_empty(device="cpu")
        for name, weight in head.named_parameters():
            if not new:
                weight.data.copy_(unread[f"{HEAD}.{name}"].read())
    if new:
        torch.nn.init.zeros_(head.weight)
        if head.bias is not None:
            torch.nn.init.zeros_(head.bias)
        for key in (MEAN, STD):
            setattr(model.config, key, None)
    whole = model if adapter or folder is None else merge_adapter(model, folder)
    made = ScalarModel(whole, dropout)
    if adapter is not None:
        with stand_ins(model):
            made.adapter = Adapter(model, adapter, folder, base)
    made.unread = unread
    if gradient_checkpointing:
        made.model.gradient_checkpointing_enable({"use_reentrant": False})
    return made.train()


def split_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield indices of items whose padded tokens are at most ``max_tokens``, longest first.

    An item longer than that has a batch of its own.

    >>> list(split_by_length([2, 5, 3], 6))
    [[1], [2, 0]]
    """
    part: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if part and (len(part) + 1) * lengths[part[0]] > max_tokens:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


@torch.no_grad()
def score_rows(model: ScalarModel, rows: Sequence[Tokens], batch_tokens: int) -> Tensor:
    """Return the rewards of any number of rows, in their order, on the CPU; no gradient."""
    rewards = torch.zeros(len(rows))
    for part in split_by_length([len(row) for row in rows], batch_tokens):
        rewards[part] = model([rows[i] for i in part]).cpu()
    return rewards


def normalised(config: PretrainedConfig, reward_B: Tensor) -> Tensor:
    """Return rewards less their mean over the reference set, which the model was exported with.

    Raises:
        ValueError: if it was exported without one.
    """
    return reward_B - reference_statistic(config, MEAN)


def reference_statistic(config: PretrainedConfig, key: str) -> float:
    """Return ``reward_mean`` or ``reward_std`` of an exported reward model.

    Raises:
        ValueError: if it has none.
    """
    value = getattr(config, key, None)
    if value is None:
        raise ValueError(
            f"path: the config.json of {config.name_or_path!r} has no {key}, so its rewards have no"
            " zero; RewardModule exports it, and 0.0 (mean) and 1.0 (std) may be written by hand"
        )
    return float(value)


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
