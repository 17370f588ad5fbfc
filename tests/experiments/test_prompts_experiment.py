"""The study of prompts on a tiny policy: its table, and that it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_sweep import ROOT, in_process, study_file

from experiments.compose import merge
from experiments.fingerprint import begin
from experiments.prompts.report import as_table, compare, read, report
from experiments.sweep import CONFIG, RESULT, read_sweep, run_sweep
from r1lit.files import held


def test_results_are_of_this_very_study_and_of_every_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    sweep = replace(read_sweep(study_file("prompts")), output=tmp_path, seeds=[0])
    for seed in (0, 5):
        point = sweep.point("base+zero-shot", seed)
        begin(point.folder, CONFIG, point.config)
        (point.folder / RESULT).write_text(f'{{"seed": {seed}}}')
    assert sweep.results() == [{"seed": 0}, {"seed": 5}]
    changed = replace(sweep, base=merge(sweep.base, {"model": {"init_args": {"x": 1}}}))
    assert changed.results() == []


@pytest.mark.slow
def test_it_runs_tells_and_goes_on(tmp_path, policy, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(study_file("prompts"))
    world = {"class_path": "r1lit.worlds.WorldChain", "init_args": {"split": "held_out"}}
    world["init_args"]["num_problems"] = 3
    small = {
        "model": {"init_args": {"policy": str(policy), "sampling": {"max_tokens": 4}}},
        "data": {"init_args": {"evaluation": {"num_samples": 2}, "test": [world]}},
    }
    prompts = ("zero-shot", "1-shot", "step-by-step")
    variants = {f"base+{p}": [*shipped.variants[f"base+{p}"], small] for p in prompts}
    sweep = replace(shipped, variants=variants, seeds=[0, 1], output=tmp_path / "out")
    launched: list[str] = []

    def launch(arguments: list[str], log: Path) -> int:
        launched.append(arguments[0])
        return in_process(arguments, log)

    with held(tmp_path / "out/base+1-shot/.seed-0.lock"):  # of another process, which makes it
        assert run_sweep(sweep, [0], launch) == [] and launched == ["test"] * 2
    assert "base+1-shot seed 0  left to another process" in capsys.readouterr().out
    assert run_sweep(sweep, [0], launch) == [] and len(launched) == 3
    # a kill between the last response and the result: no response is sampled again
    point = sweep.point("base+1-shot", 0)
    (point.folder / RESULT).unlink()
    responses = (point.folder / "responses.jsonl").read_text()
    assert point.state == "interrupted"
    assert run_sweep(sweep, [0, 1], launch) == [] and len(launched) == 7
    assert (point.folder / "responses.jsonl").read_text() == responses

    kept = read(SimpleNamespace(sweep=lambda: sweep))
    assert [(r["prompt"], r["seed"]) for r in kept] == [(p, s) for p in prompts for s in (0, 1)]
    assert all(len(r["shares"]) == 3 for r in kept), "by problem, to be paired again"
    table, figure = report(kept)
    rows = table.splitlines()
    assert table == as_table(compare(kept)) and len(figure.axes) == 1
    assert [row.split(" | ")[1:3] for row in rows[2:5]] == [[p, "2"] for p in prompts]
    assert rows[3].split(" | ")[4].startswith("+0.000")
    assert "Holm's correction is for 2 comparisons" in rows[-1]
