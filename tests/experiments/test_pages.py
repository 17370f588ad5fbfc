"""A page shows what its committed results say: made of them alone, its tables come out the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import ROOT

from experiments import by_source, page
from experiments.distill_vs_rl.report import as_table as arms
from experiments.earned_length.report import report as earned_length
from experiments.late_onset.report import report as late_onset
from experiments.model_in_the_loop.report import report as model_in_the_loop
from experiments.points import read_sweep
from experiments.process_rewards.process_bench.report import as_table as process_bench
from experiments.report import write_report
from experiments.reward_models.report import as_table as reward_models
from experiments.rlhf.report import report as rlhf
from experiments.scaling.__main__ import report as scaling
from experiments.search.report import report as search
from experiments.stages_skipped.__main__ import report as stages_skipped
from experiments.what_rl_adds.report import report as what_rl_adds
from r1lit.files import Record, read_records

EXPERIMENTS = ROOT / "experiments"
TABLES: dict[str, Callable[[Sequence[Record]], object]] = {
    "distill_vs_rl": arms,
    "earned_length": earned_length,
    "language_reward/code": lambda results: by_source.report(results, "language reward"),
    "late_onset": late_onset,
    "model_in_the_loop": model_in_the_loop,
    "process_rewards/process_bench": process_bench,
    "reward_hacking": lambda results: by_source.report(results, "schedule"),
    "reward_models": reward_models,
    "rlhf": rlhf,
    "scaling": scaling,
    "search": search,
    "stages_skipped": stages_skipped,
    "what_rl_adds": what_rl_adds,
}
SWEEPS = [
    "aha_long",
    "algorithms",
    "language_reward",
    "objectives",
    "ppo_vs_grpo",
    "process_rewards/rl",
    "r1_zero",
    "third_language",
    "vllm",
]


@pytest.mark.parametrize("name", TABLES)
def test_the_page_of_a_study(name: str) -> None:
    made = TABLES[name](read_records(EXPERIMENTS / name / page.RAW))
    table = made[0] if isinstance(made, tuple) else made
    assert f"{table}\n" in (EXPERIMENTS / name / "README.md").read_text()


@pytest.mark.parametrize("name", SWEEPS)
def test_the_page_of_a_sweep(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    for file in ("README.md", page.RAW):
        shutil.copy(EXPERIMENTS / name / file, tmp_path)
    path = EXPERIMENTS / name / "sweep.yaml"
    write_report(path, replace(read_sweep(path), output=tmp_path / "runs"), folder=tmp_path)
    for file in ("README.md", page.RAW):
        assert (tmp_path / file).read_text() == (EXPERIMENTS / name / file).read_text()


def test_every_page_with_results_is_among_these() -> None:
    """But for two made before results had each problem's share, and three that keep less."""
    found = {str(path.parent.relative_to(EXPERIMENTS)) for path in EXPERIMENTS.rglob(page.RAW)}
    older, less = {"lora_ranks", "staleness"}, {"process_rewards", "prompts", "search/training"}
    assert found == {*TABLES, *SWEEPS, *older, *less}
