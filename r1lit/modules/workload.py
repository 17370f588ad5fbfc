"""The workload of a run: its rows, tokens and updates, from its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from r1lit.modules.memory_plan import (
    MemorySettings,
    class_of,
    engine_of,
    init_args_of,
    read_settings,
)
from r1lit.modules.sft import SFTModule
from r1lit.objectives import DPO

Config = Mapping[str, Any]
Kind = Literal["reinforcement", "supervised", "preference", "sampling"]
RANKS = 8  # where a preset takes what GPUs there are


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a whole run, or of one iteration where only the data tell how many there are.

    ``rows_per_iteration`` are responses in reinforcement learning, packed rows in supervised
    training, responses of pairs or labels in a reward model's, and where responses are drawn and
    nothing is trained, those to one problem, which counts as an iteration. ``mean_tokens`` is the
    assumed mean length of a response, or of a document. A supervised row is full; the others are as
    long as a prompt and a mean response. ``is_whole`` says whether ``iterations`` is the run's,
    ``is_served`` whether responses come from servers, and ``loads_policy`` whether the weights
    stand in this process too.
    """

    kind: Kind
    iterations: int
    is_whole: bool
    rows_per_iteration: int
    updates_per_iteration: int = 1
    group_size: int = 1
    prompt_tokens: int
    mean_tokens: int
    max_tokens: int
    row_tokens: int
    rows_decoded: int = 0
    is_served: bool
    loads_policy: bool = True
    num_inner_epochs: int = 1
    memory: MemorySettings

    @property
    def updates(self) -> int:
        """Optimiser steps of the run."""
        return self.iterations * self.updates_per_iteration

    @property
    def rows(self) -> int:
        """Rows of the run."""
        return self.iterations * self.rows_per_iteration

    @property
    def tokens(self) -> int:
        """Tokens of the run that are trained on or conditioned on, prompts of a group once."""
        if self.kind == "supervised":
            return self.rows * self.row_tokens
        groups = self.rows // self.group_size
        return self.rows * self.mean_tokens + groups * self.prompt_tokens

    @property
    def sampled_tokens(self) -> int:
        """Tokens drawn; none where what is learnt from is there already."""
        return self.rows * self.mean_tokens if self.draws else 0

    @property
    def draws(self) -> bool:
        """True where responses are sampled."""
        return self.kind in ("reinforcement", "sampling")


def ranks_of(config: Config) -> int:
    """Return how many GPUs a preset trains on; ``RANKS`` where it takes all there are."""
    trainer = config.get("trainer") or {}
    devices = trainer.get("devices")
    return (devices if isinstance(devices, int) else RANKS) * (trainer.get("num_nodes") or 1)


def work_of(config: Config, *, prompt_tokens: int, mean_tokens: int | None) -> Work:
    """Read the work of a preset; ``mean_tokens`` is a quarter of the longest if left out.

    Raises:
        ValueError: naming the key that is missing.
    """
    model = config.get("model", {}).get("init_args", {})
    data = config.get("data", {}).get("init_args", {})
    epochs = config.get("trainer", {}).get("max_epochs") or 1
    iterations = data.get("num_iterations")
    engine = engine_of(model)
    shared = {
        "iterations": iterations * epochs if iterations else 1,
        "is_whole": bool(iterations),
        "prompt_tokens": prompt_tokens,
        "is_served": engine.server_share(init_args_of(model.get("engine"))) is not None,
        "loads_policy": engine.capabilities.needs_policy,
        "memory": read_settings(config, ranks_of(config)),
    }
    if {"predict", "test", "suites"} & data.keys():
        return _sampling(model, data, shared, mean_tokens)
    if "train_batch_size" in data:
        return _preference(model, data, shared, mean_tokens)
    if "documents" in data:
        return _supervised(data, shared, mean_tokens)
    module = class_of(config.get("model"), "r1lit.modules", "model")
    if module is not None and issubclass(module, SFTModule):
        raise ValueError("data.documents is missing; bring a file of data, such as -c data.yaml")
    return _reinforcement(model, data, shared, mean_tokens)


def _reinforcement(
    model: Config, data: Config, shared: dict[str, Any], mean_tokens: int | None
) -> Work:
    later = {int(begin): limit for begin, limit in (model.get("max_tokens_from") or {}).items()}
    limits = {0: _max_tokens(model), **later}
    begins = [*sorted(limits), max(shared["iterations"], *limits)]
    total = sum(limits[a] * (b - a) for a, b in pairwise(begins))
    rollout = data.get("rollout", {})
    group_size = rollout.get("group_size", 16)
    rows = rollout.get("prompts_per_iteration", 16) * group_size
    inner = model.get("num_inner_epochs", 1)
    engine = init_args_of(model.get("engine"))
    mean = mean_tokens or total // begins[-1] // 4
    return Work(
        kind="reinforcement",
        rows_per_iteration=rows,
        updates_per_iteration=max(1, rows // model.get("train_batch_size", 64)) * inner,
        group_size=group_size,
        mean_tokens=mean,
        max_tokens=max(limits.values()),
        row_tokens=shared["prompt_tokens"] + mean,
        rows_decoded=engine.get("max_rows") or rows,
        num_inner_epochs=inner,
        **shared,
    )


def _supervised(data: Config, shared: dict[str, Any], mean_tokens: int | None) -> Work:
    packing = data.get("packing", {})
    length = packing.get("max_seq_len", 1024)
    mean = min(mean_tokens or length // 4, length)
    rows = packing.get("train_batch_size", 16)
    if packing.get("documents_per_update"):
        ranks = shared["memory"].ranks  # rows come out even over them
        rows = max(1, round(packing["documents_per_update"] * mean / length / ranks)) * ranks
    return Work(
        kind="supervised",
        rows_per_iteration=rows,
        mean_tokens=mean,
        max_tokens=length,
        row_tokens=length,
        **shared,
    )


def _sampling(model: Config, data: Config, shared: dict[str, Any], mean_tokens: int | None) -> Work:
    longest = _max_tokens(model)
    num_samples = data.get("evaluation", {}).get("num_samples") or data.get("num_samples") or 1
    engine = init_args_of(model.get("engine"))
    mean = mean_tokens or longest // 4
    return Work(
        kind="sampling",
        rows_per_iteration=num_samples,
        updates_per_iteration=0,
        group_size=num_samples,
        mean_tokens=mean,
        max_tokens=longest,
        row_tokens=shared["prompt_tokens"] + mean,
        rows_decoded=engine.get("max_rows") or 64,
        **shared,
    )


def _preference(
    model: Config, data: Config, shared: dict[str, Any], mean_tokens: int | None
) -> Work:
    longest = data.get("max_tokens") or 1024
    mean = mean_tokens or longest // 4
    objective = class_of(model.get("objective"), "r1lit.objectives", "model.objective")
    return Work(
        kind="preference",
        rows_per_iteration=data["train_batch_size"] * (objective or DPO).rows_per_example,
        mean_tokens=mean,
        max_tokens=longest,
        row_tokens=shared["prompt_tokens"] + mean,
        **shared,
    )


def _max_tokens(model: Config) -> int:
    found = (model.get("sampling") or {}).get("max_tokens")
    if not found:
        raise ValueError("model.sampling.max_tokens is missing")
    return int(found)
