"""Loading tokenizers and policies: Hugging Face directories or names in, clear errors out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from r1lit.policy.adapter import (
    SETTINGS_FILE,
    Adapter,
    PeftConfig,
    base_of,
    merge_adapter,
)
from r1lit.policy.policy import Policy
from r1lit.policy.quantization import Quantization, compute_alike, find_quantization
from r1lit.policy.rope import rope_limit
from r1lit.policy.shards import StoredWeight, build_without_weights, can_be_put, fill, stand_ins
from r1lit.policy.support import try_out
from r1lit.policy.wrapper import ModelWrapper

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")


def read_config(name_or_path: str, trust_remote_code: bool = False) -> PretrainedConfig:
    """Read a model's configuration, whatever the model is for.

    Raises:
        ValueError: if there is no such model, or it has code that is not trusted.
    """
    refuse_missing_directory(name_or_path)
    path = Path(name_or_path)
    if path.is_dir() and not (path / "config.json").is_file():
        name_or_path = base_of(name_or_path)
        refuse_missing_directory(name_or_path)
    try:
        return AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        _refuse_code(name_or_path, error)
        raise ValueError(
            f"policy: {name_or_path!r} is neither a directory with a Hugging Face model nor a"
            f" model that can be reached on the hub ({first_line(error)})"
        ) from error


def load_config(name_or_path: str, trust_remote_code: bool = False) -> PretrainedConfig:
    """Load a causal language model's configuration.

    Raises:
        ValueError: if there is no such model, or it is not a causal language model.
    """
    config = read_config(name_or_path, trust_remote_code)
    own_code = trust_remote_code and "AutoModelForCausalLM" in getattr(config, "auto_map", {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ValueError(
            f"policy: {name_or_path!r} is a {config.model_type!r} model, not a causal language"
            " model"
        )
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise ValueError(
            f"policy: {name_or_path!r} is a {config.model_type!r} model that attends to"
            " later tokens (is_decoder is false), not a causal language model"
        )
    declared = config.architectures or []
    if declared and not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in declared):
        raise ValueError(
            f"policy: {name_or_path!r} holds {', '.join(declared)}, not a causal language model"
        )
    return config


def load_tokenizer(name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load a tokenizer; one without a padding token pads with EOS, which every mask leaves out.

    Raises:
        ValueError: if there is none, or it has no EOS token.
    """
    refuse_missing_directory(name_or_path)
    path = Path(name_or_path)
    if path.is_dir() and not any(any(path.glob(kind)) for kind in TOKENIZER_FILES):
        base = base_of(name_or_path)
        if base != name_or_path:
            return load_tokenizer(base, trust_remote_code)
        # AutoTokenizer would make an empty one
        raise ValueError(f"policy: the directory {name_or_path!r} holds no tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, TypeError, KeyError) as error:
        _refuse_code(name_or_path, error)
        raise ValueError(
            f"policy: no tokenizer can be loaded from {name_or_path!r} ({first_line(error)})"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"policy: the tokenizer of {name_or_path!r} has no EOS token, so no response could end;"
            " set eos_token in its tokenizer_config.json"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(
    name_or_path: str,
    *,
    from_scratch: bool = False,
    dtype: str = "float32",
    attention: str = "sdpa",
    gradient_checkpointing: bool = False,
    trust_remote_code: bool = False,
    dropout: bool = True,
    adapter: PeftConfig | None = None,
    quantization: Quantization | None = None,
    sharded: bool = False,
) -> Policy:
    """Load a policy in training mode, or make one with fresh weights of the same architecture.

    ``from_pretrained`` leaves a model in evaluation mode and fills missing weights with noise;
    here the first is undone and the second is an error. Without ``dropout`` training mode has none.

    An ``adapter`` of peft's is put into the layers, and the rest is frozen. Of a PEFT folder the
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
    config = load_config(name_or_path, trust_remote_code)
    weights_dtype = torch_dtype(dtype)
    base = base_of(name_or_path)
    folder = None if base == name_or_path or from_scratch else name_or_path
    options: dict[str, Any] = {
        "dtype": weights_dtype,
        "attn_implementation": attention,
        "trust_remote_code": trust_remote_code,
    }
    folder_config = None if folder is None else config
    shards_adapter = sharded and adapter is not None
    in_4_bits = find_quantization(quantization, folder_config, shards_adapter)
    if in_4_bits is not None:
        options["quantization_config"] = in_4_bits
    built = None
    if sharded and not from_scratch and in_4_bits is None and can_be_put(adapter, folder):
        built = build_without_weights(AutoModelForCausalLM, config, base, **options)
    unread: dict[str, StoredWeight] | None = None
    if built is not None:
        model, unread = built
    elif from_scratch:
        try:
            model = AutoModelForCausalLM.from_config(config, **options)
        except (ImportError, ValueError) as error:
            raise ValueError(_cannot_make(name_or_path, attention, error)) from error
    else:
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                base, output_loading_info=True, **options
            )
        except OSError as error:
            raise ValueError(
                f"policy: no weights can be loaded from {name_or_path!r} ({first_line(error)})"
            ) from error
        except (ImportError, RuntimeError, ValueError) as error:
            raise ValueError(_cannot_make(name_or_path, attention, error)) from error
        model, info = compute_alike(loaded[0]), loaded[1]
        if info["missing_keys"]:
            missing = sorted(info["missing_keys"])
            raise ValueError(
                f"policy: {name_or_path!r} lacks {len(missing)} of the model's weights,"
                f" {missing[0]} the first"
            )
    if folder is not None and adapter is None:
        model = merge_adapter(model if in_4_bits is None else model.dequantize(), folder)
    policy = Policy(model, dropout)
    if adapter is not None:
        with stand_ins(model):
            policy.adapter = Adapter(model, adapter, folder, base)
    policy.unread = unread
    if unread is None:
        try_out(policy, name_or_path)
    rates = dropout_rates(config)
    settings = {} if adapter is None else adapter.to_dict()
    rates |= {name: rate for name, rate in settings.items() if "dropout" in name and rate}
    if rates and not dropout:
        listed = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        warnings.warn(
            f"policy: {type(model).__name__} has dropout ({listed}), which is off: rollouts are"
            " generated without it, so log-probs with it would not be theirs; dropout: true"
            " keeps it on",
            stacklevel=2,
        )
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy.train()
    return policy


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
        try_out(model, str(model.config.name_or_path))


def torch_dtype(name: str) -> torch.dtype:
    """Return the floating-point dtype of that name.

    Raises:
        ValueError: if there is none.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype: {name!r} is not a torch dtype; float32 or bfloat16 are usual")
    if not dtype.is_floating_point:
        raise ValueError(f"dtype: {name!r} holds no fractions; float32 or bfloat16 are usual")
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


def refuse_missing_directory(name_or_path: str) -> None:
    """Check that a path that looks like a directory is one with a model's configuration.

    Raises:
        ValueError: if it does not exist or holds no config.json, or is a URL.
    """
    if "://" in name_or_path:
        raise ValueError(
            f"policy: {name_or_path!r} is a URL; name a directory, or a model on the hub as"
            " owner/model"
        )
    path = Path(name_or_path)
    looks_local = path.is_absolute() or name_or_path.startswith(".") or name_or_path.count("/") > 1
    looks_local |= "/" in name_or_path and path.parent.is_dir()
    if looks_local and not path.is_dir():
        raise ValueError(f"policy: the directory {name_or_path!r} does not exist")
    if path.is_dir() and not any((path / f).is_file() for f in ("config.json", SETTINGS_FILE)):
        raise ValueError(f"policy: the directory {name_or_path!r} holds no config.json")


def _refuse_code(name_or_path: str, error: BaseException) -> None:
    """Raise a one-line error where transformers refuses to run a model's own code."""
    if "trust_remote_code" in str(error):
        raise ValueError(
            f"policy: {name_or_path!r} contains its own Python code, which runs with your rights;"
            " read it, then set trust_remote_code: true"
        ) from error


def _cannot_make(name_or_path: str, attention: str, error: BaseException) -> str:
    return (
        f"policy: {name_or_path!r} cannot be made with attention: {attention!r}"
        f" ({first_line(error).split('. ')[0]}); eager works with every architecture"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n", 1)[0]
