"""A runner killed at any moment, started again, ends where one that was left alone does."""

from __future__ import annotations

import json
import time

import pytest
import yaml
from metrics_page import MEASURED
from tiny_pipeline import command, copy, environment, kill_when, manifest, states, train_and_test

from experiments.r1 import kill_check
from r1lit.files import read_records

TIMES = ("seconds", "grade_seconds")


def timeless(record):
    return {k: v for k, v in record.items() if k not in TIMES and not k.startswith(MEASURED)}


def outcome(run):
    """What a run is for: everything but times and the order in which responses ended."""
    responses = read_records(run / "eval/zero/responses.jsonl")
    report = json.loads((run / "eval/zero/report.json").read_text())
    report["settings"].pop("policy")
    return {
        "policy": {p.name: p.read_bytes() for p in sorted((run / "zero/policy").iterdir())},
        "metrics": [timeless(line) for line in read_records(run / "zero/metrics.jsonl")],
        "responses": sorted(
            (timeless(r) for r in responses), key=lambda r: (r["uid"], r["sample"])
        ),
        "report": report,
    }


def finish(pipeline, *words):
    process = command(pipeline, *words)
    assert process.wait(240) == 0, pipeline.with_name("runner.log").read_text()


@pytest.mark.slow
def test_kill_9_in_training_and_in_evaluation_changes_nothing(tmp_path, policy):
    pipeline = train_and_test(tmp_path, policy)
    run, alone = tmp_path / "run", tmp_path / "alone"
    finish(pipeline, "--run", str(alone))

    metrics = run / "zero/metrics.jsonl"
    kill_when(command(pipeline), lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2)
    assert states(run) == {"zero": "running"}
    time.sleep(1)
    size = metrics.stat().st_size
    time.sleep(2)
    assert metrics.stat().st_size == size  # the step died with its runner

    responses = run / "eval/zero/responses.jsonl"
    kill_when(command(pipeline), lambda: responses.exists() and responses.stat().st_size > 0)
    assert states(run)["zero"] == "finished"
    finish(pipeline)
    assert outcome(run) == outcome(alone)

    entries = manifest(run)
    assert entries["zero"]["cost"]["attempts"] == 2 and entries["eval_zero"]["state"] == "finished"
    assert entries["zero"]["cost"]["tokens"] > 0 and entries["eval_zero"]["cost"]["tokens"] > 0
    assert entries["eval_zero"]["scores"]["num_samples"] == 4
    assert "pass_at_1" in entries["eval_zero"]["scores"]
    assert "--ckpt_path last" in entries["zero"]["command"]
    assert entries["zero"]["writes"][str(run / "zero/policy")] == next(
        iter(entries["eval_zero"]["reads"].values())
    )


@pytest.mark.slow
def test_the_check_kills_a_training_midway_and_sees_another_result(
    tmp_path, policy, monkeypatch, capsys
):
    pipeline = train_and_test(tmp_path, policy)
    content = yaml.safe_load(pipeline.read_text())
    train = content["steps"][0]
    train["writes"] = train["writes"][:1]
    config = f"{train['writes'][0]}/config.json"
    content["steps"] = [train, copy("table", config, "{run}/table.json")]
    pipeline.write_text(yaml.safe_dump(content))
    alone = tmp_path / "alone"
    finish(pipeline, "--run", str(alone))
    for key, value in environment().items():
        monkeypatch.setenv(key, value)

    # early: on a machine that was busier when the step ran alone it takes much less now
    monkeypatch.setattr(kill_check, "SHARES", (0.05, 0.25))
    assert kill_check.main([str(alone), str(tmp_path / "killed")]) == 0
    assert manifest(tmp_path / "killed")["zero"]["cost"]["attempts"] == 2
    out = capsys.readouterr().out
    assert "killed in zero" in out and "2 of 2 steps wrote the same bytes" in out

    entries = json.loads((alone / "manifest.json").read_text())
    for entry in entries["steps"]:
        entry["writes"] = dict.fromkeys(entry["writes"], "0" * 16)
    (alone / "manifest.json").write_text(json.dumps(entries))
    assert kill_check.main([str(alone), str(tmp_path / "killed")]) == 0
    out = capsys.readouterr().out
    assert "other bytes: zero, table" in out and "table: the same" in out

    table = json.loads((alone / "table.json").read_text())
    for share, status in ((1e-9, 0), (1e-3, 1)):
        nudged = table | {"rms_norm_eps": table["rms_norm_eps"] * (1 + share)}
        (alone / "table.json").write_text(json.dumps(nudged))
        assert kill_check.main([str(alone), str(tmp_path / "killed")]) == status
    assert "table: NOT the same" in capsys.readouterr().out


def test_the_check_wants_a_finished_run(tmp_path, policy, capsys):
    assert kill_check.main([str(tmp_path / "alone"), str(tmp_path / "killed")]) == 2
    assert "name the folder of a finished run" in capsys.readouterr().err
    pipeline = train_and_test(tmp_path, policy)
    content = {"pipeline": str(pipeline), "run": "alone", "seed": 0, "steps": []}
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/manifest.json").write_text(json.dumps(content))
    assert kill_check.main([str(tmp_path / "alone"), str(tmp_path / "killed")]) == 2
    assert "step zero is missing; finish that run first" in capsys.readouterr().err
    assert not (tmp_path / "killed").exists()
