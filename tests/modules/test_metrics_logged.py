"""What the modules log is what docs/METRICS.md says they log."""

from __future__ import annotations

import json
from pathlib import Path

from metrics_page import assert_documented, normalise, owned_by
from tiny import ahead, data, model


def test_a_grpo_run_logs_its_page_and_nothing_else(fit, tmp_path: Path) -> None:
    objective = {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.1}}
    cli = fit("run", model(objective=objective, collector=ahead(1)))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    logged = {key for line in lines for key in json.loads(line)} - {"iteration", "seconds"}
    logged |= {key for key in cli.trainer.callback_metrics if key.startswith("val/")}
    assert_documented(logged)
    missing = owned_by("GRPOModule") - {normalise(key) for key in logged}
    assert not missing, missing


def test_verdicts_that_are_none_are_counted_in_training_and_in_evaluation(fit, tmp_path: Path):
    """A verifier that ran out of time earns nothing, which a curve of rewards would not tell."""
    cli = fit("run", model(grader={"class_path": "tiny.TiredJudge"}), data(num_iterations=2))
    run = tmp_path / "run"
    rows = [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]
    shares = set()
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        own = [
            r["status"]
            for r in rows
            if (r["split"], r["iteration"]) == ("train", line["iteration"])
        ]
        assert len(own) == 16
        for status in ("timeout", "error"):
            assert line[f"train/verifier/{status}"] == own.count(status) / 16
            shares.add((status, own.count(status) / 16))
    assert len(shares) > 2 and all(0 < share < 1 for _, share in shares), shares
    last = [r["status"] for r in rows if (r["split"], r["iteration"]) == ("val", 2)]
    for status in ("timeout", "error"):
        logged = float(cli.trainer.callback_metrics[f"val/verifier/{status}"])
        assert abs(logged - last.count(status) / len(last)) < 1e-6
