"""The cosine ends where the run does, whatever data, epochs and inner epochs make of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tiny import grpo_config, merge

from r1lit.cli import main

RATE = 0.01
COSINE = {
    "model": {
        "init_args": {
            "lr_scheduler": {
                "class_path": "r1lit.modules.CosineOverRun",
                "init_args": {"final_share": 0.2},
            }
        }
    },
    "data": {"init_args": {"num_iterations": 2, "validation": None}},
    "trainer": {"val_check_interval": 1.0, "limit_val_batches": 0},
}

FOUR = {"num_iterations": 4}


def rates(tmp_path: Path, policy: Path, change: dict[str, Any], *words: str) -> list[float]:
    """Return the rate behind the last update of each iteration."""
    run = tmp_path / "run"
    path = grpo_config(run, policy, merge(COSINE, change))
    main(["fit", "-c", str(path), *words])
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train/learning_rate"] for line in lines]


def cosine(share: float) -> float:
    return RATE * (0.2 + 0.8 * (1 + math.cos(math.pi * share)) / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "num_iterations"),
    [
        ({}, 2),
        ({"trainer": {"max_epochs": 2}}, 4),
        ({"model": {"init_args": {"num_inner_epochs": 3}}}, 2),
        ({"trainer": {"limit_train_batches": 1}}, 1),
    ],
)
def test_it_ends_with_the_run(tmp_path, policy, change, num_iterations):
    found = rates(tmp_path, policy, change)
    wanted = [cosine((i + 1) / num_iterations) for i in range(num_iterations)]
    assert found == pytest.approx(wanted) and found[-1] == pytest.approx(0.2 * RATE)


def test_a_run_of_so_many_updates_ends_with_them(tmp_path, policy):
    change = {"trainer": {"max_epochs": -1, "max_steps": 8}}
    assert rates(tmp_path, policy, change)[-1] == pytest.approx(0.2 * RATE)


def test_a_run_without_end_is_refused(tmp_path, policy):
    with pytest.raises(ValueError, match=r"^trainer.max_epochs: without one the run has no end"):
        rates(tmp_path, policy, {"trainer": {"max_epochs": -1}})


def test_a_share_that_is_none_is_refused(tmp_path, policy):
    change = {"model": {"init_args": {"lr_scheduler": {"init_args": {"final_share": 5.0}}}}}
    with pytest.raises(ValueError, match=r"^final_share: 5.0 is not between 0 and 1"):
        rates(tmp_path, policy, change)


def test_the_longest_response_follows_its_schedule(tmp_path: Path, policy: Path) -> None:
    model = {"max_tokens_from": {1: 3, 3: 12}, "sampling": {"max_tokens": 6}}
    rates(tmp_path, policy, {"model": {"init_args": model}, "data": {"init_args": FOUR}})
    longest: dict[int, int] = {}
    for line in (tmp_path / "run/responses.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["split"] == "train":
            iteration = record["iteration"]
            longest[iteration] = max(longest.get(iteration, 0), record["num_tokens"])
    assert longest == {0: 6, 1: 3, 2: 3, 3: 12}


def test_a_schedule_beyond_the_context_is_refused_before_anything_is_loaded(
    tmp_path: Path, policy: Path
) -> None:
    with pytest.raises(ValueError, match=r"max_tokens: 300 after a prompt of .* tokens exceeds"):
        rates(tmp_path, policy, {"model": {"init_args": {"max_tokens_from": {900: 300}}}})
