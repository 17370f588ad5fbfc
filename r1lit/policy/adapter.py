"""Peft adapters: a few trained weights on top of a policy's frozen ones.

peft puts them into the model's layers, so that packed passes, decoding and hooks meet them there.
With QLoRA (2305.14314) bitsandbytes holds the policy's own weights in 4 bits.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import BitsAndBytesConfig, PretrainedConfig, PreTrainedModel

from r1lit.policy.shards import shared_out, whole, whole_copy, without_adapter
from r1lit.policy.source import ModelSource, PeftConfig, Quantization

WEIGHTS_FILE = "adapter_model.safetensors"
STARTS = (True, False, "gaussian", "orthogonal")
DECIDE_NOTHING = {  # about what a stored adapter computes, or are compared by its weights
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights"),
    *("init_weights", "lora_dropout", "peft_version", "revision", "target_modules", "task_type"),
    *("loftq_config", "runtime_config", "peft_type"),
}
NAME = "default"
NUDGE = 0.1


class Adapter:
    """A peft adapter in the layers of a Hugging Face model; all but its weights is frozen.

    ``frozen_names`` are the names, in the model's state, of what is not trained.

    Args:
        model: changed in place.
        settings: peft's configuration, which is not changed.
        folder: of an adapter to go on with; a new one is made if left out.
        base: the model's name, which is written beside exported weights.

    Raises:
        ValueError: if peft is not installed, the adapter is of a kind that does not live in layers,
            the model has not the layers, or the folder holds another adapter.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: PeftConfig,
        folder: str | None = None,
        base: str | None = None,
    ) -> None:
        self.model = model
        before = model.state_dict(keep_vars=True)
        own = {id(tensor) for tensor in before.values()}
        self.peft = _put_into(model, settings)
        state = model.state_dict(keep_vars=True)
        self._own_names = frozenset(
            # of weights in 4 bits there is more, made anew in each state
            n
            for n, x in state.items()
            if id(x) in own or without_adapter(n) in before
        )
        self.frozen_names = frozenset(n for n in self._own_names if not state[n].requires_grad)
        starts = getattr(settings, "init_lora_weights", getattr(settings, "init_weights", True))
        trains_own = any(state[n].requires_grad for n in self._own_names)
        self.starts_without_effect = folder is None and starts is not False and not trains_own
        """True where training begins with the model without adapter."""
        if folder is not None:
            self._load(folder)
        # peft finds them by walks through the model and, of a base on the hub, a request
        self._saved: frozenset[str] | None = None
        self._stored: dict[str, str] = {}  # of ``gather``'s names; empty where it is not stored
        if base is not None:
            local = Path(base)
            name = str(local.resolve()) if local.is_dir() else base
            self.peft.peft_config[NAME].base_model_name_or_path = name

    @property
    def weights(self) -> list[nn.Parameter]:
        """The weights that are trained."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def settings(self) -> Any:
        """The configuration of peft that it has."""
        return self.peft.peft_config[NAME]

    @contextmanager
    def off(self) -> Iterator[None]:
        """Compute without the adapter."""
        with self.peft.disable_adapter():
            yield

    @contextmanager
    def at(self, values: Sequence[Tensor]) -> Iterator[None]:
        """Compute with other values of ``weights``; nothing may be waiting for a backward pass."""
        with torch.no_grad():
            own = [weight.detach().clone() for weight in self.weights]
            _copy(values, self.weights)
        try:
            yield
        finally:
            _copy(own, self.weights)

    @contextmanager
    def with_visible_adapter(self) -> Iterator[None]:
        """Compute with weights at which the adapter has an effect, which a new one has not."""
        generator = torch.Generator().manual_seed(0)
        noise = (torch.randn(p.shape, generator=generator) * NUDGE for p in self.weights)
        values = zip(self.weights, noise, strict=True)
        with self.at([p.detach() + shared_out(n, p) for p, n in values]):
            yield

    @torch.no_grad()
    def merged_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of the model with its adapter merged, by Hugging Face's names.

        A copy of one layer at a time is merged, or the sum made of one in 4 bits. Of a sharded
        model no more than that is whole; all ranks read them together.
        """
        in_4_bits = names_in_4_bits(self.model)
        for name, tensor in self.model.state_dict().items():
            if name in in_4_bits:
                yield whole_weight(self.model, name, NAME)
                continue
            if name.rpartition(".weight.")[0] + ".weight" in in_4_bits:
                continue  # what its numbers stand for
            saved = f".modules_to_save.{NAME}."
            if saved in name:
                yield name.replace(saved, "."), whole(tensor)
            elif name in self._own_names and ".original_module." not in name:
                owner, inner, _ = name.partition(".base_layer.")
                if not inner or f"{owner}.base_layer.weight" in in_4_bits:
                    yield without_adapter(name), whole(tensor)
                    continue
                yield _merged(self.model.get_submodule(owner), name, owner)

    def save_pretrained(
        self, directory: str | Path, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        """Write a PEFT folder, with the model's configuration beside it.

        ``state_dict``: what ``gather`` returned, where the model is sharded.
        """
        self.peft.save_pretrained(str(directory), state_dict=state_dict)
        config = copy.deepcopy(self.model.config)
        config.architectures = [type(self.model).__name__]
        config.save_pretrained(directory)

    def gather(self) -> dict[str, Tensor]:
        """Return the tensors of ``peft`` that a PEFT folder holds, whole; all ranks call it."""
        from peft.utils import get_peft_model_state_dict

        state = self.peft.state_dict()
        if self._saved is None or not self._saved <= state.keys():
            saved = {id(x) for x in get_peft_model_state_dict(self.peft, state_dict=state).values()}
            self._saved = frozenset(name for name, x in state.items() if id(x) in saved)
        return {name: whole(x).cpu() for name, x in state.items() if name in self._saved}

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return ``gather``'s weights by their names in a PEFT folder."""
        from peft.utils import get_peft_model_state_dict

        if weights.keys() == self._stored.keys():
            return {there: weights[here] for here, there in self._stored.items() if there}
        state = get_peft_model_state_dict(
            self.peft, state_dict=weights, save_embedding_layers=False
        )
        names = {id(x): name for name, x in state.items()}
        if names.keys() <= {id(x) for x in weights.values()}:  # else some are computed
            self._stored = {name: names.get(id(x), "") for name, x in weights.items()}
        return dict(state)

    def save_weights(self, directory: Path, weights: dict[str, Tensor]) -> None:
        """Write a PEFT folder of nothing but the adapter's settings and ``gather``'s weights."""
        self.settings.save_pretrained(str(directory))
        saved = {name: x.contiguous() for name, x in self.stored(weights).items()}
        save_file(saved, directory / WEIGHTS_FILE)

    def scale_of(self, name: str) -> float:
        """Return the factor of LoRA's B A in the layer of a tensor of ``stored``."""
        layer = name.removeprefix("base_model.model.").partition(".lora_")[0]
        tuner: Any = self.model.get_submodule(layer)
        return float(tuner.scaling[NAME])

    def own_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of the model without its adapter, by Hugging Face's names.

        Of a sharded model no more than one is whole; all ranks read them together.
        """
        for name, tensor in self.model.state_dict().items():
            if name in self._own_names:
                yield without_adapter(name), whole(tensor)

    def _load(self, folder: str) -> None:
        import peft

        stored = peft.PeftConfig.from_pretrained(folder).to_dict()
        given = self.peft.peft_config[NAME].to_dict()
        differ = [k for k in given if k not in DECIDE_NOTHING and given[k] != stored.get(k)]
        weights = peft.load_peft_weights(folder, device="cpu")
        own = peft.get_peft_model_state_dict(self.peft)
        shapes = {n: x.shape for n, x in weights.items()}
        if differ or shapes != {n: x.shape for n, x in own.items()}:
            what = "".join(f"; {k} was {stored.get(k)} and is {given[k]}" for k in differ[:1])
            raise ValueError(
                f"adapter: it is not of the kind in {folder}{what or '; its layers differ'}; give"
                " the settings of its adapter_config.json, or make a whole model of it by r1lit"
                " merge"
            )
        peft.set_peft_model_state_dict(self.peft, weights)


def _merged(layer: nn.Module, name: str, owner: str) -> tuple[str, Tensor]:
    """Return one of a layer's weights by Hugging Face's name, with the adapter merged into it.

    peft wraps fused experts once for each of their weights, one wrapper within the other.
    """
    whole_layer: Any = whole_copy(layer)
    leaf = name.rpartition(".base_layer.")[2]
    wrapper = whole_layer
    while hasattr(wrapper, "base_layer"):
        if getattr(wrapper, "parameter_name", leaf) == leaf:
            wrapper.merge()
        wrapper = wrapper.base_layer
    return f"{owner}.{leaf}", wrapper.state_dict()[leaf]


def merge_adapter(model: PreTrainedModel, folder: str, key: str) -> Any:
    """Return a model with a folder's adapter merged into its weights.

    Raises:
        ValueError: if peft is not installed, or the adapter does not fit or cannot be merged.
    """
    _need_peft()
    from peft import PeftModel

    try:
        merged: Any = PeftModel.from_pretrained(model, folder)
        return merged.merge_and_unload().requires_grad_(True)  # peft has frozen them
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{key}: the adapter in {folder!r} cannot be merged ({error})") from error


def check_adapter(auto_class: Any, config: PretrainedConfig, source: ModelSource) -> None:
    """Put an adapter into a model without memory for weights, to see whether it can be.

    Raises:
        ValueError: see ``Adapter``, ``check_quantization``; or if there are no weights to adapt.
    """
    if source.adapter is not None:
        if source.from_scratch:
            raise ValueError("adapter: it needs a policy's own weights; leave from_scratch out")
        _need_peft()
        trust = source.trust_remote_code
        with torch.device("meta"):
            model = auto_class.from_config(copy.deepcopy(config), trust_remote_code=trust)
            Adapter(model, source.adapter)
    check_quantization(source.quantization, source.adapter)


def _put_into(model: PreTrainedModel, settings: PeftConfig) -> Any:
    _need_peft()
    from peft import get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    if not isinstance(settings, PeftConfig):
        raise ValueError(
            f"adapter: {settings!r} is no configuration of peft; give class_path: peft.LoraConfig"
        )
    kind = type(settings).__name__
    if settings.is_prompt_learning or kind in ("AdaLoraConfig", "XLoraConfig"):
        raise ValueError(
            f"adapter: {kind} is more than weights in layers: tokens before a prompt, or calls"
            " between updates; use peft.LoraConfig or another that changes layers"
        )
    start = getattr(settings, "init_lora_weights", True)
    if start not in STARTS:
        raise ValueError(
            f"adapter.init_lora_weights: {start!r} changes the policy's own weights, or needs data"
            f" first; {', '.join(map(str, STARTS))} do not"
        )
    settings = copy.deepcopy(settings)
    of_rows = type(model).__name__.endswith("ForSequenceClassification")
    settings.task_type = "SEQ_CLS" if of_rows else "CAUSAL_LM"
    wanted = getattr(settings, "target_modules", None)
    try:
        peft = get_peft_model(model, settings)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(
            f"adapter: {kind} does not fit {type(model).__name__}:"
            f" {str(error).split('. ')[0]}; its linear layers are {_linear_names(model)}"
        ) from error
    found = [n for n, m in model.named_modules() if isinstance(m, BaseTunerLayer)]
    names = () if wanted is None or isinstance(wanted, str) else wanted
    absent = sorted(n for n in names if not any(f".{name}".endswith(f".{n}") for name in found))
    if absent:
        raise ValueError(
            f"adapter.target_modules: {type(model).__name__} has no {', '.join(absent)}; its linear"
            f" layers are {_linear_names(model)}"
        )
    return peft


def _need_peft() -> None:
    if find_spec("peft") is None:
        raise ValueError("adapter: peft is not installed; pip install 'r1lit[lora]'")


def _linear_names(model: nn.Module) -> str:
    kinds = (nn.Linear,)
    linear = (n for n, m in model.named_modules() if isinstance(m, kinds) and "lora" not in n)
    return ", ".join(sorted({n.removesuffix(".base_layer").rsplit(".", 1)[-1] for n in linear}))


@torch.no_grad()
def _copy(values: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    for value, weight in zip(values, weights, strict=True):
        weight.copy_(value)


def check_quantization(quantization: Quantization | None, adapter: Any) -> None:
    """Check the requested quantization before anything is loaded.

    Raises:
        ValueError: if bitsandbytes is missing, it is not 4 bits, or there is no LoRA to be trained.
    """
    if quantization is None:
        return
    if type(adapter).__name__ != "LoraConfig" or adapter.use_dora:
        given = "no adapter" if adapter is None else type(adapter).__name__
        raise ValueError(
            f"quantization: weights in 4 bits are not trained, and {given} is; give"
            " adapter: peft.LoraConfig, without use_dora"
        )
    _to_config(quantization)


def _to_config(quantization: Mapping[str, Any]) -> BitsAndBytesConfig:
    _need_packages()
    known = {*inspect.signature(BitsAndBytesConfig).parameters} - {"load_in_8bit", "kwargs"}
    unknown = sorted({*quantization} - known)
    if unknown or quantization.get("load_in_4bit") is not True:
        what = f"{unknown[0]} is not one of" if unknown else "load_in_4bit is not true among"
        raise ValueError(f"quantization: {what} {', '.join(sorted(known))}")
    try:
        return BitsAndBytesConfig(**quantization)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"quantization: {error}") from error


def find_quantization(
    given: Quantization | None, folder_config: Any, shards_adapter: bool
) -> BitsAndBytesConfig | None:
    """Return how the weights beside an adapter are held, if in 4 bits.

    Args:
        given: what was asked for.
        folder_config: the configuration in a PEFT folder, which says how they were held.
        shards_adapter: whether FSDP2 is to shard them.

    Raises:
        ValueError: as ``check_quantization``, or if they are to be sharded.
    """
    stored = getattr(folder_config, "quantization_config", None)
    if given is None and stored is None:
        return None
    if shards_adapter:
        raise ValueError(
            "quantization: FSDP2 does not shard weights in 4 bits; use strategy: ddp, where each"
            " rank holds all, or leave it out"
        )
    if given is not None:
        return _to_config(given)
    _need_packages()
    return BitsAndBytesConfig.from_dict(stored)


def _need_packages() -> None:
    for package in ("bitsandbytes", "accelerate"):
        if find_spec(package) is None:
            raise ValueError(
                f"quantization: {package} is not installed; pip install 'r1lit[qlora]'"
            )


def names_in_4_bits(model: nn.Module) -> frozenset[str]:
    """Return the names of the weights that are held in 4 bits."""
    return frozenset(n for n, p in model.named_parameters() if type(p).__name__ == "Params4bit")


def whole_weight(model: nn.Module, name: str, adapter: str) -> tuple[str, Tensor]:
    """Return one of ``names_in_4_bits`` without its layer's adapter, and what the two amount to."""
    owner, inner, _ = name.partition(".base_layer.")
    layer: Any = model.get_submodule(owner if inner else name.removesuffix(".weight"))
    weight = _dequantized(layer.get_base_layer() if inner else layer)
    if not inner:
        return name, weight
    return f"{owner}.weight", weight + layer.get_delta_weight(adapter).to(weight.dtype)


def _dequantized(layer: Any) -> Tensor:
    from peft.utils.integrations import dequantize_bnb_weight  # peft is an extra

    return dequantize_bnb_weight(layer.weight)


def compute_alike(model: Any) -> Any:
    """Return a model whose layers in 4 bits compute alike with and without gradients.

    On some CPUs bitsandbytes would put weights into another layout where none is wanted, and
    multiply in bfloat16: rollouts would not be those of the policy that is updated.
    """
    for layer in _layers(model):
        layer.support_avx512bf16_for_cpu = False
    return model


def _layers(model: nn.Module) -> list[Any]:
    kind = "Params4bit"
    return [m for m in model.modules() if type(m._parameters.get("weight")).__name__ == kind]


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Compute with weights in 4 bits in float32, whatever the configured dtype."""
    layers = _layers(model)
    before = [layer.compute_dtype for layer in layers]
    try:
        for layer in layers:
            layer.compute_dtype = torch.float32
        yield
    finally:
        for layer, dtype in zip(layers, before, strict=True):
            layer.compute_dtype = dtype
