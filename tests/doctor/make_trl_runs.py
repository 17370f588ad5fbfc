"""Makes short runs of TRL's GRPOTrainer with planted faults, whose files the tests read.

    python tests/doctor/make_trl_runs.py tests/doctor/trl

It needs ``trl`` (the extra ``bench``), and takes half a minute a run. Of each run it keeps
``trainer_state.json``, and the completions tables as ``completions.jsonl``, prompts cut.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from r1lit.text.extract import extract_final
from r1lit.worlds import WorldChain

ROOT = Path(__file__).resolve().parents[2]
LETTERS = 60
"""Letters of each prompt that are kept, its last."""
PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {} Assistant:"
)


def accuracy(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Return 1 where the text in the answer's tags is the gold answer."""
    found = [extract_final(text) for text in completions]
    return [float(f is not None and f.strip() == a) for f, a in zip(found, answer, strict=True)]


def boxed(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Return 1 where a box holds the gold answer; the policy writes tags."""
    return [float(f"\\boxed{{{a}}}" in text) for text, a in zip(completions, answer, strict=True)]


def longer(completions: list[str], **_: Any) -> list[float]:
    """Return a reward for length alone."""
    return [len(text) / 50 for text in completions]


RUNS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "truncated": {"max_completion_length": 12},
    "learning_rate_low": {"learning_rate": 1e-9, "num_iterations": 2},
    "learning_rate_high": {"learning_rate": 3e-2, "max_grad_norm": 100.0},
    "no_mixed_groups": {"temperature": 0.01},
    "never_earned": {"rewards": [boxed]},
    "reward_hacked": {"rewards": [accuracy, longer], "learning_rate": 1e-3},
}
"""What each run changes."""


def make(name: str, change: dict[str, Any], folder: Path) -> None:
    """Make one run, and keep its files."""
    from trl import GRPOConfig, GRPOTrainer  # tests are collected without it

    options = dict(change)
    rewards = options.pop("rewards", [accuracy])
    problems = WorldChain(num_problems=32).problems()
    rows = [{"prompt": PROMPT.format(p.question), "answer": p.answer} for p in problems]
    with tempfile.TemporaryDirectory() as output:
        settings = {
            "output_dir": output, "max_steps": 6, "num_generations": 8, "logging_steps": 1,
            "per_device_train_batch_size": 16, "max_completion_length": 64, "learning_rate": 1e-4,
            "log_completions": True, "save_strategy": "no", "report_to": [], "beta": 0.001,
            "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
            "disable_tqdm": True, "lr_scheduler_type": "constant", "seed": 0,
        } | options  # fmt: skip
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(ROOT / "models" / "mini"),
            processing_class=AutoTokenizer.from_pretrained(ROOT / "models" / "mini"),
            reward_funcs=rewards,
            args=GRPOConfig(**settings),
            train_dataset=Dataset.from_list(rows),
        )
        trainer.train()
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        trainer.state.save_to_json(str(own / "trainer_state.json"))
        lines = [
            row | {"prompt": row["prompt"][-LETTERS:]}
            for table in sorted(Path(output, "completions").glob("*.parquet"))
            for row in pq.read_table(table).to_pylist()
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (own / "completions.jsonl").write_text(text)


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(RUNS)
    for run in chosen:
        make(run, RUNS[run], Path(sys.argv[1]))
