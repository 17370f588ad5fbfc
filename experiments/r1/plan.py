"""Prints what presets would cost, from their YAML and the model's config; no weights are loaded.

    python -m experiments.r1.plan configs/r1/full/*.yaml
    python -m experiments.r1.plan configs/r1/full/rl_1.yaml --model models/mini --gpus 16 --mfu 0.4

It states rows, tokens and updates, memory on each GPU by part, and an estimate of GPU-hours with
its formulas. Files joined by "+" are one preset, merged as by repeated -c. Lengths are assumptions:
``--mean-tokens`` is that of a response, or of a document; a quarter of the longest if left out.
Where a preset leaves the number of iterations to its data, which are not read here, the plan is of
one iteration, or of as many as ``--iterations`` says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from transformers import AutoConfig, PretrainedConfig

from benchmarks.flops import Shape
from benchmarks.models import ARCHITECTURES, model_config
from experiments.compose import Config, merge
from experiments.r1.cost import (
    FORMULAS,
    GIB,
    TIME,
    Gpu,
    memory_parts,
    rollout_seconds,
    update_seconds,
)
from experiments.r1.work import Work, work_of

KNOWN = {"Qwen/Qwen2.5-0.5B": "0.5B", "Qwen/Qwen2.5-1.5B": "1.5B"}
BASE = "Qwen/Qwen2.5-1.5B"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one preset costs."""

    name: str
    model: str
    num_parameters: int
    work: Work
    memory: dict[str, int]
    rollout_hours: float
    update_hours: float

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the run."""
        return self.rollout_hours + self.update_hours


def read_preset(text: str) -> Config:
    """Read a preset: a file, or several joined by "+".

    Raises:
        ValueError: naming the file that is not there.
    """
    config: Config = {}
    for name in text.split("+"):
        if not Path(name).is_file():
            raise ValueError(f"preset: there is no file {name!r} (from {Path.cwd()})")
        config = merge(config, yaml.safe_load(Path(name).read_text()))
    return config


def config_of(name: str) -> PretrainedConfig:
    """Return a model's configuration: a name in ``KNOWN``, a directory, or a name on the hub.

    Raises:
        ValueError: if there is none.
    """
    if name in KNOWN or name in ARCHITECTURES:
        return model_config(KNOWN.get(name, name))
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"--model: {name!r} is no model whose config can be read") from error


def plan_of(
    preset: str,
    *,
    gpu: Gpu,
    model: str | None = None,
    prompt_tokens: int = 256,
    mean_tokens: int | None = None,
    iterations: int | None = None,
) -> Plan:
    """Return the plan of a preset; a policy that is yet to be made has the shape of ``BASE``."""
    config = read_preset(preset)
    if iterations is not None:
        config = merge(config, {"data": {"init_args": {"num_iterations": iterations}}})
    policy = str(config.get("model", {}).get("init_args", {}).get("policy"))
    if model is None:
        to_be_made = policy.startswith("runs/") and not Path(policy).is_dir()
        model = BASE if to_be_made else policy
    try:
        work = work_of(config, prompt_tokens=prompt_tokens, mean_tokens=mean_tokens)
    except ValueError as error:
        raise ValueError(f"{preset}: {error}") from error
    found = config_of(model)
    shape = Shape.of(found)
    return Plan(
        name="+".join(Path(name).stem for name in preset.split("+")),
        model=model,
        num_parameters=shape.num_parameters,
        work=work,
        memory=memory_parts(work, shape, found),
        rollout_hours=rollout_seconds(work, shape, gpu) / 3600,
        update_hours=update_seconds(work, shape, gpu) / 3600,
    )


def as_text(plan: Plan, gpu: Gpu, gpus: int) -> str:
    """Return the plan as Markdown."""
    work, total = plan.work, sum(plan.memory.values())
    of_one = "" if work.is_whole else " Its data say how many iterations; this is one of them."
    lines = [
        f"## {plan.name}",
        "",
        f"{plan.model}: {plan.num_parameters / 1e9:.3f} billion parameters; {work.kind}.{of_one}",
        "",
        f"- rows: {_rows(work)}",
        f"- tokens: {_amount(work.tokens)}, {_amount(work.sampled_tokens)} of them sampled; mean"
        f" length {work.mean_tokens:,} (assumed), longest {work.max_tokens:,}",
        f"- updates: {work.updates_per_iteration:,} an iteration: {work.updates:,}",
        "",
        "| memory on each GPU | GiB |",
        "|---|---:|",
        *(f"| {part} | {size / GIB:.2f} |" for part, size in plan.memory.items() if size),
        f"| all | {total / GIB:.2f} |",
        "",
    ]
    if work.kind == "sampling":
        lines += [
            "The cache is of the longest rows, all at once; a server holds as many as fit.",
            "",
        ]
    elif total > gpu.memory_gb * 1e9:
        lines += [
            f"**Does not fit** in {gpu.memory_gb:g} GB: r1lit keeps a whole copy on each GPU; take"
            " a smaller model, fewer rows at a time (max_rows) or shorter responses.",
            "",
        ]
    days = plan.gpu_hours / gpus / 24
    lines += [
        f"GPU-hours: {_hours(plan.rollout_hours)} rollout + {_hours(plan.update_hours)} update ="
        f" {_hours(plan.gpu_hours)}; on {gpus} GPUs {days:.2g} days",
    ]
    return "\n".join(lines)


def _rows(work: Work) -> str:
    if work.kind == "sampling":
        rows = f"{work.rows_per_iteration:,} responses to a problem (an iteration here)"
    else:
        of = "packed rows" if work.kind == "supervised" else "responses"
        rows = f"{work.rows_per_iteration:,} {of} an iteration"
    if not work.is_whole:
        return rows
    return f"{rows}, {work.iterations:,} iterations: {work.rows:,}"


def _amount(tokens: int) -> str:
    if tokens < 1e9:
        return f"{tokens / 1e6:.3g} million" if tokens else "0"
    return f"{tokens / 1e9:.3f} billion"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 10 or not hours else f"{hours:.2g}"


def notes(gpu: Gpu) -> str:
    """Return the formulas and what the GPU was taken to be."""
    lines = [
        "## Formulas",
        "",
        f"GPU: {gpu.memory_gb:g} GB, {gpu.tflops:g} TFLOP/s x MFU {gpu.mfu:g},"
        f" {gpu.gb_per_s:g} GB/s x MBU {gpu.mbu:g}. N parameters, L layers, d hidden, f"
        " intermediate, a heads x head size, k key-value heads x head size, T micro_batch_tokens,"
        " S prompt, R max_rows.",
        "",
        *(f"- {part}: {formula}" for part, formula in FORMULAS.items()),
        *(f"- {formula}" for formula in TIME),
    ]
    return "\n".join(lines)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.r1.plan", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("presets", nargs="+", help="YAML files")
    parser.add_argument("--model", help="another than the preset's policy")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--mean-tokens", type=int, help="of a response or a document")
    parser.add_argument("--iterations", type=int, help="where the preset leaves them to the data")
    parser.add_argument("--gpus", type=int, default=8)
    for key, value in vars(Gpu()).items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=float, default=value)
    options = parser.parse_args(args)
    gpu = Gpu(**{key: getattr(options, key) for key in vars(Gpu())})
    try:
        for preset in options.presets:
            plan = plan_of(
                preset,
                gpu=gpu,
                model=options.model,
                prompt_tokens=options.prompt_tokens,
                mean_tokens=options.mean_tokens,
                iterations=options.iterations,
            )
            print(as_text(plan, gpu, options.gpus), end="\n\n")
    except ValueError as error:
        print(f"plan: error: {error}", file=sys.stderr)
        return 2
    print(notes(gpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
