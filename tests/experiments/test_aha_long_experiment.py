"""A limit of tokens that grows late: where it grows, and what that changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tiny_sweep import ROOT

from experiments import page
from experiments.aha_long.jump import MARKS, RAW, as_table, count
from experiments.points import read_sweep
from r1lit.files import read_records
from r1lit.modules.rollouts import RolloutModule
from r1lit.rollout import Sampling

FOLDER = ROOT / "experiments" / "aha_long"


def test_a_limit_of_tokens_grows_once_and_late():
    sweep = read_sweep(FOLDER / "sweep.yaml")
    for variant, wanted in (("grows", [512] * 100 + [1280] * 30), ("stays", [512] * 130)):
        options = sweep.point(variant, 0).config["model"]["init_args"]
        module = SimpleNamespace(
            sampling=Sampling(**options["sampling"]),
            max_tokens_from=options["max_tokens_from"] or {},
        )
        limits = [RolloutModule.sampling_at(module, i).max_tokens for i in range(130)]
        assert limits == wanted


def test_the_committed_table_is_of_the_committed_results():
    readme = (FOLDER / "README.md").read_text()
    assert page.fill_in(readme, as_table(read_records(FOLDER / RAW)), MARKS) == readme


def evaluation(iteration: int, easy: float, hard: float) -> dict:
    levels = {"attempts 12-23": hard, "attempts 3-5": easy}
    return {"iteration": iteration, "pass_at_1": (easy + hard) / 2, "pass_at_1_by_kind": levels,
            "cons_at_16": 0.5, "response_length_tokens": 100 + iteration,
            "reflection_words_per_response": 2.0}  # fmt: skip


def test_before_is_the_last_evaluation_of_the_old_limit_and_after_the_mean_of_the_new_one(tmp_path):
    sweep = read_sweep(FOLDER / "sweep.yaml")
    results = []
    for variant, gain in (("grows", 0.3), ("stays", 0.1)):
        for seed in (0, 1):
            low = 0.4 + (0.02 * seed if variant == "grows" else 0.0)
            made = [evaluation(0, 0.2, 0.0), evaluation(90, 0.6, 0.3), evaluation(100, 0.7, 0.4),
                    evaluation(120, 0.9, low + gain),
                    evaluation(130, 0.9, low + gain + 0.1)]  # fmt: skip
            results.append({"variant": variant, "seed": seed, "evaluations": made,
                            "final": made[-1]})  # fmt: skip
    of = [(result, FOLDER) for result in results]
    finished = SimpleNamespace(finished=lambda: of, point=sweep.point)
    rows = as_table(count(finished)).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| pass@1", "| pass@1, attempts 3-5", "| pass@1, attempts 12-23", "| cons@k",
        "| tokens per response", "| reflection words per response",
    ]  # fmt: skip
    assert rows[4].startswith(
        "| pass@1, attempts 12-23 | 0.000 ± 0.000 | 0.400 ± 0.000 | 0.760 ± 0.010 | 0.550 ± 0.000"
        " | +0.210 (+0.083 to +0.337) | 0.03 |"
    )
    assert rows[6].startswith("| tokens per response | 100 ± 0 | 200 ± 0 | 225 ± 0 | 225 ± 0 | +0")
    one_seed = as_table([r for r in count(finished) if r["seed"] == 0]).splitlines()
    assert all(row.endswith("| – | – | – |") for row in one_seed[2:])
    with pytest.raises(ValueError, match="no point is finished"):
        count(replace(sweep, output=tmp_path))
