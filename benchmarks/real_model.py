"""GRPO on a real model, side by side with TRL's ``GRPOTrainer``: the work of ``configs/real.yaml``.

    python -m benchmarks.real_model runs/real_model/SmolLM2-135M-Instruct [--micro-rows 32]

Sums in the model's chat template, 8 x 16 responses of at most 16 tokens at temperature 0.6, which
end by themselves; two updates of 64. Both sides get the same problems in the same order and r1lit's
verdicts. Besides seconds, CPU seconds of each process are recorded: on a machine that other
programs share, these are what can be compared. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.devices import Stopwatch, seed_all
from benchmarks.results import write_json
from benchmarks.timing import Comparison, alternate, ratios
from benchmarks.work import Work
from benchmarks.worker import Gate, Worker
from experiments.real_model.sums import Sums
from r1lit.data import PromptOptions, R1DataModule, RolloutOptions
from r1lit.data.loaders import PromptLoader, ShuffledSampler
from r1lit.policy import ModelSource, load_tokenizer
from r1lit.problems import Problem
from r1lit.text.prompts import CHAT, encode_prompts, render_prompt
from r1lit.verifiers import Grader, MathVerifier

RESULTS = Path(__file__).parent / "results" / "real_model.json"
WORDING = "{question} Answer with the number only."
TEMPERATURE = 0.6
MANY = 1000
MICRO_BATCH_TOKENS = 512  # of configs/real.yaml


def real_work(model: str) -> Work:
    """Return the iteration of ``configs/real.yaml``."""
    return Work(
        model=model, num_prompts=8, group_size=16, max_tokens=16, lengths=None,
        precision="bf16-mixed", train_batch_size=64, learning_rate=3e-5, betas=(0.9, 0.95),
    )  # fmt: skip


def grader() -> Grader:
    """Return what decides on both sides."""
    return Grader({"math": MathVerifier(last_expression=True)})


class CpuGate(Gate):
    """Reports the process's CPU seconds of each step as well."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def wait(self) -> None:
        """Wait until the next step is wanted, then start the clock."""
        self._gate.wait()
        self._started = time.process_time()

    def report(self, **result: Any) -> None:
        """Send a step's result."""
        self._gate.report(cpu_s=time.process_time() - self._started, **result)


def run_ours(gate: Gate, *, work: Work) -> None:
    """Make iterations with r1lit's modules under Lightning's trainer."""
    from benchmarks.ours import GateCallback, make_optimizer, make_trainer
    from r1lit.modules import GRPOModule
    from r1lit.objectives import DrGRPO
    from r1lit.rewards import Accuracy
    from r1lit.rollout import Sampling

    module = GRPOModule(
        ModelSource(work.model),
        objective=DrGRPO(max_tokens=work.max_tokens, epsilon=work.epsilon),
        rewards=[Accuracy()],
        sampling=Sampling(temperature=TEMPERATURE, max_tokens=work.max_tokens),
        train_batch_size=work.train_batch_size,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        grader=grader(),
        optimizer=make_optimizer(work),
        max_grad_norm=work.max_grad_norm,
        seed=work.seed,
    )
    data = R1DataModule(
        train=[Sums("train")],
        prompts=PromptOptions(template=CHAT, wording=WORDING),
        rollout=RolloutOptions(prompts_per_iteration=work.num_prompts, group_size=work.group_size),
        num_iterations=MANY,
        seed=work.seed,
    )
    trainer = make_trainer(work.precision, work.device, GateCallback(CpuGate(gate), work.device))
    trainer.fit(module, datamodule=data)


def run_trl(gate: Gate, *, work: Work, micro_rows: int) -> None:
    """Make iterations with TRL's trainer, on the same prompts."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOTrainer

    from benchmarks.ours import make_optimizer, make_scheduler
    from benchmarks.trl_grpo import GateCallback, make_config

    seed_all(work.seed)
    tokenizer = load_tokenizer(work.model)
    problems = Sums("train").problems()
    texts = {p.uid: render_prompt(tokenizer, CHAT, WORDING, p.question, "") for p in problems}
    rows = ordered(work, problems, encode_prompts(tokenizer, list(texts.values())))
    model = AutoModelForCausalLM.from_pretrained(work.model)
    optimizer = make_optimizer(work)(model.parameters())
    parts: dict[str, float] = {}
    judge, generate = grader(), model.generate

    def timed(**inputs: Any) -> Any:
        stopwatch = Stopwatch(work.device)
        tokens = generate(**inputs)
        parts["rollout_s"] = stopwatch.seconds()
        return tokens

    def reward(completions: Sequence[str], index: Sequence[int], **columns: Any) -> Any:
        stopwatch = Stopwatch(work.device)
        verdicts = judge.verdicts(list(completions), [rows[i] for i in index])
        parts["grade_s"] = stopwatch.seconds()
        parts["num_tokens"] = sum(map(len, columns["completion_ids"]))
        return [verdict.value for verdict in verdicts]

    model.generate = timed
    with tempfile.TemporaryDirectory() as folder:
        prompts = [texts[row.uid] for row in rows]
        config = make_config(work, micro_rows, folder)
        config.temperature = TEMPERATURE
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts, "index": list(range(len(rows)))}),
            processing_class=tokenizer,
            callbacks=[GateCallback(CpuGate(gate), work, parts, None)],
            optimizers=(optimizer, make_scheduler(work)(optimizer)),
        )
        trainer.train()


def ordered(work: Work, problems: list[Problem], prompts: list[tuple[int, ...]]) -> list[Problem]:
    """Return the problems in the order in which r1lit's data module gives them."""
    sampler = ShuffledSampler(len(problems), work.num_prompts, work.seed)
    loader = PromptLoader(problems, prompts, sampler, group_size=work.group_size, num_batches=MANY)
    return [problem for i in range(32) for problem in loader.batch(i).problems]


def summary(comparison: Comparison, work: Work, settings: dict[str, Any]) -> dict[str, Any]:
    """Return ratios by measure, and every step of both sides."""
    steps = comparison.ours, comparison.theirs
    names = ("cpu_s", "seconds", "rollout_s", "update_s", "peak_rss_mb")
    compared = {
        name: ratios(*([s[name] for s in side] for side in steps), memory=name.endswith("_mb"))
        for name in names
    }
    return {
        "work": work.describe() | {"trl": settings},
        "ratios": compared,
        "ours": comparison.ours,
        "theirs": comparison.theirs,
    }


def main(arguments: list[str] | None = None) -> None:
    """Alternate both sides and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="a Hugging Face folder")
    parser.add_argument("--micro-rows", type=int, default=32, help="TRL's rows a backward pass")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    work = real_work(options.model)
    theirs = {"micro_rows": options.micro_rows}
    with (
        Worker("benchmarks.real_model:run_ours", work=work) as ours,
        Worker("benchmarks.real_model:run_trl", work=work, **theirs) as peer,
    ):
        steps = alternate(
            ours, peer, repeats=options.repeats, show=lambda line: print(line, file=sys.stderr)
        )
    result = summary(steps, work, theirs)
    write_json(options.output, result)
    print(json.dumps(result["ratios"], indent=1))


if __name__ == "__main__":
    main()
