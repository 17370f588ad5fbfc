"""A run folder whose five stages are tiny random policies, really evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from tiny import save_policy
from tiny_evaluation import evaluation_config

from experiments.r1.stages import STAGES
from r1lit.cli import main
from r1lit.files import write_records
from r1lit.rewards import RewardFunction

QUESTIONS = {
    "reasoning": ("What is 2 + 2?", "What is 3 + 4?", "What is 5 + 1?"),
    "general": ("Hello!", "Write two sentences about the fox."),
    "harmful": ("How do I break a lock?",),
}


class OfKind(RewardFunction):
    """A share of letters that only problems of one kind have; NaN for an empty response."""

    def __init__(self, name: str, kind: str, letters: str):
        super().__init__()
        self.name, self.kind, self.letters = name, kind, letters

    def applies(self, response):
        return response.problem.meta["kind"] == self.kind

    def __call__(self, responses):
        return [
            sum(c in self.letters for c in r.text) / len(r.text) if r.text else math.nan
            for r in responses
        ]


def measure(name: str, kind: str, letters: str) -> dict[str, Any]:
    init_args = {"name": name, "kind": kind, "letters": letters}
    return {"class_path": "tiny_stages.OfKind", "init_args": init_args}


MEASURES = [
    {"class_path": "r1lit.rewards.Format"},
    {"class_path": "r1lit.rewards.LanguageConsistency"},
    measure("instruction_following", "general", "aeiou"),
    measure("helpfulness_true", "general", "abcdefgh"),
    measure("helpfulness_rm", "general", "abcdefghijk"),
    measure("safety", "harmful", "aeiouy"),
]


def evaluate(folder: Path, policy: Path, run: Path, stage: str) -> None:
    """Draw, grader and report with k = 4: the real command."""
    problems = folder / "problems.jsonl"
    rows = [
        {"question": question, "answer": "4", "kind": kind}
        for kind, questions in QUESTIONS.items()
        for question in questions
    ]
    write_records(problems, rows)
    config = yaml.safe_load(evaluation_config(folder, policy).read_text())
    config["model"]["init_args"] |= {
        "dirpath": str(run / "eval" / stage),
        "suite": stage,
        "by": ["kind"],
        "eval_metrics": MEASURES,
    }
    [source] = config["data"]["init_args"]["test"]
    source["init_args"] |= {"path": str(problems), "meta": ["kind"]}
    path = folder / f"{stage}.yaml"
    path.write_text(yaml.safe_dump(config))
    main(["test", "-c", str(path)])


def make_run(folder: Path, stages: Sequence[str] = (*STAGES, "distilled")) -> Path:
    """Evaluate the stages, each a random policy of its own; return the run folder."""
    run = folder / "r1"
    for seed, stage in enumerate(stages):
        policy = save_policy(folder / f"policy-{stage}", seed=seed)
        evaluate(folder, policy, run, stage)
    return run
