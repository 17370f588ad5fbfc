"""Loading of tokenizers and policies, from Hugging Face directories or names."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

from r1lit.policy.adapter import Adapter, compute_alike, find_quantization, merge_adapter
from r1lit.policy.policy import ModelWrapper, Policy
from r1lit.policy.rope import rope_limit
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
    loaded = load_weights(source, config, AutoModelForCausalLM, sharded)
    policy = Policy(loaded.model, dropout)
    finish_loading(policy, loaded, source, gradient_checkpointing)
    if loaded.unread is None:
        try_out(policy, source)
    if not dropout:
        _warn_of_dropout(policy, config, source)
    return policy.train()


@dataclass(kw_only=True)
class Loaded:
    """A Hugging Face model, and which of its weights are still to be read."""

    model: Any
    unread: Mapping[str, StoredWeight] | None = None


def load_weights(
    source: ModelSource,
    config: PretrainedConfig,
    kind: Any,
    sharded: bool,
    head: str | None = None,
    has_new_head: bool = False,
) -> Loaded:
    """Return a model with its weights, or, ``sharded``, with those that must be read whole.

    A PEFT folder's adapter is merged unless one is trained. ``head`` begins the names of a scalar
    head's weights, which may be new.
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
    loaded, new = None, head if has_new_head else None
    if sharded and not source.from_scratch and in_4_bits is None and can_be_put(adapter, folder):
        built = build_without_weights(kind, config, base, new=new, **options)
        loaded = built and Loaded(model=built[0], unread=built[1])
    if source.from_scratch:
        try:
            loaded = Loaded(model=kind.from_config(config, **options))
        except (ImportError, ValueError) as error:
            raise ValueError(_cannot_make(source, error)) from error
    elif loaded is None:
        may_lack = head if has_new_head or folder is not None else None
        loaded = Loaded(model=_read_whole(source, config, kind, may_lack, **options))
    if folder is not None and adapter is None:
        whole = loaded.model if in_4_bits is None else loaded.model.dequantize()
        loaded.model = merge_adapter(whole, folder, source.key)
    return loaded


def _read_whole(
    source: ModelSource, config: PretrainedConfig, kind: Any, may_lack: str | None, **options: Any
) -> Any:
    """Return a model with all its weights but those whose names begin with ``may_lack``.

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
    names = loaded[1]["missing_keys"]
    missing = sorted(n for n in names if may_lack is None or not n.startswith(may_lack))
    if missing:
        raise ValueError(
            f"{source.key}: {source.path!r} lacks {len(missing)} of the model's weights,"
            f" {missing[0]} the first"
        )
    return compute_alike(loaded[0])


def finish_loading(
    wrapper: ModelWrapper, loaded: Loaded, source: ModelSource, gradient_checkpointing: bool
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


@contextmanager
def _quiet(enabled: bool) -> Iterator[None]:
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR if enabled else level)
    try:
        yield
    finally:
        logger.setLevel(level)
