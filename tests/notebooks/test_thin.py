"""A thinned run is what the notebooks read, and keeps the numbers as they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from test_notebooks import ROOT

from r1lit.files import read_records, write_records

sys.path.insert(0, str(ROOT / "notebooks"))

from thin import main


def line(iteration: int, uid: str, sample: int, **more) -> dict:
    return {"iteration": iteration, "split": "val", "uid": uid, "sample": sample, **more}


def configured(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "seed_everything: 3\nmodel: {init_args: {policy: models/mini}}\n"
    )
    return folder


def test_every_second_evaluation_keeps_two_responses_a_problem(tmp_path):
    run = configured(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"iteration": 0}\n')
    evaluations = [{"iteration": i, "num_samples": 3} for i in (0, 4, 8)]
    (run / "summary.json").write_text(json.dumps(evaluations))
    responses = [line(i, u, s, prompt="long") for i in (0, 4, 8) for u in "ab" for s in range(3)]
    write_records(run / "responses.jsonl", [*responses, {**responses[0], "split": "train"}])
    assert main(["aha", str(run), str(tmp_path / "thin")]) == 0
    kept = read_records(tmp_path / "thin/responses.jsonl")
    assert kept == [line(i, u, s) for i in (0, 8) for u in "ab" for s in (0, 1)]
    assert (tmp_path / "thin/summary.json").read_bytes() == (run / "summary.json").read_bytes()
    said = (tmp_path / "thin/README.md").read_text()
    assert "models/mini, seed 3" in said and "iterations 0 and 8" in said


def test_a_rollout_keeps_the_tokens_of_its_first_groups(tmp_path):
    run = configured(tmp_path / "run")
    tokens = {"tokens": {"text": ["x"], "logp": [-1.0]}, "response": "x", "advantage": 0.5}
    lines = [line(0, u, s, **tokens) | {"split": "train"} for u in "abcdef" for s in (0, 1)]
    write_records(run / "responses.jsonl", lines)
    (tmp_path / "thin").mkdir()
    (tmp_path / "thin/old").write_text("replaced")
    assert main(["rollout", str(run), str(tmp_path / "thin")]) == 0
    kept = read_records(tmp_path / "thin/responses.jsonl")
    assert kept[:8] == lines[:8] and all(record["advantage"] == 0.5 for record in kept)
    assert not any("tokens" in record or "response" in record for record in kept[8:])
    assert not (tmp_path / "thin/old").exists()
