"""The study of repairs: how trajectories and their samples are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.repair import report
from r1lit.files import write_records


def trajectory(*calls: str, status: str = "right", last: str = "changed") -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for place, name in enumerate(calls):
        content = last if place == len(calls) - 1 else ""
        call = {"role": "assistant", "tool_calls": [{"name": name, "arguments": {}}]}
        turns += [call, {"role": "tool", "content": content}]
    turns.append({"role": "assistant", "content": "Done."})
    return {"uid": "u", "status": status, "num_tokens": 10, "num_invalid": 0, "turns": turns}


def test_behaviour_is_counted_by_the_order_of_calls():
    found = report.behaviour(
        [
            trajectory("run_tests", "view", "edit"),
            trajectory("view", "edit", "run_tests", "edit", last="4 passed, 0 failed"),
            trajectory("run_tests", status="wrong", last="3 passed, 1 failed"),
            trajectory("edit", "run_tests", status="wrong", last="4 passed, 0 failed"),
        ]
    )
    assert (found["right"], found["tests_first"], found["tests_again"]) == (0.5, 0.5, 0.5)
    assert (found["edits"], found["unseen_wrong"], found["tokens"]) == (1.0, 0.25, 10.0)


def test_samples_count_for_every_stage_that_used_them(tmp_path: Path):
    card = tmp_path / "rejection_sampling/card.json"
    card.parent.mkdir()
    card.write_text(json.dumps({"num_drawn": 100, "num_kept": 7}))
    for name in report.CURVES:
        (tmp_path / name).mkdir()
        lines = [{"iteration": i, "train/reward_std": 0.1} for i in range(3)]
        write_records(tmp_path / name / "metrics.jsonl", [*lines, {"iteration": 3, "val/x": 1}])
    samples = {stage: report.sampled(tmp_path, stage)["samples"] for stage in report.STAGES}
    assert samples == {"base": 0, "sft": 100, "coin": 192, "rl": 192, "sft_rl": 292}
    assert report.sampled(tmp_path, "sft")["kept"] == 7
