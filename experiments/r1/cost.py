"""Memory by part and GPU-hours of a preset, with the formulas they come from.

N parameters   L layers   d hidden size   f intermediate size   a = heads x head size
k = key-value heads x head size   T tokens of a micro-batch   S prompt   R rows decoded at a time
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PretrainedConfig

from benchmarks.flops import Shape, decode_seconds, training_flops
from experiments.r1.work import Work

GIB = 2**30
FORMULAS = {
    "weights": "N x bytes of a weight",
    "gradients": "N x bytes of a weight",
    "optimiser": "2 N x bytes of a weight: AdamW's two moments",
    "low-precision copies": "2 N: bfloat16 weights under bf16-mixed",
    "reference": "N x bytes of a weight, where beta > 0",
    "key-value cache": "R (S + max_tokens) 2 L k x bytes of a product, at most, on each GPU",
    "activations": "T (d L x 4 + layer), or T L layer without gradient checkpointing; layer ="
    " (6 d + 2 a + 2 k + 3 f) x bytes of a product",
}
TIME = (
    "rollout: waves of R rows a GPU; a step takes max(bytes / (bandwidth x MBU), FLOPs / (peak x"
    " MFU)), bytes = 2 N + keys and values of the rows, FLOPs = 2 N + 4 L a x context a row",
    "update: 6 N a token + 6 L a x length^2 a row, x 4/3 with gradient checkpointing, + 1/3 for the"
    " reference's forward; over (peak x MFU)",
    "GPU-hours = GPUs x seconds / 3600; judging, loading and communication are not in it",
)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as numbers; the defaults are an H100 SXM with dense bfloat16."""

    memory_gb: float = 80.0
    tflops: float = 989.0
    gb_per_s: float = 3350.0
    mfu: float = 0.35
    mbu: float = 0.5

    @property
    def flops_per_second(self) -> float:
        """What arithmetic is reckoned with."""
        return self.tflops * 1e12 * self.mfu

    @property
    def bytes_per_second(self) -> float:
        """What reading memory is reckoned with."""
        return self.gb_per_s * 1e9 * self.mbu


def memory_parts(work: Work, shape: Shape, config: PretrainedConfig) -> dict[str, int]:
    """Return the bytes on one GPU by part; every GPU has a whole copy (DDP)."""
    n, low = shape.num_parameters, work.bytes_per_product
    hidden = config.hidden_size
    layer = low * (
        6 * hidden + 2 * shape.attention_size + 2 * shape.kv_size + 3 * config.intermediate_size
    )
    if work.gradient_checkpointing:
        per_token = 4 * hidden * shape.num_layers + layer
    else:
        per_token = layer * shape.num_layers
    cached = work.rows_decoded * (work.prompt_tokens + work.max_tokens)
    key_values = cached * 2 * shape.num_layers * shape.kv_size * low
    if work.kind == "sampling":
        return {"weights": n * work.bytes_per_weight, "key-value cache": key_values}
    return {
        "weights": n * work.bytes_per_weight,
        "gradients": n * work.bytes_per_weight,
        "optimiser": 2 * n * work.bytes_per_weight,
        "low-precision copies": 2 * n if low < work.bytes_per_weight else 0,
        "reference": n * work.bytes_per_weight if work.has_reference else 0,
        "key-value cache": key_values,
        "activations": max(work.micro_batch_tokens, work.row_tokens) * per_token,
    }


def update_seconds(work: Work, shape: Shape, gpu: Gpu) -> float:
    """Return the GPU-seconds of all updates of a run; 0 where nothing is trained."""
    if work.kind == "sampling":
        return 0.0
    if work.kind == "supervised":
        documents = max(1, work.row_tokens // work.mean_tokens)
        lengths = [work.row_tokens // documents] * documents
        flops = training_flops(shape, lengths) * work.rows
    else:
        group = work.group_size
        whole = training_flops(shape, [work.prompt_tokens + work.mean_tokens])
        prompt = training_flops(shape, [work.prompt_tokens])
        flops = (whole - prompt * (group - 1) / group) * work.rows * work.num_inner_epochs
    factor = (4 / 3 if work.gradient_checkpointing else 1.0) + work.has_reference / 3
    return flops * factor / gpu.flops_per_second


def rollout_seconds(work: Work, shape: Shape, gpu: Gpu) -> float:
    """Return the GPU-seconds of all rollouts of a run; 0 where nothing is drawn."""
    if not work.draws:
        return 0.0
    # an evaluation's problems are all under way together
    at_most = work.rows_decoded if work.kind == "sampling" else work.rows_per_iteration
    rows = min(work.rows_decoded, at_most)
    groups = max(1, rows // work.group_size)
    wave = decode_seconds(
        shape,
        [work.prompt_tokens] * groups,
        [work.mean_tokens] * (groups * min(work.group_size, rows)),
        bytes_per_number=work.bytes_per_product,
        bytes_per_second=gpu.bytes_per_second,
        flops_per_second=gpu.flops_per_second,
    )
    return wave * work.rows / (groups * min(work.group_size, rows))
