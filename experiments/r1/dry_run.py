"""Plan of a run on GPUs: each step's command, requirements and cost, and the sum of all.

A pipeline's ``assumes`` holds what its presets leave to the data, and what the machine is:

    gpus           of the machine; those of each preset if left out
    room_gb        of each GPU that something else takes, such as a served judge
    step_ms        `r1lit.modules.compute_plan.Gpu`
    tokens_per_s   output tokens of the judge, a GPU of its own or a share
    minutes_a_step     start, loading and writing of a step
    documents      by domain: from which data files, responses to each prompt, the share that is
                   kept (right), the most of a prompt, and how many are wanted
    steps          by name: mean_tokens, problems, updates, validated (responses of its
                   validations), served_tokens (that the judge writes for it), hours (of CPUs
                   alone), model (of the policy that is yet to be made; Qwen2.5-1.5B if left out)
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.compose import check_keys, merge
from experiments.pipeline import Pipeline, Step
from experiments.r1.data import composition, read_files
from experiments.r1.paper_cost import RESPONSES_A_STEP, paper_table
from experiments.r1.plan import BASE, Plan, as_text, notes, plan_of
from experiments.runner import verdicts_of, words_of
from r1lit.errors import hint
from r1lit.modules.compute_plan import Gpu
from r1lit.modules.memory_plan import GB
from r1lit.policy.source import settings_of

OF_ALL = (
    "gpus", "room_gb", "step_ms", "tokens_per_s", "minutes_a_step", "documents", "steps",
)  # fmt: skip
OF_A_STEP = ("mean_tokens", "problems", "updates", "validated", "served_tokens", "hours", "model")
OF_A_DOMAIN = {"files": list, "samples": int, "right": float, "most": int, "wanted": int}


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a step costs: GPU-hours, tokens sampled here and by the judge, memory of one GPU."""

    name: str
    stage: str
    gpu_hours: float = 0.0
    hours: float = 0.0
    sampled: float = 0.0
    served: float = 0.0
    memory_gb: float = 0.0
    is_whole: bool = True


def dry_run(pipeline: Pipeline, begin: str | None, only: Sequence[str]) -> Iterator[str]:
    """Yield the lines; nothing is written or loaded.

    Raises:
        ValueError: for an unknown step or assumption, or a preset that cannot be planned.
    """
    assumes = checked(pipeline)
    gpu = Gpu(step_ms=assumes.get("step_ms", 0.0))
    gpu = replace(gpu, memory_gb=gpu.memory_gb - assumes.get("room_gb", 0))
    made = [path for step in pipeline.steps for path in step.writes]
    prices = []
    for step, verdict in verdicts_of(pipeline, begin, only):
        yield f"# {step.stage}: {step.name} ({verdict})"
        yield shlex.join(words_of(step, pipeline.run, resume=False))
        missing = [p for p in step.reads if p not in made and not p.exists()]
        if missing:
            yield f"needs, and is not there: {', '.join(map(str, missing))}"
        price, lines = _cost(step, pipeline.run, gpu, assumes)
        prices.append(price)
        yield from lines
        yield ""
    if "documents" in assumes:
        yield from documents_table(assumes, f"{pipeline.path}: assumes")
        yield ""
        yield from composition()
        yield ""
    yield from as_table(prices, assumes)
    yield ""
    if "documents" in assumes and {"zero", "dev2"} <= {price.name for price in prices}:
        yield from beside_the_paper(prices, gpu, assumes)
        yield ""
    yield notes(gpu)


def beside_the_paper(prices: Sequence[Price], gpu: Gpu, assumes: dict[str, Any]) -> Iterator[str]:
    """Yield the paper's hours beside the formulas', with this pipeline's lengths and RL-1."""
    mean_tokens = assumes["steps"]["zero"]["mean_tokens"]
    by_name = {price.name: price for price in prices}
    rejected = sum(p.sampled + p.served for p in prices if p.name.startswith("rejection_"))
    rl_1 = by_name["dev2"].sampled / mean_tokens / RESPONSES_A_STEP
    yield from paper_table(gpu, assumes["tokens_per_s"], mean_tokens, rejected, round(rl_1))


def checked(pipeline: Pipeline) -> dict[str, Any]:
    """Return a pipeline's assumptions.

    Raises:
        ValueError: for a key, or a step, that is unknown.
    """
    where, assumes = f"{pipeline.path}: assumes", pipeline.assumes
    check_keys(where, assumes, {}, OF_ALL)
    names = [step.name for step in pipeline.steps]
    for name, given in (assumes.get("steps") or {}).items():
        if name not in names:
            raise ValueError(f"{where}: steps: {name!r} is no step{hint(name, names)}")
        check_keys(f"{where}: steps: {name}", given, {}, OF_A_STEP)
    return assumes


def documents_table(assumes: dict[str, Any], where: str) -> Iterator[str]:
    """Yield where the documents of the second SFT come from, counted from data.yaml, as Markdown.

    A prompt gives min(most, samples x right) documents on average.

    Raises:
        ValueError: for a key that is unknown or missing, or a file that data.yaml lacks.
    """
    files = {file.name: file for file in read_files("full")}
    domains = assumes["documents"]
    yield "## Where the documents come from"
    yield ""
    yield "| domain | prompts | sources | responses a prompt | kept | documents | the paper | |"
    yield "|---|---:|---|---:|---:|---:|---:|---|"
    total = wanted = 0
    for name, given in domains.items():
        check_keys(f"{where}: documents: {name}", given, OF_A_DOMAIN, ("tokens",))
        for file in given["files"]:
            if file not in files:
                raise ValueError(f"{where}: documents: {name}: {file!r} is no file of data.yaml")
        sources = [source for file in given["files"] for source in files[file].sources]
        prompts = sum(source.take for source in sources)
        documents = int(prompts * min(given["most"], given["samples"] * given["right"]))
        from_where = ", ".join(f"{source.path} {source.take:,}" for source in sources)
        enough = "enough" if documents >= given["wanted"] else "**too few**"
        yield (
            f"| {name} | {prompts:,} | {from_where} | {given['samples']} | {given['right']:.0%},"
            f" at most {given['most']} | {documents:,} | {given['wanted']:,} | {enough} |"
        )
        total += documents
        wanted += given["wanted"]
    yield f"| all | | | | | {total:,} | {wanted:,} | |"
    yield ""
    yield "The mixture takes the paper's number of each domain. The kept shares are assumed."


def _cost(step: Step, run: Path, gpu: Gpu, assumes: dict[str, Any]) -> tuple[Price, list[str]]:
    """Return the price of a step and the lines that say where it comes from."""
    own = (assumes.get("steps") or {}).get(step.name, {})
    served = float(own.get("served_tokens", 0))
    served_hours = served / assumes["tokens_per_s"] / 3600 if served else 0.0
    started = assumes.get("minutes_a_step", 0) / 60
    price = Price(
        name=step.name,
        stage=step.stage,
        gpu_hours=served_hours + started * assumes.get("gpus", 0),
        hours=served_hours / assumes.get("gpus", 1) + started + own.get("hours", 0.0),
        served=served,
    )
    lines: list[str] = []
    if served:
        rate = assumes["tokens_per_s"]
        lines = [f"- judge: {served / 1e6:.3g} million tokens at {rate:,} a second (assumed)"]
    if step.command is None:
        return price, lines
    config = merge({}, *step.configs)
    arguments = config["model"]["init_args"]
    policy = Path(settings_of(arguments["policy"])["path"])
    engine = arguments.get("engine") or {}
    own_policy = policy.is_relative_to(run)
    if str(engine.get("class_path")).endswith("ServerEngine") and not own_policy:
        return price, [f"drawn by {policy} at {engine['init_args']['endpoint']['url']}", *lines]
    plan = plan_of(
        step.name,
        config,
        gpu=gpu,
        model=_model_of(policy, run, own),
        mean_tokens=own.get("mean_tokens"),
        iterations=own.get("problems") or _iterations(config, own),
    )
    return _added(price, plan, own, assumes, gpu), [*as_text(plan, gpu).splitlines()[2:], *lines]


def _iterations(config: dict[str, Any], own: dict[str, Any]) -> int | None:
    """Return the updates of a pass, where they are those of all epochs."""
    if "updates" not in own:
        return None
    return max(1, round(own["updates"] / (config["trainer"].get("max_epochs") or 1)))


def _model_of(policy: Path, run: Path, own: dict[str, Any]) -> str | None:
    if policy.is_relative_to(run) and not policy.is_dir():
        return own.get("model", BASE)
    return None


def _added(
    price: Price, plan: Plan, own: dict[str, Any], assumes: dict[str, Any], gpu: Gpu
) -> Price:
    """Return the price with a plan's, its validations included."""
    rows = plan.work.rows
    validations = plan.rollout_hours * own.get("validated", 0) / rows
    gpu_hours = plan.gpu_hours + validations
    ranks = assumes.get("gpus") or plan.work.memory.ranks
    extra = own.get("validated", 0) * plan.work.mean_tokens
    return replace(
        price,
        gpu_hours=price.gpu_hours + gpu_hours,
        hours=price.hours + gpu_hours / ranks,
        sampled=price.sampled + plan.work.sampled_tokens + extra,
        memory_gb=plan.bytes_of_a_gpu(gpu) / GB,
        is_whole=plan.work.is_whole,
    )


def as_table(prices: Sequence[Price], assumes: dict[str, Any]) -> Iterator[str]:
    """Yield the price of each step and the sum, as Markdown."""
    yield "## What it costs"
    yield ""
    yield "| stage | step | GPU-hours | hours | million tokens sampled | by the judge | GB a GPU |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for p in prices:
        memory = f"{p.memory_gb:.0f}" if p.memory_gb else "–"
        mark = "" if p.is_whole else " (of one iteration)"
        yield (
            f"| {p.stage} | {p.name}{mark} | {p.gpu_hours:,.1f} | {p.hours:,.1f} |"
            f" {p.sampled / 1e6:,.1f} | {p.served / 1e6:,.1f} | {memory} |"
        )
    gpu_hours, hours = sum(p.gpu_hours for p in prices), sum(p.hours for p in prices)
    sampled, served = sum(p.sampled for p in prices), sum(p.served for p in prices)
    most = max((p.memory_gb for p in prices), default=0.0)
    yield (
        f"| all | {len(prices)} steps | {gpu_hours:,.1f} | {hours:,.1f} | {sampled / 1e6:,.1f} |"
        f" {served / 1e6:,.1f} | {most:.0f} |"
    )
    yield ""
    known = {key: value for key, value in assumes.items() if key not in ("steps", "documents")}
    yield f"Assumed: {', '.join(f'{key} {value}' for key, value in known.items()) or 'nothing'};"
    yield "and by step:"
    for name, own in (assumes.get("steps") or {}).items():
        given = (f"{k} {v}" if isinstance(v, str) else f"{k} {v:,.10g}" for k, v in own.items())
        yield f"- {name}: {', '.join(given)}"
