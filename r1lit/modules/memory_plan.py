"""How much memory a run takes on each GPU, by part, from its configuration: no weights are made.

    always   weights, gradients, optimiser state, reference, reward models, teacher, a served vLLM
    update   activations of the largest micro-batch, logits, weights that are gathered
    rollout  keys and values, weights that are gathered or cast

The most is all of ``always`` and the larger one of the other two. It is an estimate: ``FILL`` of a
GPU may be planned for, since CUDA's context, NCCL's buffers and holes between blocks take the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_only
from transformers import AutoModelForCausalLM, PretrainedConfig

from r1lit.modules.memory_settings import Config, MemorySettings, read_settings
from r1lit.policy import load_config
from r1lit.policy.linear_head import chunk_sizes

GB = 1e9
FILL = 0.9
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
    "keys and values of a rollout in this process, at most: S (prompt + max_tokens) 2 L k p",
    "a served vLLM: its gpu-memory-utilization of the GPU",
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What of a model decides its memory: numbers of parameters, and widths."""

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
) -> Parts:
    """Return the bytes on one GPU by part, under ``always``, ``update`` and ``rollout``.

    ``capacity``: of the GPU, of which a served vLLM takes a share.
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
    }
    d, f, layers = model.hidden_size, model.intermediate_size, model.num_layers
    one = model.layer_parameters
    kept = (8 + 6 * b - 2 * p) * d + 2 * (model.attention_size + model.kv_size) * p + 4 * f * p
    work = b * d + 2 * f * p
    token = (b * d * layers + kept if s.gradient_checkpointing else kept * layers) + work
    chunk = chunk_sizes(torch.device("cuda"))
    update = {
        "activations": s.micro_batch * token,
        "logits": 4 * model.vocab_size * d + p * chunk.logits + 12 * chunk.floats,
        "gathered weights": b * (2 * outside + 3 * one) if gathers else 0,
        "copies": (p * (one if s.gradient_checkpointing else n)) if p < b else 0,
    }
    rollout = {
        "keys and values": s.rows_decoded * s.row_tokens * 2 * layers * model.kv_size * p,
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


def memory_lines(parts: Parts, capacity: float | None = None) -> Iterator[str]:
    """Yield the parts as plain lines, in GB of 10^9 bytes, and the share of ``capacity``."""
    for phase, sizes in parts.items():
        if sizes:
            listed = ", ".join(f"{part} {size / GB:.1f}" for part, size in sizes.items())
            yield f"{phase + ':':<9}{sum(sizes.values()) / GB:.1f} ({listed})"
    most = most_memory(parts)
    verdict = f"at most: {most / GB:.1f}"
    if capacity is not None:
        fits = "fits" if most <= FILL * capacity else "does not fit"
        verdict += f" of {capacity / GB:.0f}; {fits} with {1 - FILL:.0%} to spare"
    yield verdict


@rank_zero_only
def print_memory_plan(config: Config, policy: PretrainedConfig, trainer: Trainer) -> None:
    """Print the plan of a run on GPUs, or on several processes, before any weights are loaded."""
    device = trainer.strategy.root_device
    on_cpu = device.type != "cuda"
    if (on_cpu and trainer.world_size == 1) or config["model"]["init_args"].get(
        "trust_remote_code"
    ):
        return
    settings = read_settings(config, trainer.world_size)
    teacher = Architecture.of(load_config(settings.teacher, False)) if settings.teacher else None
    capacity = None if on_cpu else torch.cuda.get_device_properties(device).total_memory
    parts = memory_parts(settings, Architecture.of(policy), teacher, capacity or 80 * GB)
    print(f"Memory of each of {trainer.world_size} ranks in GB, estimated from the configuration")
    for line in memory_lines(parts, capacity):
        print(f"  {line}")
