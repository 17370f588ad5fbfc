"""Runs of TRL's trainers, read from ``trainer_state.json`` and their tables of completions.

TRL's numbers get r1lit's names, so that the same rules read them. What TRL does not write is not
known: settings are in ``training_args.bin`` alone, a pickle that can run code and is not opened;
completions have no verdict, unless a reward function is named after accuracy or correctness; and
neither the sampler's log-probs (without vLLM) nor distances between two updates are logged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from r1lit.doctor.run import Run
from r1lit.files import Record

STATE = "trainer_state.json"
NAMES = {
    "train/reward": "reward",
    "train/reward_std": "reward_std",
    "train/groups/mixed": "1 - frac_reward_zero_std",
    "train/length/mean": "completions/mean_length",
    "train/length/truncated": "completions/clipped_ratio",
    "train/kl_reference": "kl",
    "train/entropy": "entropy",
    "train/entropy_weight": "entropy_coef",
    "train/clip_fraction": "clip_ratio/region_mean",
    "train/learning_rate": "learning_rate",
    "train/grad_norm": "grad_norm",
    "train/loss": "loss",
    "train/mismatch/mean_abs": "sampling/sampling_logp_difference/mean",
    "train/environment/calls": "tools/call_frequency",
}
"""r1lit's name of each metric -> TRL's."""
READ = NAMES | {"train/length/max": "completions/max_length"}
EARLIER = {"train/length/mean": "completion_length", "train/clip_fraction": "clip_ratio"}
"""r1lit's name -> an earlier one of TRL's. Where a row has both, as Unsloth's do, today's is read.

Earlier logs also have ``rewards/NAME`` for ``rewards/NAME/mean``.
"""
KEYS = {
    "model.sampling.max_tokens": "max_completion_length",
    "model.optimizer.lr": "learning_rate",
    "model.optimizer's lr": "learning_rate",
    "model.optimizer.weight_decay": "weight_decay",
    "model.lr_scheduler": "lr_scheduler_type",
    "model.max_grad_norm": "max_grad_norm",
    "model.num_inner_epochs": "num_iterations",
    "model.objective.epsilon_high": "epsilon_high",
    "model.objective.epsilon": "epsilon",
    "model.objective.beta": "beta",
    "model.kl_in_reward": "beta",
    "model.sampling": "temperature, top_p and top_k",
    "model.rewards": "reward_funcs and reward_weights",
    "data.rollout.group_size": "num_generations",
    "data.train": "train_dataset",
    "data.prompts.template": "the prompts in train_dataset",
    "train_batch_size": "per_device_train_batch_size",
}
"""r1lit's name of a setting -> ``GRPOConfig``'s, or the trainer's argument; longer names first."""
_RIGHT = re.compile(r"accura|correct", re.IGNORECASE)


def state_file(folder: Path) -> Path | None:
    """Return the newest ``trainer_state.json`` in a folder or in its checkpoints."""
    found = [path for path in (folder / STATE, *folder.glob(f"checkpoint-*/{STATE}"))
             if path.exists()]  # fmt: skip
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def is_trl(folder: Path) -> bool:
    """Return whether a folder is one of TRL's, and no run folder."""
    return not (folder / "metrics.jsonl").exists() and state_file(folder) is not None


class TRLRun(Run):
    """An output folder of TRL's ``GRPOTrainer``, or of another trainer that logs like it.

    An iteration is a row of ``log_history``, so with ``logging_steps`` above 1 a mean over steps.

    Raises:
        ValueError: if nothing was logged.
    """

    kind = "TRL"

    @cached_property
    def state(self) -> Record:
        """The trainer's state; empty where there is none."""
        path = state_file(self.folder)
        return dict(json.loads(path.read_text())) if path else {}

    @cached_property
    def steps(self) -> list[Record]:
        """Rows of the log that are of training."""
        history = self.state.get("log_history", [])
        return [row for row in history if "loss" in row or "reward" in row]

    def read_metrics(self) -> list[Record]:
        """Return a line for each row of the log, by r1lit's names."""
        if not self.steps:
            raise ValueError(f"run: {state_file(self.folder)} has no row of a training step")
        return [as_metrics(row) for row in self.steps]

    @cached_property
    def names(self) -> dict[str, str]:
        """r1lit's name of each metric -> the name that it has in this log."""
        return {own: key for row in self.steps for key, own in own_names(row).items()}

    @cached_property
    def config(self) -> dict[str, Any]:
        """Nothing: TRL writes no settings that can be read safely."""
        return {}

    @cached_property
    def lines(self) -> list[Record]:
        """Completions, as r1lit records responses."""
        tables = sorted((self.folder / "completions").glob("*.parquet"))
        if not tables:
            return []
        from pyarrow import parquet  # of `datasets`; nothing else here needs it

        rows = [row for table in tables for row in parquet.read_table(table).to_pylist()]
        return as_responses(rows)

    @cached_property
    def adapter_config(self) -> dict[str, Any] | None:
        """PEFT's settings of the adapter that is saved, None where none is."""
        found = [*self.folder.glob("adapter_config.json"),
                 *self.folder.glob("checkpoint-*/adapter_config.json")]  # fmt: skip
        return dict(json.loads(found[0].read_text())) if found else None

    @cached_property
    def known(self) -> dict[str, Any]:
        """Settings that show in the logs: the size of a group, and a limit that was reached."""
        found: dict[str, Any] = {}
        sizes = Counter((line["iteration"], line["uid"]) for line in self.lines)
        if sizes:
            found["data.rollout.group_size"] = Counter(sizes.values()).most_common(1)[0][0]
        cut = [row for row in self.metrics if row.get("train/length/truncated")]
        longest = Counter(row["train/length/max"] for row in cut if "train/length/max" in row)
        # A row may be a mean over steps, of which not all reach the limit; two rows alike did.
        if longest and longest[limit := max(longest)] >= 2:
            found["model.sampling.max_tokens"] = int(limit)
        return found

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a setting that shows in the logs; else the default, which may not be TRL's."""
        if key in self.known:
            self.asked[key] = True
            return self.known[key]
        return super().setting(key, default)

    @property
    def num_rows(self) -> int:
        """Completions of a step, as far as they are recorded."""
        return max((len(lines) for lines in self.by_iteration), default=0)

    @property
    def window_rows(self) -> int:
        """Completions of its start, or of its end, at least: a device's batches in so many rows.

        The state has no number of devices, nor of batches that an update gathers.
        """
        batch, every = (int(self.state.get(k) or 1) for k in ("train_batch_size", "logging_steps"))
        return self.window * max(self.num_rows, batch * every)

    def translated(self, text: str) -> str:
        """Return a text about a run in the names of its log; TRL's of today where it has none."""
        for ours, theirs in (NAMES | self.names | KEYS).items():
            text = re.sub(rf"(?<![\w/.]){re.escape(ours)}(?![\w/])", theirs, text)
        return re.sub(r"(?<![\w/.])train/reward/([^\s:]+)", r"rewards/\1/mean", text)


def own_names(row: Record) -> dict[str, str]:
    """Return r1lit's name of each key of a row that a rule may read, in the order of reading.

    >>> own_names({"step": 1, "completion_length": 9.0, "rewards/correct": 1.0})
    {'completion_length': 'train/length/mean', 'rewards/correct': 'train/reward/accuracy'}
    """
    found = {EARLIER[own]: own for own in EARLIER if EARLIER[own] in row}
    found |= {theirs: own for own, theirs in READ.items() if theirs in row}
    for key in row:
        function = key.removeprefix("rewards/").removesuffix("/mean")
        if key.startswith("rewards/") and not key.endswith("/std"):
            found[key] = f"train/reward/{name_of(function)}"
    return found


def as_metrics(row: Record) -> Record:
    """Return a row of TRL's log by r1lit's names.

    >>> as_metrics({"step": 3, "reward": 0.5, "frac_reward_zero_std": 0.25, "loss": 0.0})
    {'iteration': 3, 'train/reward': 0.5, 'train/loss': 0.0, 'train/groups/mixed': 0.75}
    """
    found = {"iteration": row["step"]}
    found |= {own: row[key] for key, own in own_names(row).items()}
    if "frac_reward_zero_std" in row:
        found["train/groups/mixed"] = 1 - row["frac_reward_zero_std"]
    return found


def name_of(function: str) -> str:
    """Return a reward function's name; ``accuracy`` for one that says whether an answer is right.

    >>> name_of("correctness_reward_func"), name_of("format_reward")
    ('accuracy', 'format_reward')
    """
    return "accuracy" if _RIGHT.search(function) else function


def as_responses(rows: list[Record]) -> list[Record]:
    """Return completions as r1lit records responses; a table's columns are TRL's.

    A status is known where a reward function is named after accuracy or correctness, and gives 0
    to wrong answers and its largest value to right ones.
    """
    known = ("step", "prompt", "completion", "advantage")
    functions = [key for key, value in rows[0].items() if key not in known
                 and isinstance(value, int | float)]  # fmt: skip
    judge = next((name for name in functions if _RIGHT.search(name)), None)
    best = max((row[judge] or 0.0 for row in rows), default=0.0) if judge else 0.0
    names: dict[str, str] = {}
    found = []
    for row in rows:
        prompt = text_of(row["prompt"])
        line: Record = {
            "iteration": row["step"],
            "split": "train",
            "uid": names.setdefault(prompt, f"prompt {len(names)}"),
            "question": prompt,
            "answer": "",
            "response": text_of(row["completion"]),
            "rewards": {name_of(name): row[name] for name in functions},
        }
        if judge is not None and best > 0:
            line["status"] = "right" if (row[judge] or 0.0) >= best else "wrong"
        found.append(line)
    return found


def text_of(messages: Any) -> str:
    """Return a prompt or completion as text: TRL's are texts, or messages with role and content.

    >>> text_of([{"role": "user", "content": "1 + 1?"}])
    '1 + 1?'
    """
    if isinstance(messages, str):
        return messages
    return "\n".join(str(message.get("content") or "") for message in messages or [])
