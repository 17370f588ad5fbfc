"""Rollouts from a vLLM server on the same processors: handing it weights, and iterations."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks import sizes
from benchmarks.context import Context
from benchmarks.models import model_directory
from benchmarks.results import Entry, compare
from benchmarks.timing import ratios
from benchmarks.work import Work
from benchmarks.worker import Worker

GOAL_S = 3.0  # for 135M
TRANSFERS = ("folder", "gloo")
FLAGS: dict[str, Any] = {"enforce-eager": True, "max-model-len": 1024}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
SERVED = "benchmarks.served:run_iterations"
IN_PROCESS = "benchmarks.ours:run_iterations"


def sync(context: Context) -> list[Entry]:
    """Seconds from new weights in the trainer to a vLLM server that draws with them, in float32."""
    if context.vllm_python is None:
        return []
    return [_sync(context, model, transfer) for model in ("mini", "135M") for transfer in TRANSFERS]


def _sync(context: Context, model: str, transfer: str) -> Entry:
    name = "tiny" if context.tiny and model != "mini" else model
    with Worker(
        "benchmarks.served:run_sync",
        environment=ENVIRONMENT,
        model=model_directory(name, context.folder),
        transfer=transfer,
        python_of_vllm=context.vllm_python,
        flags=FLAGS,
    ) as worker:
        first = worker.step()
        steps = [worker.step() for _ in range(context.repeats)]
    seconds = [step["seconds"] for step in steps]
    context.show(f"{name} by {transfer}: {median(seconds):.2f} s, the first {first['seconds']:.2f}")
    return Entry(
        work=f"hand-over of weights to a vLLM server, {transfer}",
        model=model,
        peer=f"{GOAL_S:g} s",
        goal=1.0 if model == "135M" else None,
        unit="s",
        **ratios(seconds, [GOAL_S] * len(seconds), memory=False),
        extra={"repeats": len(seconds), "megabytes": round(steps[0]["megabytes"], 1)},
    )


def iteration_vllm(context: Context) -> list[Entry]:
    """GRPO iterations on rollouts from a vLLM server, and on those drawn in process.

    The server's weights are in bfloat16, in which rollouts in process compute too.
    """
    if context.vllm_python is None:
        return []
    mini = sizes.grpo_mini(context.folder, tiny=context.tiny)
    larger = sizes.grpo_135m(context.folder, tiny=context.tiny)
    return [
        _iterations(context, mini, "mini", "16 x 16, up to 512 tokens"),
        _iterations(context, larger, "135M", "4 x 8, up to 256 tokens"),
    ]


def _iterations(context: Context, work: Work, model: str, size: str) -> Entry:
    settings: dict[str, Any] = {"python_of_vllm": context.vllm_python}
    settings["flags"] = FLAGS | {"dtype": "bfloat16"}
    with (
        Worker(SERVED, environment=ENVIRONMENT, work=work, **settings, **context.own) as served,
        Worker(IN_PROCESS, work=work, **context.own) as in_process,
    ):
        comparison = context.alternate(in_process, served, most=2)
    steps = {"parts_ours": comparison.ours[-1], "parts_theirs": comparison.theirs[-1]}
    names = ("sync_s", "rollout_s", "grade_s", "update_s")
    return compare(
        comparison,
        work=f"GRPO iteration in process, {size}",
        model=model,
        peer="r1lit with a vLLM server",
        goal=None,
        unit="s",
        **{part: {n: round(step[n], 3) for n in names} for part, step in steps.items()},
        settings=work.describe(),
    )
