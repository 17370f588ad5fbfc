r"""Prints what presets would cost, from their YAML and the model's config; no weights are loaded.

    python -m experiments.r1.plan configs/r1/full/*.yaml
    python -m experiments.r1.plan configs/r1/full/rl_1.yaml+configs/hardware/fsdp2.yaml \
        --model Qwen/Qwen2.5-7B --mfu 0.4

It states rows, tokens and updates, memory on each GPU by part, and an estimate of GPU-hours with
its formulas. Files joined by "+" are one preset, merged as by repeated -c. Lengths are assumptions:
``--mean-tokens`` is that of a response, or of a document; a quarter of the longest if left out.
Where a preset leaves the number of iterations to its data, which are not read here, the plan is of
one iteration, or of as many as ``--iterations`` says.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import AutoConfig, PretrainedConfig

from experiments.architectures import ARCHITECTURES, HUB, model_config
from experiments.compose import Config, merge, merged
from experiments.launch import command_line, reported
from r1lit.modules.compute_plan import (
    TIME,
    Gpu,
    rollout_seconds,
    rows_beside_weights,
    served_gpus,
    update_seconds,
)
from r1lit.modules.memory_plan import (
    FORMULAS,
    GB,
    USABLE_SHARE,
    Architecture,
    Parts,
    memory_lines,
    memory_parts,
    most_memory,
)
from r1lit.modules.workload import Work, work_of
from r1lit.policy.flops import Shape
from r1lit.policy.source import settings_of

BASE = "Qwen/Qwen2.5-1.5B"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one preset costs."""

    name: str
    model: str
    num_parameters: int
    work: Work
    shape: Shape
    memory: Parts
    rollout_hours: float
    update_hours: float

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the run."""
        return self.rollout_hours + self.update_hours

    @property
    def is_by_servers_alone(self) -> bool:
        """Whether only servers hold weights: what is sampled is not trained on, nor loaded here."""
        return self.work.kind == "sampling" and not self.work.loads_policy

    def bytes_of_a_gpu(self, gpu: Gpu) -> float:
        """Return what one GPU holds at most: of this process, or of the servers."""
        if self.is_by_servers_alone:
            return 2 * self.num_parameters / served_gpus(self.shape, gpu)
        return most_memory(self.memory)

    def fits(self, gpu: Gpu) -> bool:
        """Whether each GPU holds its part, and a server a response of the longest."""
        if self.bytes_of_a_gpu(gpu) > USABLE_SHARE * gpu.memory_gb * GB:
            return False
        longest = self.work.max_tokens
        return not self.is_by_servers_alone or (
            rows_beside_weights(self.work, self.shape, gpu, longest) > 0
        )


def read_preset(text: str) -> Config:
    """Read a preset: a file, or several joined by "+".

    Raises:
        ValueError: naming the file that cannot be read.
    """
    return merged(text.split("+"), "preset")


def config_of(name: str) -> PretrainedConfig:
    """Return a model's configuration: a name in ``HUB``, a directory, or a name on the hub.

    Raises:
        ValueError: if there is none.
    """
    if name in HUB or name in ARCHITECTURES:
        return model_config(HUB.get(name, name))
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"--model: {name!r} is no model whose config can be read") from error


@cache
def architecture_of(name: str) -> Architecture:
    """Return the architecture of a model by its name; see ``config_of``."""
    return Architecture.of(config_of(name))


def plan_of(
    name: str,
    config: Config,
    *,
    gpu: Gpu,
    model: str | None = None,
    prompt_tokens: int = 256,
    mean_tokens: int | None = None,
    iterations: int | None = None,
) -> Plan:
    """Return the plan of a preset; a policy that is yet to be made has the shape of ``BASE``."""
    if iterations is not None:
        config = merge(config, {"data": {"init_args": {"num_iterations": iterations}}})
    arguments = config.get("model", {}).get("init_args", {})
    policy = str(settings_of(arguments.get("policy")).get("path"))
    if model is None:
        to_be_made = policy.startswith(("runs/", "models/")) and not Path(policy).is_dir()
        model = BASE if to_be_made else policy
    try:
        work = work_of(config, prompt_tokens=prompt_tokens, mean_tokens=mean_tokens)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    whole = architecture_of(model)
    teacher = None
    if work.memory.teacher_weight:
        teacher = architecture_of(settings_of(arguments["teacher"]["init_args"]["model"])["path"])
    shape = Shape(
        num_parameters=whole.num_parameters,
        num_layers=whole.num_layers,
        attention_size=whole.attention_size,
        kv_size=whole.kv_size,
    )
    return Plan(
        name=name,
        model=model,
        num_parameters=whole.num_parameters,
        work=work,
        shape=shape,
        memory=memory_parts(work.memory, whole, teacher, gpu.memory_gb * GB),
        rollout_hours=rollout_seconds(work, shape, gpu) / 3600,
        update_hours=update_seconds(work, shape, gpu) / 3600,
    )


def as_text(plan: Plan, gpu: Gpu, gpus: int | None = None) -> str:
    """Return the plan as Markdown; ``gpus`` if not the preset's own number."""
    work, ranks = plan.work, plan.work.memory.ranks
    gpus = gpus or ranks
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
    ]
    if plan.is_by_servers_alone:
        number, weights = served_gpus(plan.shape, gpu), plan.bytes_of_a_gpu(gpu) / GB
        rows = rows_beside_weights(work, plan.shape, gpu, work.max_tokens)
        lines += [
            f"- memory: of a server of {number} GPUs, each {weights:.1f} GB of weights; beside them"
            f" {rows:,} responses of {work.max_tokens:,} tokens"
        ]
    else:
        lines += [
            f"- memory of each of {ranks} GPUs, in GB:",
            *(f"  - {line}" for line in memory_lines(plan.memory, gpu.memory_gb * GB)),
        ]
    if not plan.fits(gpu):
        lines += [
            "- **Does not fit**: take other hardware (docs/MEMORY.md), fewer rows at a time"
            " (max_rows), shorter responses, a server of its own in place of one beside the policy,"
            " or another trainer with the exported folder"
        ]
    days = plan.gpu_hours / gpus / 24
    lines += [
        f"- GPU-hours: {_hours(plan.rollout_hours)} rollout + {_hours(plan.update_hours)} update ="
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
        f" {gpu.gb_per_s:g} GB/s x MBU {gpu.mbu:g}."
        f" A plan fits that fills {USABLE_SHARE:.0%} of it.",
        "",
        *(f"- {formula}" for formula in (*FORMULAS, *TIME)),
    ]
    return "\n".join(lines)


@reported("plan")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.r1.plan", __doc__)
    parser.add_argument("presets", nargs="+", help="YAML files")
    parser.add_argument("--model", help="another than the preset's policy")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--mean-tokens", type=int, help="of a response or a document")
    parser.add_argument("--iterations", type=int, help="where the preset leaves them to the data")
    parser.add_argument("--gpus", type=int, help="that the days are of; those of training if unset")
    for key, value in vars(Gpu()).items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=float, default=value)
    options = parser.parse_args(args)
    gpu = Gpu(**{key: getattr(options, key) for key in vars(Gpu())})
    for preset in options.presets:
        plan = plan_of(
            "+".join(Path(name).stem for name in preset.split("+")),
            read_preset(preset),
            gpu=gpu,
            model=options.model,
            prompt_tokens=options.prompt_tokens,
            mean_tokens=options.mean_tokens,
            iterations=options.iterations,
        )
        print(as_text(plan, gpu, options.gpus), end="\n\n")
    print(notes(gpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
