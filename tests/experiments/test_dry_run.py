"""A dry run lists a sweep's points and reads their configs as a run would."""

from __future__ import annotations

import yaml
from tiny_sweep import ROOT, variant

from experiments import sweep as sweep_module
from experiments.dry_run import read_config
from experiments.points import read_sweep


def test_a_dry_run_reads_every_config_and_makes_nothing(sweep_file, tmp_path, capsys):
    path = sweep_file()
    assert sweep_module.main([str(path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["new"] * 4
    assert lines[-1].endswith("out/dr/seed-1") and not (tmp_path / "out").exists()
    mistyped = {"objective": {"grpo": {}, "dr": variant("DrGRPO", epsilom=0.3)}}
    assert sweep_module.main([str(sweep_file(grid=mistyped)), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "dr: model.objective.epsilom: DrGRPO has no such key; did you mean epsilon?" in said


def test_every_point_of_every_shipped_sweep_is_a_valid_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    files = sorted((ROOT / "experiments").rglob("*.yaml"))
    paths = [path for path in files if "grid" in yaml.safe_load(path.read_text())]
    assert {path.name for path in paths} >= {"sweep.yaml", "doses.yaml", "pages.yaml"}
    for path in paths:
        sweep = read_sweep(path)
        for point in sweep.points(sweep.seeds[:1]):
            printed = read_config(point)
            assert printed["trainer"]["default_root_dir"] == str(point.folder)
            init_args = printed["model"]["init_args"]
            if init_args.get("objective", {}).get("class_path", "").endswith("DrGRPO"):
                budget = init_args["objective"]["init_args"]["max_tokens"]
                later = (init_args.get("max_tokens_from") or {}).values()
                assert budget >= max([init_args["sampling"]["max_tokens"], *later])
