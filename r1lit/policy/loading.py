"""Loading of tokenizers, policies and reward models: Hugging Face directories or names in."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from r1lit.errors import check_at_least, named
from r1lit.policy.adapter import (
    SETTINGS_FILE,
    Adapter,
    PeftConfig,
    Quantization,
    base_of,
    compute_alike,
    find_quantization,
    merge_adapter,
)
from r1lit.policy.policy import ModelWrapper, Policy, rope_limit
from r1lit.policy.scalar_head import HEAD, MEAN, STD, ScalarModel
from r1lit.policy.shards import StoredWeight, build_without_weights, can_be_put, fill, stand_ins
from r1lit.policy.support import try_out

GGUF = ".gguf"
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
    base, folder = _base_and_folder(name_or_path, from_scratch)
    options: dict[str, Any] = {
        "dtype": torch_dtype(dtype),
        "attn_implementation": attention,
        "trust_remote_code": trust_remote_code,
    }
    folder_config = None if folder is None else config
    in_4_bits = find_quantization(quantization, folder_config, sharded and adapter is not None)
    if in_4_bits is not None:
        options["quantization_config"] = in_4_bits
    built = None
    if sharded and not from_scratch and in_4_bits is None and can_be_put(adapter, folder):
        built = build_without_weights(AutoModelForCausalLM, config, base, **options)
    model, unread = built or (None, None)
    if from_scratch:
        try:
            model = AutoModelForCausalLM.from_config(config, **options)
        except (ImportError, ValueError) as error:
            raise ValueError(_cannot_make(name_or_path, attention, error)) from error
    elif model is None:
        model = _read_whole(name_or_path, base, **options)
    if folder is not None and adapter is None:
        model = merge_adapter(model if in_4_bits is None else model.dequantize(), folder)
    policy = Policy(model, dropout)
    _put_adapter_in(policy, adapter, folder, base)
    policy.unread = unread
    if unread is None:
        try_out(policy, name_or_path)
    if not dropout:
        _warn_of_dropout(policy, config, adapter)
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return policy.train()


def _base_and_folder(name_or_path: str, from_scratch: bool) -> tuple[str, str | None]:
    """Return the model whose weights are read, and the PEFT folder of its adapter, if it is one."""
    base = base_of(name_or_path)
    return base, None if base == name_or_path or from_scratch else name_or_path


def _read_whole(name_or_path: str, base: str, **options: Any) -> Any:
    """Return a causal language model with all its weights.

    Raises:
        ValueError: if they cannot be read, or some are missing, which would be noise.
    """
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            base, output_loading_info=True, **options
        )
    except (OSError, ImportError, RuntimeError, ValueError, SafetensorError) as error:
        fault = find_fault(AutoModelForCausalLM, base)
        if fault is None and isinstance(error, OSError):
            fault = f"no weights can be loaded from {name_or_path!r} ({first_line(error)})"
        if fault is not None:
            raise ValueError(f"policy: {fault}") from error
        attention = options["attn_implementation"]
        raise ValueError(_cannot_make(name_or_path, attention, error)) from error
    model, info = compute_alike(loaded[0]), loaded[1]
    _refuse_missing(name_or_path, sorted(info["missing_keys"]))
    return model


def _refuse_missing(name_or_path: str, missing: Sequence[str]) -> None:
    if missing:
        raise ValueError(
            f"policy: {name_or_path!r} lacks {len(missing)} of the model's weights,"
            f" {missing[0]} the first"
        )


def _put_adapter_in(
    wrapper: ModelWrapper, settings: PeftConfig | None, folder: str | None, base: str
) -> None:
    if settings is not None:
        with stand_ins(wrapper.model):
            wrapper.adapter = Adapter(wrapper.model, settings, folder, base)


def _warn_of_dropout(policy: Policy, config: PretrainedConfig, adapter: PeftConfig | None) -> None:
    """Warn of rates of dropout, the adapter's too, which have no effect."""
    rates = dropout_rates(config)
    settings = {} if adapter is None else adapter.to_dict()
    rates |= {name: rate for name, rate in settings.items() if "dropout" in name and rate}
    if rates:
        listed = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        warnings.warn(
            f"policy: {type(policy.model).__name__} has dropout ({listed}), which is off: rollouts"
            " are generated without it, so log-probs with it would not be theirs; dropout: true"
            " keeps it on",
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
        ValueError: if it does not exist or holds no config.json, or is a URL or a GGUF file.
    """
    if "://" in name_or_path:
        raise ValueError(
            f"policy: {name_or_path!r} is a URL; name a directory, or a model on the hub as"
            " owner/model"
        )
    path = Path(name_or_path)
    _refuse_gguf(path)
    looks_local = path.is_absolute() or name_or_path.startswith(".") or name_or_path.count("/") > 1
    looks_local |= "/" in name_or_path and path.parent.is_dir()
    if looks_local and not path.is_dir():
        raise ValueError(f"policy: the directory {name_or_path!r} does not exist")
    if path.is_dir() and not any((path / f).is_file() for f in ("config.json", SETTINGS_FILE)):
        raise ValueError(f"policy: the directory {name_or_path!r} holds no config.json")


def _refuse_gguf(path: Path) -> None:
    """Raise a ValueError with the command that makes a Hugging Face folder of a GGUF file."""
    files = [path] if path.suffix == GGUF else sorted(path.glob(f"*{GGUF}"))
    if files and not (path / "config.json").is_file():
        to = files[0].with_suffix("")
        raise ValueError(
            f"policy: {str(files[0])!r} is a GGUF file, whose weights are quantised; make a Hugging"
            f" Face folder of it: r1lit merge {files[0]} {to} (needs pip install 'r1lit[real]')"
        )


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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n", 1)[0]


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
    options: dict[str, Any] = {
        "dtype": torch_dtype(dtype),
        "attn_implementation": attention,
        "trust_remote_code": trust_remote_code,
    }
    base, folder = _base_and_folder(name_or_path, from_scratch)
    kind = AutoModelForSequenceClassification
    built, missing = None, []
    if sharded and not from_scratch and can_be_put(adapter, folder):
        built = build_without_weights(kind, config, base, new=HEAD if new else None, **options)
    model, unread = built or (None, None)
    try:
        if from_scratch:
            model = kind.from_config(config, **options)
        elif model is None:
            # it reports the head as missing, which is intended; the random state is restored after
            # it, so that the head is initialised as where weights are read in shares
            with _quiet(), torch.random.fork_rng(devices=[]):
                model, info = kind.from_pretrained(
                    base, config=config, output_loading_info=True, **options
                )
            missing = sorted(info["missing_keys"])
    except (OSError, ImportError, RuntimeError, ValueError, SafetensorError) as error:
        fault = find_fault(kind, base) or (
            f"no reward model can be made of {name_or_path!r} with attention: {attention!r}"
            f" ({first_line(error)})"
        )
        raise ValueError(f"policy: {fault}") from error
    assert model is not None
    missing = [name for name in missing if not ((new or folder) and name.startswith(HEAD))]
    _set_head(model, unread, new)
    _refuse_missing(name_or_path, missing)
    whole = model if adapter or folder is None else merge_adapter(model, folder)
    made = ScalarModel(whole, dropout)
    _put_adapter_in(made, adapter, folder, base)
    made.unread = unread
    if gradient_checkpointing:
        made.model.gradient_checkpointing_enable({"use_reentrant": False})
    return made.train()


def _set_head(model: Any, unread: Mapping[str, StoredWeight] | None, new: bool) -> None:
    """Give the head its weights: zeros if it is new, or else those that are still in the files.

    Raises:
        ValueError: if it is not linear.
    """
    head = getattr(model, HEAD, None)
    if not isinstance(head, torch.nn.Linear):
        raise ValueError(
            f"policy: {type(model).__name__} has no linear head named {HEAD!r}; reward models are"
            " made of decoders such as Llama, Qwen, Mistral, Gemma and GPT-2"
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


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


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


SAMPLED = 1 << 20  # bytes read at either end of a file


def policy_fingerprint(name_or_path: str) -> str | None:
    """Return a digest of a policy's weights and configuration, or None for a name on the hub.

    Of each file its name, size, first and last MiB are read, so that the digest of a large policy
    is quick, and a retrained policy still has another.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(
        [*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.json")]
    ):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED))
            if size > SAMPLED:
                file.seek(max(SAMPLED, size - SAMPLED))
                digest.update(file.read())
    return digest.hexdigest()
