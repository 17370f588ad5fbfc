"""``--profile``: a trace and a table of the slowest operations, in the run folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tiny import data, grpo_config, merge

from r1lit.cli import main

NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


@pytest.mark.long
@pytest.mark.parametrize("num_iterations", [1, 3])
def test_iterations_are_profiled(tmp_path: Path, policy: Path, num_iterations: int) -> None:
    run = tmp_path / "run"
    config = grpo_config(run, policy, merge(data(num_iterations=num_iterations), NOVAL))
    cli = main(["fit", "-c", str(config), "--profile", "1"])
    table = (run / "profile.txt").read_text()
    rule = next(line for line in table.splitlines() if set(line) <= {"-", " "})
    rows = table.split(f"{rule}\n")[2].splitlines()
    assert len(rows) == 10 and "Self CPU" in table, table
    shares = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0
    with gzip.open(run / "profile.json.gz", "rt") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert "aten::addmm" in names or "aten::mm" in names
    updates = sum(str(name).startswith("Optimizer.step#") for name in names)
    assert updates == cli.trainer.global_step // num_iterations  # of one iteration


@pytest.mark.parametrize(("value", "words"), [("0", "profile: 0"), ("few", "profile")])
def test_a_number_that_profiles_nothing_is_refused(tmp_path, policy, value, words) -> None:
    config = grpo_config(tmp_path / "run", policy, NOVAL)
    with pytest.raises(ValueError, match=words):
        main(["fit", "-c", str(config), "--profile", value])
