"""What the modules log is what docs/METRICS.md says they log."""

from __future__ import annotations

import json
from pathlib import Path

from metrics_page import assert_documented, normalise, owned_by
from tiny import model


def test_a_grpo_run_logs_its_page_and_nothing_else(fit, tmp_path: Path) -> None:
    beta = model(objective={"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.1}})
    cli = fit("run", beta)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    logged = {key for line in lines for key in json.loads(line)} - {"iteration", "seconds"}
    logged |= {key for key in cli.trainer.callback_metrics if key.startswith("val/")}
    assert_documented(logged)
    missing = owned_by("GRPOModule") - {normalise(key) for key in logged}
    assert not missing, missing
