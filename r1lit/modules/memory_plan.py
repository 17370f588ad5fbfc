"""A plan of a run's memory on each GPU, from its configuration alone, estimated by part.

    always   weights, gradients, optimiser state, reference, reward models, teacher, a served vLLM
    update   activations of the largest micro-batch, logits, weights that are gathered
    rollout  keys and values, weights that are gathered or cast

The most is all of ``always`` and the larger one of the other two, with every response as long as it
may be. Responses of a quarter of that, which are usual, need less. It is an estimate:
``USABLE_SHARE`` of a GPU may be planned for, since CUDA's context, NCCL's buffers and holes between
blocks take the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_only
from transformers import AutoModelForCausalLM, PretrainedConfig

from r1lit.errors import import_path
from r1lit.modules.base import PolicyModule
from r1lit.modules.plan import print_paragraph
from r1lit.policy import load_config
from r1lit.policy.chunks import chunk_sizes
from r1lit.policy.source import ModelSource, settings_of
from r1lit.rewards import RewardFunction
from r1lit.rollout import InProcessEngine, RolloutEngine
from r1lit.steps.base import REFERENCE, Step

GB = 1e9
USABLE_SHARE = 0.9
GPU = torch.device("cuda")
LIBRARIES = 600_000_000  # of Python's and PyTorch's on a CPU, measured
SMALLEST_PRINTED = 1 * GB
SAME = 0.05  # GB
USUAL = 4  # a response has a quarter of the tokens that it may have
Parts = dict[str, dict[str, int]]

FORMULAS = (
    "N parameters, E of them outside of the layers and n in one, L layers, d hidden size, f"
    " intermediate size, a = heads x head size, k = key-value heads x head size, V vocabulary; b"
    " bytes of a weight, p of a product; R ranks that share weights (FSDP2), else 1; T tokens of"
    " the largest micro-batch, at least a longest row; S rows decoded at a time",
    "weights b N / R, gradients b N / R (whole without reduce_every_pass), moments 2 b N / R (3 b N"
    " of optimi), reference b N / R where there is one; DDP's buckets b N; of an adapter a"
    " hundredth; in 4 bits weights are b E + 9 (N - E) / 16",
    "a critic (PPO) or process model (PRIME), taken to be of the policy's size: weights, gradients"
    " and moments as the policy's, and PRIME's own reference",
    "a teacher and reward models (taken to be of the policy's size) are whole on every rank",
    "activations, checkpointed: T (b d L + kept + work), without: T (L kept + work); kept = (8 + 6"
    " b - 2 p) d + 2 (a + k) p + 4 f p of a layer, work = b d + 2 f p while going back through it",
    "logits: the head's gradient in float32, 4 V d, and a chunk of logits",
    "gathered in an update (R > 1): b (2 E + 3 n); in a rollout in this process: b N",
    "copies in p bytes where p < b: p n in an update (p N without checkpointing), p N in a rollout",
    "keys and values of a rollout in this process, at most: S (prompt / G + max_tokens) 2 L k p, G"
    " responses to a prompt",
    "a served vLLM: its gpu-memory-utilization of the GPU",
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Sizes of a model that decide its memory: numbers of parameters, and widths."""

    num_parameters: int
    num_outside_layers: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    attention_size: int
    kv_size: int
    vocab_size: int

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        return (self.num_parameters - self.num_outside_layers) // self.num_layers

    @staticmethod
    def of(config: PretrainedConfig) -> Architecture:
        """Return the architecture of a causal language model, whose weights are not made."""
        text = config.get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        sizes = {name: weight.numel() for name, weight in model.named_parameters()}
        outside = [size for name, size in sizes.items() if not re.search(r"\.\d+\.", name)]
        heads = text.num_attention_heads
        head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
        kv_heads = getattr(text, "num_key_value_heads", None) or heads
        return Architecture(
            num_parameters=sum(sizes.values()),
            num_outside_layers=sum(outside),
            num_layers=text.num_hidden_layers,
            hidden_size=text.hidden_size,
            intermediate_size=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            attention_size=heads * head_size,
            kv_size=kv_heads * head_size,
            vocab_size=text.vocab_size,
        )


def memory_parts(
    settings: MemorySettings,
    model: Architecture,
    teacher: Architecture | None = None,
    capacity: float = 80 * GB,
    device: torch.device = GPU,
) -> Parts:
    """Return the bytes on one device by part, under ``always``, ``update`` and ``rollout``.

    ``capacity``: of the GPU, of which a served vLLM takes a share. A CPU's process holds Python and
    its libraries too, and its optimiser's head needs no second gradient.
    """
    s, n, b, p = settings, model.num_parameters, settings.weight, settings.product
    shards = s.ranks if s.is_sharded else 1
    gathers, whole, outside = shards > 1, s.trained_share == 1.0, model.num_outside_layers
    trained = round(n * s.trained_share) if s.trains else 0
    always = {
        "weights": (b * n - s.in_4_bits * (n - outside) * (16 * b - 9) // 16) // shards,
        "gradients": b * trained // (shards if s.reduces_every_pass else 1),
        "DDP's buckets": b * trained if s.ranks > 1 and not s.is_sharded else 0,
        "optimiser": s.moments * trained // shards,
        "reference": b * n // shards if s.has_reference and whole else 0,
        "critic or process model": s.trained_beside * n // shards,
        "reward models": s.reward_models * n,
        "teacher": s.teacher_weight * teacher.num_parameters if teacher else 0,
        "vLLM": round(s.served_share * capacity),
        "libraries": LIBRARIES if device.type == "cpu" else 0,
    }
    d, f, layers = model.hidden_size, model.intermediate_size, model.num_layers
    one = model.layer_parameters
    kept = (8 + 6 * b - 2 * p) * d + 2 * (model.attention_size + model.kv_size) * p + 4 * f * p
    work = b * d + 2 * f * p
    token = (b * d * layers + kept if s.gradient_checkpointing else kept * layers) + work
    on_cpu = device.type == "cpu"
    chunk = chunk_sizes(device)
    update = {
        "activations": s.micro_batch * token,
        "logits": (not on_cpu) * 4 * model.vocab_size * d + p * chunk.logits + 12 * chunk.floats,
        "gathered weights": b * (2 * outside + 3 * one) if gathers else 0,
        "copies": (p * (one if s.gradient_checkpointing else n)) if p < b else 0,
    }
    rollout = {
        "keys and values": s.cached_tokens * 2 * layers * model.kv_size * p,
        "gathered weights": b * n if gathers else 0,
        "copies": p * n if p < b else 0,
    }
    phases = {"always": always, "update": update if s.trains else {}}
    phases["rollout"] = rollout if s.rows_decoded else {}
    return {
        phase: {part: size for part, size in parts.items() if size}
        for phase, parts in phases.items()
    }


def most_memory(parts: Parts) -> int:
    """Return the bytes that one GPU holds at most."""
    sums = {phase: sum(sizes.values()) for phase, sizes in parts.items()}
    return sums["always"] + max(sums["update"], sums["rollout"])


def of_usual_length(settings: MemorySettings, prompt_tokens: int | None = None) -> MemorySettings:
    """Return settings whose responses have a quarter of the tokens that they may have.

    ``prompt_tokens``: of a usual prompt; the longest one's if left out.
    """
    longest = settings.response_tokens
    prompt = settings.row_tokens - longest if prompt_tokens is None else prompt_tokens
    usual = longest // USUAL
    return replace(settings, row_tokens=prompt + usual, response_tokens=usual)


def memory_lines(
    parts: Parts, capacity: float | None = None, usual: Parts | None = None
) -> Iterator[str]:
    """Yield the parts as plain lines, in GB of 10^9 bytes, and the share of ``capacity``.

    ``usual`` are the parts with responses of usual length, which are said where they come to less.
    """
    for phase, sizes in parts.items():
        if sizes:
            listed = ", ".join(f"{part} {size / GB:.1f}" for part, size in sizes.items())
            yield f"{phase + ':':<9}{sum(sizes.values()) / GB:.1f} ({listed})"
    most = most_memory(parts)
    verdict = f"at most: {most / GB:.1f}"
    if usual is not None and most - most_memory(usual) > SAME * GB:
        verdict = f"likely: {most_memory(usual) / GB:.1f}; {verdict}"
    if capacity is not None:
        fits = "fits" if most <= USABLE_SHARE * capacity else "does not fit"
        verdict += f" of {capacity / GB:.0f}; {fits} with {1 - USABLE_SHARE:.0%} to spare"
    yield verdict


@rank_zero_only
def print_memory_plan(
    config: Config, policy: PretrainedConfig, trainer: Trainer, prompt_tokens: int | None = None
) -> None:
    """Print the plan of a run before any weights are loaded; of a small one on a CPU nothing.

    ``prompt_tokens``: of the longest prompt, where it is known.
    """
    device = trainer.strategy.root_device
    on_cpu = device.type != "cuda"
    if settings_of(config["model"]["init_args"].get("policy")).get("trust_remote_code"):
        return
    settings = read_settings(config, trainer.world_size, prompt_tokens)
    teacher = Architecture.of(load_config(settings.teacher)) if settings.teacher else None
    capacity = None if on_cpu else torch.cuda.get_device_properties(device).total_memory
    kind = torch.device("cpu") if on_cpu else GPU
    model, most = Architecture.of(policy), capacity or 80 * GB
    parts, usual = (
        memory_parts(each, model, teacher, most, kind)
        for each in (settings, of_usual_length(settings))
    )
    alone = on_cpu and trainer.world_size == 1
    if alone and most_memory(parts) - LIBRARIES < SMALLEST_PRINTED:
        return
    whose = "this process" if alone else f"each of {trainer.world_size} ranks"
    lines = (" ".join(line.split()) for line in memory_lines(parts, capacity, usual))
    print_paragraph(f"Memory of {whose} in GB, estimated: {'; '.join(lines)}")


# from a configuration


ADAPTER_SHARE = 0.01
PROMPT_TOKENS = 1024  # of the longest prompt, where data.prompts.max_tokens sets no limit
Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a run that decide its memory; ``weight`` and the like are in bytes.

    ``moments``: of the optimiser, for each weight that is trained. ``trained_beside``: of a
    critic or process model, all it needs for each of its weights. ``reward_models``: of all of
    them, for each weight of one. ``teacher``: one in this process. ``micro_batch``:
    tokens of the largest. ``rows_decoded``: at a time in this process, of ``row_tokens`` at most,
    prompt included, ``response_tokens`` without it, ``group_size`` of a prompt. ``served_share``:
    what of the GPU a vLLM takes.
    """

    ranks: int
    is_sharded: bool
    trains: bool
    weight: int
    product: int
    moments: int
    trained_share: float
    reduces_every_pass: bool
    has_reference: bool
    reward_models: int
    teacher_weight: int
    gradient_checkpointing: bool
    micro_batch: int
    rows_decoded: int
    row_tokens: int
    response_tokens: int
    group_size: int
    served_share: float
    in_4_bits: bool = False
    trained_beside: int = 0
    teacher: ModelSource | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values are held at most; a group's prompt is held once."""
        num_prompts = -(-self.rows_decoded // self.group_size)
        prompt = self.row_tokens - self.response_tokens
        return self.rows_decoded * self.response_tokens + num_prompts * prompt


def read_settings(config: Config, ranks: int, prompt_tokens: int | None = None) -> MemorySettings:
    """Read the settings of a plan from a merged configuration, defaults spelt out or not.

    Each class that it names is asked what it holds and where it generates; none is made.

    Args:
        config: of the run.
        ranks: processes.
        prompt_tokens: of the longest prompt; ``data.prompts.max_tokens`` or ``PROMPT_TOKENS`` where
            it is not known.

    Raises:
        ValueError: naming a class that cannot be imported.
    """
    model, data = init_args_of(config.get("model")), init_args_of(config.get("data"))
    trainer = config.get("trainer") or {}
    module = class_of(config.get("model"), "r1lit.modules", "model")
    trains = module is None or module.training_step is not LightningModule.training_step
    policy = settings_of(model.get("policy"))
    weight = _bytes(policy.get("dtype") or ("float32" if trains else "bfloat16"))
    mixed = trainer.get("precision") == "bf16-mixed"
    longest = most_tokens(model)
    prompt = prompt_tokens or (data.get("prompts") or {}).get("max_tokens") or PROMPT_TOKENS
    rows, group_size = _rows_decoded(data, ranks) if longest else (0, 0)
    lengths = [prompt + longest if longest else 0]
    if data.get("documents"):
        lengths.append((data.get("packing") or {}).get("max_seq_len", 1024))
    if "train_batch_size" in data:  # pairs, or labelled responses
        lengths.append(data.get("max_tokens") or 1024)
    engine = engine_of(model)
    served_share = engine.server_share(init_args_of(model.get("engine")))
    here = init_args_of(model.get("engine")).get("max_rows") or rows if served_share is None else 0
    teacher = _teacher(model)
    strategy = class_of(trainer.get("strategy"), "lightning.pytorch.strategies", "trainer.strategy")
    return MemorySettings(
        ranks=ranks,
        is_sharded=strategy is not None and issubclass(strategy, ModelParallelStrategy),
        trains=trains,
        weight=weight,
        product=2 if mixed else weight,
        moments=_moments(model.get("optimizer"), weight),
        trained_share=1.0 if policy.get("adapter") is None else ADAPTER_SHARE,
        in_4_bits=bool(policy.get("quantization")),
        reduces_every_pass=bool(model.get("reduce_every_pass")),
        has_reference=_has_reference(module, model),
        trained_beside=sum(
            (2 * kind.held.trained + kind.held.constant) * weight
            + kind.held.trained * _moments(init_args_of(step).get("optimizer"), weight)
            for step, kind in _parts(model.get("steps"), Step, "r1lit.steps", "model.steps")
        ),
        reward_models=sum(
            kind.held.whole * _bytes(_model(reward).get("dtype"))
            for reward, kind in _parts(
                model.get("rewards"), RewardFunction, "r1lit.rewards", "model.rewards"
            )
        ),
        teacher=ModelSource.of(teacher["path"], "teacher").but(
            trust_remote_code=bool(teacher.get("trust_remote_code"))
        )
        if teacher.get("path")
        else None,
        teacher_weight=_bytes(teacher.get("dtype")) if teacher else 0,
        gradient_checkpointing=bool(model.get("gradient_checkpointing")),
        micro_batch=max(model.get("micro_batch_tokens") or 4096, *lengths),
        rows_decoded=here if longest else 0,
        row_tokens=prompt + longest,
        response_tokens=longest,
        group_size=max(1, group_size),
        served_share=served_share or 0.0,
    )


def _rows_decoded(data: Config, ranks: int) -> tuple[int, int]:
    """Return how many rows one rank decodes together, and how many of a prompt."""
    rollout = {"prompts_per_iteration": 16, "group_size": 16, **(data.get("rollout") or {})}
    group_size = rollout["group_size"]
    rows = max(1, rollout["prompts_per_iteration"] * group_size // ranks)
    evaluation = data.get("evaluation") or {}
    if data.get("validation") and evaluation.get("prompts_per_batch"):
        num_samples = evaluation.get("num_samples") or 1
        rows = max(rows, evaluation["prompts_per_batch"] * num_samples // ranks)
        group_size = min(group_size, num_samples)
    return rows, group_size


def most_tokens(model: Config) -> int:
    """Return the most tokens of a response that a module's arguments allow; 0 without rollouts.

    An evaluation of data during supervised training is not counted.
    """
    if not model.get("sampling") or model.get("on_policy", 1.0) == 0:
        return 0
    later = model.get("max_tokens_from") or {}
    return max(model["sampling"].get("max_tokens") or 512, *later.values(), 0)


def _of(given: Any, key: str) -> Any:
    return given.get(key) if isinstance(given, Mapping) else None


def init_args_of(given: Any) -> dict[str, Any]:
    """Return the ``init_args`` of a part of a configuration; none of a bare class."""
    return dict(_of(given, "init_args") or {})


def _model(given: Any) -> dict[str, Any]:
    """Return the source of a teacher or a reward model."""
    return settings_of(init_args_of(given).get("model"))


def class_of(given: Any, room: str, key: str) -> Any:
    """Return the class that a configuration names, by a path or by its bare name in a room.

    None for none, and for a word that names no class, such as ``ddp``.

    Raises:
        ValueError: naming ``key`` if it cannot be imported.
    """
    path = _of(given, "class_path") if isinstance(given, Mapping) else given
    if not path or not isinstance(path, str) or not path.rpartition(".")[2][:1].isupper():
        return None
    return import_path(path if "." in path else f"{room}.{path}", f"{key}.class_path")


def engine_of(model: Config) -> type[RolloutEngine]:
    """Return the class of a module's engine, from the module's arguments."""
    found = class_of(model.get("engine"), "r1lit.rollout", "model.engine")
    return InProcessEngine if found is None else found


def _parts(given: Any, of: type, room: str, key: str) -> Iterator[tuple[Any, Any]]:
    """Yield each description of a subclass of ``of``, wherever it is nested, with its class."""
    if isinstance(given, list):
        for item in given:
            yield from _parts(item, of, room, key)
        return
    if isinstance(given, str) or (isinstance(given, Mapping) and "class_path" in given):
        kind = class_of(given, room, key)
        if isinstance(kind, type) and issubclass(kind, of):
            yield given, kind
    if isinstance(given, Mapping):
        for value in given.values():
            if not isinstance(value, str):
                yield from _parts(value, of, room, key)


def _has_reference(module: type | None, model: Config) -> bool:
    """Return whether a run keeps a reference: by its module, its objective, or a step's reading."""
    beta = init_args_of(model.get("objective")).get("beta") or 0
    steps = _parts(model.get("steps"), Step, "r1lit.steps", "model.steps")
    always = False
    if module is not None and issubclass(module, PolicyModule):
        always = module.reference_in_loss is True  # else a property, of an objective
    return always or beta > 0 or any(REFERENCE in kind.reads for _, kind in steps)


def _teacher(model: Config) -> dict[str, Any]:
    """Return the source of a teacher in this process; empty without one."""
    kind = class_of(model.get("teacher"), "r1lit.policy", "model.teacher")
    return _model(model["teacher"]) if kind is not None and kind.held.whole else {}


def _bytes(dtype: Any) -> int:
    return 2 if dtype in ("bfloat16", "float16") else 4


def _moments(optimizer: Any, weight: int) -> int:
    """Return the bytes of an optimiser's state for each weight: it makes a step to show them.

    AdamW's where it cannot be made here, as without its package or a GPU.
    """
    dtype = torch.bfloat16 if weight == 2 else torch.float32
    parameter = torch.nn.Parameter(torch.zeros(128, 128, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    try:
        kind = class_of(optimizer, "torch.optim", "model.optimizer") or torch.optim.AdamW
        made = kind([parameter], **{"lr": 1e-3, **init_args_of(optimizer)})
        made.step()
    except Exception:
        return 2 * weight
    tensors = [x for x in made.state[parameter].values() if isinstance(x, torch.Tensor)]
    return round(sum(x.nbytes for x in tensors if x.ndim) / parameter.numel())
