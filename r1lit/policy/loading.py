"""Loading of tokenizers, policies and reward models: Hugging Face directories or names in."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from r1lit.errors import check_at_least
from r1lit.policy.adapter import Adapter, compute_alike, find_quantization, merge_adapter
from r1lit.policy.policy import ModelWrapper, Policy
from r1lit.policy.rope import rope_limit
from r1lit.policy.scalar_head import HEAD, MEAN, STD, ScalarModel
from r1lit.policy.shards import StoredWeight, build_without_weights, can_be_put, fill, stand_ins
from r1lit.policy.source import ModelSource, first_line, refuse_missing_directory
from r1lit.policy.support import try_out

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")


Model = str | ModelSource


def read_config(model: Model) -> PretrainedConfig:
    """Read a model's configuration, whatever the model is for.

    Raises:
        ValueError: if there is no such model, or it has code that is not trusted.
    """
    source = ModelSource.of(model)
    refuse_missing_directory(source.path, source.key)
    path = source.path
    if Path(path).is_dir() and not (Path(path) / "config.json").is_file():
        path = source.base
        refuse_missing_directory(path, source.key)
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=source.trust_remote_code)
    except (OSError, ValueError) as error:
        _refuse_code(source, error)
        raise ValueError(
            f"{source.key}: {path!r} is neither a directory with a Hugging Face model nor a"
            f" model that can be reached on the hub ({first_line(error)})"
        ) from error


SEEN = {"vision": "images", "audio": "sound"}


def load_config(model: Model) -> PretrainedConfig:
    """Load a causal language model's configuration.

    Raises:
        ValueError: if there is no such model, or it is not a causal language model.
    """
    source = ModelSource.of(model)
    config = read_config(source)
    named = f"{source.key}: {source.path!r}"
    seen = [kind for kind in SEEN if getattr(config, f"{kind}_config", None)]
    also = f"; it takes {' and '.join(SEEN[kind] for kind in seen)} too" if seen else ""
    own_code = source.trust_remote_code and "AutoModelForCausalLM" in getattr(
        config, "auto_map", {}
    )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ValueError(
            f"{named} is a {config.model_type!r} model, not a causal language model{also}"
        )
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise ValueError(
            f"{named} is a {config.model_type!r} model that attends to later tokens (is_decoder is"
            " false), not a causal language model"
        )
    declared = config.architectures or []
    if declared and not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in declared):
        raise ValueError(f"{named} holds {', '.join(declared)}, not a causal language model{also}")
    return config


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """Load a tokenizer; one without a padding token pads with EOS, which every mask leaves out.

    Raises:
        ValueError: if there is none, or it has no EOS token.
    """
    source = ModelSource.of(model)
    refuse_missing_directory(source.path, source.key)
    path = Path(source.path)
    if path.is_dir() and not any(any(path.glob(kind)) for kind in TOKENIZER_FILES):
        if source.base != source.path:
            return load_tokenizer(source.but(path=source.base))
        # AutoTokenizer would make an empty one
        raise ValueError(f"{source.key}: the directory {source.path!r} holds no tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.path, trust_remote_code=source.trust_remote_code
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        _refuse_code(source, error)
        raise ValueError(
            f"{source.key}: no tokenizer can be loaded from {source.path!r} ({first_line(error)})"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"{source.key}: the tokenizer of {source.path!r} has no EOS token, so no response could"
            " end; set eos_token in its tokenizer_config.json"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(
    model: Model,
    *,
    dropout: bool = True,
    gradient_checkpointing: bool = False,
    sharded: bool = False,
) -> Policy:
    """Load a policy in training mode, or make one with fresh weights of the same architecture.

    ``from_pretrained`` leaves a model in evaluation mode and fills missing weights with noise;
    here the first is undone and the second is an error. Without ``dropout`` training mode has none.

    An adapter of peft's is put into the layers, and the rest is frozen. Of a PEFT folder the
    policy that it adapts is loaded; its adapter is merged into that, or where ``adapter`` starts.

    With ``quantization`` the weights beside the adapter are held in 4 bits. A PEFT folder records
    it: its adapter is then trained beside such weights, or merged into them, dequantized.

    With ``sharded`` the weights are left for ``read_shares`` to read, once the policy is sharded,
    where they can be read in parts. They are here where the files hold them under other names or
    joined, where a PEFT folder is merged into them, or an adapter begins with what they are.

    Raises:
        ValueError: if the model cannot be loaded, lacks weights, has not that ``attention`` or the
            adapter's layers, or lets a token see what comes after it.
    """
    source = ModelSource.of(model)
    config = load_config(source)
    loaded = _load(source, config, AutoModelForCausalLM, sharded)
    policy = Policy(loaded.model, dropout)
    _finish(policy, loaded, source, gradient_checkpointing)
    if loaded.unread is None:
        try_out(policy, source)
    if not dropout:
        _warn_of_dropout(policy, config, source)
    return policy.train()


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
    loaded = _load(source, config, kind, sharded, HEAD if has_new_head else None)
    _set_head(loaded, source, has_new_head)
    made = ScalarModel(loaded.model, dropout)
    _finish(made, loaded, source, gradient_checkpointing)
    return made.train()


@dataclass(kw_only=True)
class _Loaded:
    """A Hugging Face model, and which of its weights are still to be read."""

    model: Any
    unread: Mapping[str, StoredWeight] | None = None


def _load(
    source: ModelSource, config: PretrainedConfig, kind: Any, sharded: bool, head: str | None = None
) -> _Loaded:
    """Return a model with its weights, or, ``sharded``, with those that must be read whole.

    A PEFT folder's adapter is merged unless one is trained. ``head`` begins the names of weights
    that are new.
    """
    base, folder, adapter = source.base, source.folder, source.adapter
    options: dict[str, Any] = {
        "dtype": torch_dtype(source.dtype or "float32"),
        "attn_implementation": source.attention,
        "trust_remote_code": source.trust_remote_code,
    }
    folder_config = None if folder is None else config
    in_4_bits = find_quantization(
        source.quantization, folder_config, sharded and adapter is not None
    )
    if in_4_bits is not None:
        options["quantization_config"] = in_4_bits
    loaded = None
    if sharded and not source.from_scratch and in_4_bits is None and can_be_put(adapter, folder):
        built = build_without_weights(kind, config, base, new=head, **options)
        loaded = built and _Loaded(model=built[0], unread=built[1])
    if source.from_scratch:
        try:
            loaded = _Loaded(model=kind.from_config(config, **options))
        except (ImportError, ValueError) as error:
            raise ValueError(_cannot_make(source, error)) from error
    elif loaded is None:
        loaded = _Loaded(model=_read_whole(source, config, kind, head, **options))
    if folder is not None and adapter is None:
        whole = loaded.model if in_4_bits is None else loaded.model.dequantize()
        loaded.model = merge_adapter(whole, folder, source.key)
    return loaded


def _read_whole(
    source: ModelSource, config: PretrainedConfig, kind: Any, head: str | None, **options: Any
) -> Any:
    """Return a model with all its weights; a reward model's new head has none yet.

    Raises:
        ValueError: if they cannot be read, or some are missing, which would be noise.
    """
    base = source.base
    is_scalar = kind is AutoModelForSequenceClassification
    try:
        # it reports a new head as missing, which is intended; the random state is restored after
        # it, so that the head is initialised as where weights are read in shares
        with _quiet(is_scalar), torch.random.fork_rng(devices=[], enabled=is_scalar):
            loaded: Any = kind.from_pretrained(
                base,
                output_loading_info=True,
                **({"config": config} if is_scalar else {}),
                **options,
            )
    except (OSError, ImportError, RuntimeError, ValueError, SafetensorError) as error:
        fault = find_fault(kind, base)
        if fault is None and isinstance(error, OSError):
            fault = f"no weights can be loaded from {source.path!r} ({first_line(error)})"
        message = _cannot_make(source, error) if fault is None else f"{source.key}: {fault}"
        raise ValueError(message) from error
    has_head = is_scalar and (head is not None or source.folder is not None)
    missing = sorted(
        name for name in loaded[1]["missing_keys"] if not (has_head and name.startswith(HEAD))
    )
    if missing:
        raise ValueError(
            f"{source.key}: {source.path!r} lacks {len(missing)} of the model's weights,"
            f" {missing[0]} the first"
        )
    return compute_alike(loaded[0])


def _finish(
    wrapper: ModelWrapper, loaded: _Loaded, source: ModelSource, gradient_checkpointing: bool
) -> None:
    """Put the adapter in, and note what is still to be read."""
    if source.adapter is not None:
        with stand_ins(wrapper.model):
            wrapper.adapter = Adapter(wrapper.model, source.adapter, source.folder, source.base)
    wrapper.unread = loaded.unread
    if gradient_checkpointing:
        wrapper.model.gradient_checkpointing_enable({"use_reentrant": False})


def _warn_of_dropout(policy: Policy, config: PretrainedConfig, source: ModelSource) -> None:
    """Warn of rates of dropout, the adapter's too, which have no effect."""
    rates = dropout_rates(config)
    settings = {} if source.adapter is None else source.adapter.to_dict()
    rates |= {name: rate for name, rate in settings.items() if "dropout" in name and rate}
    if rates:
        listed = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        warnings.warn(
            f"{source.key}: {type(policy.model).__name__} has dropout ({listed}), which is off:"
            " rollouts are generated without it, so log-probs with it would not be theirs;"
            " dropout: true keeps it on",
            stacklevel=3,
        )


def read_shares(model: ModelWrapper, device: torch.device) -> None:
    """Read this rank's shares of the weights that were left unread, now that a model is sharded.

    Raises:
        ValueError: see ``try_out``.
    """
    if model.unread is None:
        return
    fill(model.model, model.unread, device)
    model.unread = None
    if isinstance(model, Policy):
        try_out(model, ModelSource(str(model.config.name_or_path)))


def torch_dtype(name: str) -> torch.dtype:
    """Return the floating-point dtype of that name.

    Raises:
        ValueError: if there is none.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype: {name!r} is not a torch dtype; float32 or bfloat16 are usual")
    if not dtype.is_floating_point:
        raise ValueError(
            f"dtype: {name!r} is no floating-point type; float32 or bfloat16 are usual"
        )
    return dtype


def context_length(config: PretrainedConfig) -> int | None:
    """Return the most tokens that a policy attends over alike in every row, if there is a limit.

    That of its positions, or ``rope_limit``.
    """
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return min(filter(None, (positions, rope_limit(config))), default=None)


def dropout_rates(config: PretrainedConfig) -> dict[str, float]:
    """Return the rates of dropout, and other noise of training mode, in a configuration."""
    values = config.get_text_config(decoder=True).to_dict()
    names = [name for name in values if "drop" in name or "jitter" in name]
    heads = ("classifier", "summary")  # of other tasks
    found = {name: values[name] for name in names if not name.startswith(heads)}
    return {name: rate for name, rate in found.items() if isinstance(rate, float) and rate > 0}


def _refuse_code(source: ModelSource, error: BaseException) -> None:
    """Raise a one-line error where transformers refuses to run a model's own code."""
    if "trust_remote_code" in str(error):
        raise ValueError(
            f"{source.key}: {source.path!r} contains its own Python code, which runs with your"
            " rights; read it, then set trust_remote_code: true"
        ) from error


def _cannot_make(source: ModelSource, error: BaseException) -> str:
    return (
        f"{source.key}: {source.path!r} cannot be made with attention: {source.attention!r}"
        f" ({first_line(error).split('. ')[0]}); eager works with every architecture"
    )


def find_fault(kind: Any, folder: str) -> str | None:
    """Return which file of weights is damaged, or which weight is not of the configured shape.

    Args:
        kind: what makes a model of a configuration, such as ``AutoModelForCausalLM``.
        folder: a directory with ``config.json`` and ``*.safetensors``; None is known of others.
    """
    saved: dict[str, tuple[int, ...]] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                names = file.keys()
                saved |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (SafetensorError, OSError) as error:
            return f"{path} is damaged ({first_line(error)}); copy or export it again"
    if not saved:
        return None
    try:
        with torch.device("meta"):
            model = kind.from_config(load_config(folder))
    except (ImportError, ValueError):
        return None
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(own.keys() & saved.keys()):
        if own[name] != saved[name]:
            return (
                f"config.json of {folder!r} gives {name} the shape {own[name]}, its weights have"
                f" {saved[name]}; they are of two models"
            )
    return None


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


def _set_head(loaded: _Loaded, source: ModelSource, new: bool) -> None:
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


@contextmanager
def _quiet(enabled: bool) -> Iterator[None]:
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR if enabled else level)
    try:
        yield
    finally:
        logger.setLevel(level)


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
