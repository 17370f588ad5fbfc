"""The forecast of a fit: memory, tokens and time, from its configuration alone.

Memory and tokens come from the configuration, the time on GPUs from the arithmetic and from
published rates.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from r1lit.console import as_help

if TYPE_CHECKING:
    import torch

    from r1lit.modules.compute_plan import Gpu
    from r1lit.modules.memory_plan import Architecture
    from r1lit.modules.workload import Work

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A published rate of training on one H100: the share of its peak arithmetic (MFU)."""

    kind: str
    num_parameters: float
    mfu: float
    source: str


ANCHORS = (
    Anchor(kind="reinforcement", num_parameters=0.6e9, mfu=0.11,
           source="prime-rl, update of 0.6B with rows of 16k tokens, 11.9k tokens/s"),
    Anchor(kind="reinforcement", num_parameters=1.5e9, mfu=0.126,
           source="verl, GRPO update of 1.5B, 10.9k tokens/s"),
    Anchor(kind="supervised", num_parameters=0.6e9, mfu=0.17,
           source="prime-rl, SFT of 0.6B with rows of 16k tokens, 26.0k tokens/s"),
    Anchor(kind="supervised", num_parameters=8e9, mfu=0.33,
           source="torchtitan, SFT of 8B, 33 to 39 % MFU"),
)  # fmt: skip
"""None is r1lit's: no speed of r1lit was measured on a GPU yet (docs/PERFORMANCE.md)."""
IN_PROCESS_STEP_MS = 30.0
"""Of a decoding step in the policy's process, for launching kernels: an assumption."""


def parser_of_plan(words: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the forecast's own keys, and what its help says first."""
    from r1lit.modules.compute_plan import Gpu

    parser = argparse.ArgumentParser(
        prog="r1lit plan", description=as_help(words), allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--measure", type=int, metavar="N", help="train N iterations here, and say")
    parser.add_argument("--mean_tokens", type=int, help="of a response; a quarter of the longest")
    parser.add_argument("--prompt_tokens", type=int, default=256, help="of a prompt; 256")
    parser.add_argument("--iterations", type=int, help="where the data say how many there are")
    parser.add_argument("--gpus", type=int, help="that train, where the configuration takes all")
    parser.add_argument("--price", type=float, help="of a GPU-hour, for the cost")
    for each in fields(Gpu):
        if each.name not in ("mfu", "step_ms"):
            text = f"of a GPU; an H100's {each.default}"
            parser.add_argument(f"--{each.name}", type=float, default=each.default, help=text)
    parser.add_argument("--mfu", type=float, help="share of the peak; by default a published one")
    return parser


LONG_S = 86_400.0


def lines_of_a_long_run(config: Config, device: torch.device) -> list[str]:
    """Return the forecast of a fit that takes more than a day on GPUs, as ``r1lit plan`` has it.

    Nothing of a shorter run, of a CPU, whose time only iterations say, or of what cannot be read.
    """
    from torch import cuda

    from r1lit.modules.memory_plan import GB, Architecture
    from r1lit.modules.speed import peak_flops
    from r1lit.modules.workload import work_of
    from r1lit.policy import load_config
    from r1lit.policy.source import ModelSource, settings_of

    if device.type != "cuda":
        return []
    given = parser_of_plan().parse_args([])
    given.memory_gb = cuda.get_device_properties(device).total_memory / GB
    given.tflops = (peak_flops(cuda.get_device_name(device)) or given.tflops * 1e12) / 1e12
    try:
        config = with_counts(config, None, None)
        work = work_of(config, prompt_tokens=given.prompt_tokens, mean_tokens=None)
        policy = ModelSource(**settings_of(config["model"]["init_args"]["policy"]))
        rollout, update, *_ = gpu_seconds(work, Architecture.of(load_config(policy)), given)
        if (rollout + update) / work.memory.ranks < LONG_S:
            return []
        return ["More than a day, by forecast:", *forecast(config, given)[0]]
    except (ValueError, KeyError, TypeError):
        return []


def forecast(config: Config, given: Any) -> tuple[list[str], bool]:
    """Return the forecast from the configuration alone, and whether each GPU holds its part.

    Raises:
        ValueError: if the policy's configuration cannot be read, or a key of the run's is missing.
    """
    import torch

    from r1lit.modules.memory_plan import (
        GB,
        USABLE_SHARE,
        Architecture,
        memory_lines,
        memory_parts,
        of_usual_length,
    )
    from r1lit.modules.memory_plan import most_memory as most
    from r1lit.modules.workload import work_of
    from r1lit.policy import load_config
    from r1lit.policy.source import ModelSource, settings_of

    config = with_counts(config, given.iterations, given.gpus)
    arguments = (config["model"] or {}).get("init_args") or {}
    source = ModelSource(**settings_of(arguments.get("policy")) or {"path": ""})
    model = Architecture.of(load_config(source))
    work = work_of(config, prompt_tokens=given.prompt_tokens, mean_tokens=given.mean_tokens)
    teacher = work.memory.teacher and Architecture.of(load_config(work.memory.teacher))
    on_cpu = (config.get("trainer") or {}).get("accelerator") == "cpu"
    device, capacity = torch.device("cpu" if on_cpu else "cuda"), given.memory_gb * GB
    usual = of_usual_length(work.memory, work.prompt_tokens)
    parts, likely = (
        memory_parts(each, model, teacher or None, capacity, device)
        for each in (work.memory, usual)
    )
    ranks = work.memory.ranks
    whose = "this process" if on_cpu else "the GPU" if ranks == 1 else f"each of {ranks} GPUs"
    lines = [
        f"policy   {source.path}: {model.num_parameters / 1e9:.3g} billion parameters",
        *work_lines(work, assumed=given.mean_tokens is None),
        f"memory   of {whose}, in GB:",
        *(f"         {line}" for line in memory_lines(parts, None if on_cpu else capacity, likely)),
    ]
    if on_cpu:
        if not given.measure:
            lines.append("time     of a CPU comes from iterations measured on it: --measure 3")
        return lines, True
    lines += time_lines(work, model, given)
    return lines, most(parts) <= USABLE_SHARE * capacity


def with_counts(config: Config, iterations: int | None, gpus: int | None) -> dict[str, Any]:
    """Return a configuration with its number of iterations and of GPUs, where they are given.

    ``devices: auto`` is one GPU, unless the strategy is for several, which takes eight.
    """
    data, trainer = dict(config["data"]), dict(config.get("trainer") or {})
    if iterations is not None:
        data["init_args"] = {**(data.get("init_args") or {}), "num_iterations": iterations}
    if gpus is not None:
        trainer["devices"] = gpus
    elif trainer.get("accelerator") == "cpu" or trainer.get("strategy") in (None, "auto"):
        given = trainer.get("devices")
        trainer["devices"] = given if isinstance(given, int) else 1
    return {**config, "data": data, "trainer": trainer}


def work_lines(work: Work, assumed: bool) -> Iterator[str]:
    """Yield the work of a run, as lines."""
    rows = {"supervised": "packed rows", "reinforcement": "responses"}.get(work.kind, "rows")
    updates = f"{work.updates_per_iteration:,} update{'s' * (work.updates_per_iteration != 1)}"
    yield f"work     {work.kind}: {work.rows_per_iteration:,} {rows} and {updates} an iteration"
    if work.is_whole:
        of_all = f"{work.rows:,} {rows}, {work.updates:,} updates"
        yield f"         {work.iterations:,} iterations: {of_all}"
    else:
        yield "         its data say how many iterations; this is one of them (--iterations)"
    why = " (assumed: a quarter of the longest; --mean_tokens)" if assumed else ""
    sampled = f", {amount(work.sampled_tokens)} of them sampled" if work.sampled_tokens else ""
    yield f"tokens   {amount(work.tokens)}{sampled}"
    yield f"         mean length {work.mean_tokens:,}{why}, longest {work.max_tokens:,}"


def gpu_seconds(work: Work, model: Architecture, given: Any) -> tuple[float, float, Gpu, Anchor]:
    """Return the GPU-seconds of rollouts and of updates, and what they are reckoned with."""
    from r1lit.modules.compute_plan import Gpu, rollout_seconds, update_seconds
    from r1lit.policy.flops import Shape

    anchor = nearest(work.kind, model.num_parameters)
    gpu = Gpu(
        memory_gb=given.memory_gb,
        tflops=given.tflops,
        gb_per_s=given.gb_per_s,
        mbu=given.mbu,
        mfu=given.mfu or anchor.mfu,
        step_ms=IN_PROCESS_STEP_MS,
    )
    shape = Shape(
        num_parameters=model.num_parameters,
        num_layers=model.num_layers,
        attention_size=model.attention_size,
        kv_size=model.kv_size,
    )
    return rollout_seconds(work, shape, gpu), update_seconds(work, shape, gpu), gpu, anchor


def time_lines(work: Work, model: Architecture, given: Any) -> Iterator[str]:
    """Yield GPU-hours by part, and where they come from."""
    rollout, update, gpu, anchor = gpu_seconds(work, model, given)
    hours, ranks = (rollout + update) / 3600, work.memory.ranks
    of = "" if work.is_whole else " an iteration"
    parts = {"rollout": rollout, "updates": update}
    listed = " + ".join(f"{duration(each)} {name}" for name, each in parts.items() if each)
    whole = f"{listed} = {duration(rollout + update)} of a GPU" if rollout and update else listed
    yield f"time     {whole}{of}; on {ranks}, {duration(3600 * hours / ranks)}"
    yield "         without loading, grading, evaluation, and waiting for each other"
    why = "given" if given.mfu else f"as {anchor.source}, on one H100"
    yield f"         updates at {gpu.mfu:.1%} of {gpu.tflops:g} TFLOP/s ({why})"
    if rollout:
        step = "" if work.is_served else f", {gpu.step_ms:g} ms more a step in the policy's process"
        yield (f"         decoding at {gpu.mbu:.0%} of {gpu.gb_per_s:g} GB/s{step}: assumptions")
    if given.price:
        yield f"cost     {hours * given.price:,.2f} at {given.price:g} a GPU-hour{of}"


def nearest(kind: str, num_parameters: int) -> Anchor:
    """Return the published rate of the work most like this one, of the nearest size."""
    alike = [a for a in ANCHORS if a.kind == kind] or [a for a in ANCHORS if a.kind == "supervised"]
    return min(alike, key=lambda a: abs(math.log(a.num_parameters / num_parameters)))


def amount(tokens: int) -> str:
    """Return a number of tokens in words."""
    return f"{tokens / 1e9:.3g} billion" if tokens >= 1e9 else f"{tokens / 1e6:.3g} million"


def duration(seconds: float) -> str:
    """Return seconds as seconds, minutes, hours or days.

    >>> duration(0.1), duration(12), duration(600), duration(36_000), duration(864_000)
    ('under 1 s', '12 s', '10 min', '10 h', '10 days')
    """
    if seconds < 1:
        return "under 1 s"
    for size, name, limit in ((1, "s", 100), (60, "min", 100), (3600, "h", 48)):
        if seconds < size * limit:
            return f"{seconds / size:.2g} {name}"
    return f"{seconds / 86400:.2g} days"
