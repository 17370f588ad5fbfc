"""Plan of a full-scale run: each step's command, requirements and cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.compose import merge
from experiments.pipeline import Pipeline, Step
from experiments.r1.cost import Gpu
from experiments.r1.plan import BASE, as_text, notes, plan_of
from experiments.runner import verdicts_of, words_of
from r1lit.policy.source import settings_of


def dry_run(pipeline: Pipeline, begin: str | None, only: Sequence[str]) -> Iterator[str]:
    """Yield the lines; nothing is written or loaded.

    Raises:
        ValueError: for an unknown step, or a preset that cannot be planned.
    """
    gpu = Gpu()
    made = [path for step in pipeline.steps for path in step.writes]
    for step, verdict in verdicts_of(pipeline, begin, only):
        yield f"# {step.stage}: {step.name} ({verdict})"
        yield shlex.join(words_of(step, pipeline.run, resume=False))
        missing = [p for p in step.reads if p not in made and not p.exists()]
        if missing:
            yield f"needs, and is not there: {', '.join(map(str, missing))}"
        yield from _cost(step, pipeline.run, gpu)
        yield ""
    yield notes(gpu)


def _cost(step: Step, run: Path, gpu: Gpu) -> Iterator[str]:
    if step.command is None:
        return
    config = merge({}, *step.configs)
    arguments = config["model"]["init_args"]
    policy = Path(settings_of(arguments["policy"])["path"])
    to_be_made = policy.is_relative_to(run) and not policy.is_dir()
    engine = arguments.get("engine") or {}
    if str(engine.get("class_path")).endswith("ServerEngine"):
        yield f"drawn by {policy} at {engine['init_args']['endpoint']['url']}"
        return
    plan = plan_of(step.name, config, gpu=gpu, model=BASE if to_be_made else None)
    yield from as_text(plan, gpu).splitlines()[2:]
