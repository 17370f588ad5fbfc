"""GPU-hours of a run, with the formulas they come from; memory is `r1lit.modules.memory_plan`'s.

N parameters   L layers   a = heads x head size   k = key-value heads x head size   S prompt tokens
"""

from __future__ import annotations

from dataclasses import dataclass

from r1lit.modules.memory_plan import GB, USABLE_SHARE
from r1lit.modules.workload import Work
from r1lit.policy.flops import Shape, decode_seconds, training_flops

TIME = (
    "rollout: waves of R rows a GPU; a step takes max(bytes / (bandwidth x MBU), FLOPs / (peak x"
    " MFU)), bytes = 2 N + keys and values of the rows, FLOPs = 2 N + 4 L a x context a row; R is"
    " max_rows, or what servers hold beside their weights; in the policy's process a step takes"
    " step_ms more, and a wave has max_tokens of them: its longest row runs to the limit",
    "update: 6 N a token + 6 L a x length^2 a row, x 4/3 with gradient checkpointing, + 1/3 for the"
    " reference's forward; over (peak x MFU)",
    "GPU-hours = GPUs x seconds / 3600; judging, loading, waiting and communication are not in it."
    " MFU and MBU are assumptions: nothing of this was measured on GPUs",
)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as numbers; the defaults are an H100 SXM with dense bfloat16.

    ``step_ms`` is what a decoding step in the policy's own process takes beside the roofline, as
    Python launches each layer's kernels; 0 is the roofline alone.
    """

    memory_gb: float = 80.0
    tflops: float = 989.0
    gb_per_s: float = 3350.0
    mfu: float = 0.35
    mbu: float = 0.5
    step_ms: float = 0.0

    @property
    def flops_per_second(self) -> float:
        """Speed of arithmetic that a plan assumes, FLOP/s: the peak times its utilisation."""
        return self.tflops * 1e12 * self.mfu

    @property
    def bytes_per_second(self) -> float:
        """Speed of reading memory that a plan assumes, bytes/s: the peak times its utilisation."""
        return self.gb_per_s * 1e9 * self.mbu


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
    memory = work.memory
    factor = (4 / 3 if memory.gradient_checkpointing else 1.0) + memory.has_reference / 3
    return flops * factor / gpu.flops_per_second


def rollout_seconds(work: Work, shape: Shape, gpu: Gpu) -> float:
    """Return the GPU-seconds of all rollouts of a run; 0 where nothing is drawn."""
    if not work.draws:
        return 0.0
    at_a_time = served_rows(work, shape, gpu) if work.is_served else work.rows_decoded
    # an evaluation's problems are all under way together
    at_most = at_a_time if work.kind == "sampling" else work.rows_per_iteration
    rows = min(at_a_time, at_most)
    groups = max(1, rows // work.group_size)
    wave = decode_seconds(
        shape,
        [work.prompt_tokens] * groups,
        [work.mean_tokens] * (groups * min(work.group_size, rows)),
        bytes_per_number=work.memory.product,
        bytes_per_second=gpu.bytes_per_second,
        flops_per_second=gpu.flops_per_second,
    )
    waves = work.rows / (groups * min(work.group_size, rows))
    if work.is_served or not gpu.step_ms:
        return wave * waves
    # rows are not refilled: a wave's steps are those of its longest row, which runs to the limit
    return waves * (wave + work.max_tokens * gpu.step_ms / 1000)


def served_rows(work: Work, shape: Shape, gpu: Gpu) -> int:
    """Return the rows of mean length that a server holds at a time, in bfloat16.

    It has as many GPUs as hold its weights twice over; the time of all together is that of one.
    """
    return max(1, rows_beside_weights(work, shape, gpu, work.mean_tokens))


def served_gpus(shape: Shape, gpu: Gpu) -> int:
    """Return how many GPUs a server has: as many as hold its weights twice over."""
    return int(-(-4 * shape.num_parameters // (USABLE_SHARE * gpu.memory_gb * GB)))


def rows_beside_weights(work: Work, shape: Shape, gpu: Gpu, tokens: int) -> int:
    """Return the responses of ``tokens`` that a server holds at a time; 0 where none fits."""
    room = served_gpus(shape, gpu) * USABLE_SHARE * gpu.memory_gb * GB - 2 * shape.num_parameters
    a_row = (work.prompt_tokens + tokens) * 4 * shape.num_layers * shape.kv_size
    return int(room // a_row)
