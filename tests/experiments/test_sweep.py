"""The sweep really runs its points through the command line's main, once each."""

from __future__ import annotations

import json
import re
import threading
import time
import traceback

import pytest
import yaml
from tiny_sweep import ROOT, variant

from experiments.__main__ import main
from experiments.compose import merge, move_run
from experiments.fingerprint import begin
from experiments.launch import claimed, in_subprocess
from experiments.sweep import read_sweep, run_point, run_sweep, score_of
from r1lit import cli
from r1lit.files import read_records
from r1lit.modules import GRPOModule
from r1lit.objectives import GRPO


class InProcess:
    """Launches points in this process and remembers them."""

    def __init__(self):
        self.calls = []

    def __call__(self, arguments, log):
        self.calls.append(arguments)
        try:
            cli.main(arguments)
        except (RuntimeError, ValueError):
            log.write_text(traceback.format_exc())
            return 1
        return 0

    def folders(self):
        return ["/".join(call[2].split("/")[-3:-1]) for call in self.calls]


def files(folder):
    """Every file but the event logs, with its time and content."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_grid_times_seeds_runs_once_and_again_only_where_the_config_changed(sweep_file, tmp_path):
    launch = InProcess()
    assert run_sweep(read_sweep(sweep_file()), launch=launch) == []
    assert launch.folders() == ["grpo/seed-0", "dr/seed-0", "grpo/seed-1", "dr/seed-1"]
    results = read_records(tmp_path / "out/results.jsonl")
    assert [(r["variant"], r["seed"]) for r in results] == [
        ("grpo", 0),
        ("grpo", 1),
        ("dr", 0),
        ("dr", 1),
    ]
    for result in results:
        assert [e["iteration"] for e in result["evaluations"]] == [0, 1, 2]
        assert result["final"] == result["evaluations"][-1]
        assert result["seconds"] == result["final"]["seconds"] > 0
        folder = tmp_path / "out" / result["variant"] / f"seed-{result['seed']}"
        assert len(read_records(folder / "metrics.jsonl")) == 2
        # everything that a run writes is in its folder, the logger's part too
        for name in ("config.yaml", "responses.jsonl", "checkpoints/last.ckpt", "policy"):
            assert (folder / name).exists(), name
        assert list(folder.glob("events.out.tfevents*"))
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert config["seed_everything"] == result["seed"]

    # again: nothing runs, no file changes
    before = files(tmp_path / "out")
    again = InProcess()
    assert run_sweep(read_sweep(sweep_file()), launch=again) == []
    assert again.calls == []
    assert files(tmp_path / "out") == before

    # one variant's config changes: only its points run, afresh, under the one seed asked for
    changed = {"objective": {"grpo": variant("GRPO"), "dr": variant("DrGRPO", max_tokens=9)}}
    last = InProcess()
    assert run_sweep(read_sweep(sweep_file(grid=changed)), seeds=[0], launch=last) == []
    assert last.folders() == ["dr/seed-0"]
    assert "--ckpt_path" not in last.calls[0]
    new = read_records(tmp_path / "out/results.jsonl")
    assert new[:2] == results[:2]
    assert [(r["variant"], r["seed"]) for r in new[2:]] == [("dr", 0)]  # dr 1 is out of date


@pytest.mark.slow
def test_an_interrupted_point_resumes_and_a_failed_one_stops_nothing(
    sweep_file, tmp_path, monkeypatch
):
    step = GRPOModule.training_step

    def killed(module, batch, batch_idx):
        if isinstance(module.objective, GRPO) and batch.iteration == 1:
            raise RuntimeError("killed")
        return step(module, batch, batch_idx)

    sweep = read_sweep(sweep_file(seeds=[0]))
    with monkeypatch.context() as patch:
        patch.setattr(GRPOModule, "training_step", killed)
        failed = run_sweep(sweep, launch=InProcess())
    assert [(p.variant, p.seed, p.state) for p in failed] == [("grpo", 0, "interrupted")]
    assert [r["variant"] for r in read_records(tmp_path / "out/results.jsonl")] == ["dr"]

    launch = InProcess()
    assert run_sweep(sweep, launch=launch) == []
    assert launch.folders() == ["grpo/seed-0"]
    assert launch.calls[0][-2:] == ["--ckpt_path", "last"]
    [grpo, _] = read_records(tmp_path / "out/results.jsonl")
    assert [e["iteration"] for e in grpo["evaluations"]] == [0, 1, 2]
    iterations = read_records(tmp_path / "out/grpo/seed-0/metrics.jsonl")
    assert [line["iteration"] for line in iterations] == [0, 1]


@pytest.mark.slow
def test_the_sweep_ends_with_its_tables_its_figure_and_its_failures(sweep_file, tmp_path, capsys):
    grid = {
        "objective": {
            "grpo": variant("GRPO"),
            "dr": variant("DrGRPO", max_tokens=8),
            "bad": {"model": {"init_args": {"policy": {"path": "no/such/policy"}}}},
        }
    }
    path = sweep_file(seeds=[0], grid=grid)
    assert main([str(path)], launch=InProcess()) == 1
    readme = (tmp_path / "out/README.md").read_text()
    assert "2 of 3 runs finished" in readme and "python -m experiments /" in readme
    for name in ("| grpo | 1 |", "| dr | 1 |", "| less grpo |", "| bad | 0 | `ValueError: "):
        assert name in readme, name
    assert "no/such/policy" in readme.split("| bad | 0 |")[1]
    assert (tmp_path / "out/curves.png").read_bytes().startswith(b"\x89PNG")
    assert "no/such/policy" in capsys.readouterr().out
    assert not (tmp_path / "README.md").exists() and not (tmp_path / "curves.png").exists()

    # mended, the failure is gone; nothing else is made again
    launch = InProcess()
    mended = {"objective": {**grid["objective"], "bad": variant("DAPO")}}
    assert main([str(sweep_file(seeds=[0], grid=mended))], launch=launch) == 0
    assert launch.folders() == ["bad/seed-0"]
    readme = (tmp_path / "out/README.md").read_text()
    assert "3 of 3 runs finished" in readme and "failed" not in readme
    assert "| bad | 1 | +0.000 | +0.000 to +0.000 | 1 | 0, 0 of 2 |" in readme  # none is ever right


def test_other_folders_beside_the_points_are_left_alone(sweep_file):
    sweep = read_sweep(sweep_file())
    for name in ("seed-0", "seed-0.old", "seed-x", "notes"):
        (sweep.output / "grpo" / name).mkdir(parents=True)
    assert [(point.variant, point.seed) for point in sweep.made()] == [("grpo", 0)]


@pytest.mark.slow
def test_two_processes_share_the_points(sweep_file):
    sweep = read_sweep(sweep_file(seeds=[0]))
    launch = InProcess()
    with claimed(sweep.point("grpo", 0).folder) as free:  # as another process would
        assert free
        assert run_sweep(sweep, launch=launch) == []
    assert launch.folders() == ["dr/seed-0"]

    (sweep.point("dr", 0).folder / "result.json").unlink()
    launch = InProcess()

    def meanwhile(arguments, log):
        run_point(sweep.point("dr", 0), InProcess())
        return launch(arguments, log)

    assert run_sweep(sweep, launch=meanwhile) == []
    assert launch.folders() == ["grpo/seed-0"]
    assert len(sweep.results()) == 2


@pytest.mark.slow
def test_a_sweep_waits_for_another_process_and_makes_what_that_left_unfinished(sweep_file, capsys):
    sweep = read_sweep(sweep_file(seeds=[0]))
    launch = InProcess()
    holds = threading.Event()

    def other():
        with claimed(sweep.point("grpo", 0).folder):
            holds.set()
            time.sleep(1.0)

    thread = threading.Thread(target=other)
    thread.start()
    holds.wait()
    assert run_sweep(sweep, launch=launch, wait=True) == []
    thread.join()
    assert "waiting for another process to make grpo seed 0" in capsys.readouterr().out
    assert launch.folders() == ["dr/seed-0", "grpo/seed-0"]
    assert len(sweep.results()) == 2


@pytest.mark.slow
def test_a_subprocess_calls_main_and_keeps_its_output(sweep_file, tmp_path):
    log = tmp_path / "log.txt"
    assert in_subprocess(["fit", "--no_such_option", "1"], log) != 0
    assert "no_such_option" in log.read_text()


def test_an_interrupted_point_of_another_config_starts_afresh(sweep_file):
    point = read_sweep(sweep_file()).point("grpo", 0)
    begin(point.folder, "point.yaml", point.config)
    checkpoint = point.folder / "checkpoints/last.ckpt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    assert point.state == "interrupted"
    (point.folder / "point.yaml").write_text("another: config\n")
    assert point.state == "new"
    calls = []
    assert run_point(point, lambda arguments, log: calls.append(arguments) or 1) is None
    assert calls == [["fit", "-c", str(point.folder / "point.yaml")]]
    assert not checkpoint.exists()


def test_a_point_is_made_afresh_when_what_its_config_names_holds_something_else(
    sweep_file, tmp_path
):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model").write_text("first")
    named = {"objective": {"grpo": {"model": {"init_args": {"policy": f"{weights}"}}}}}
    point = read_sweep(sweep_file(grid=named)).point("grpo", 0)

    def launch(arguments, log):
        (point.folder / "checkpoints").mkdir()
        (point.folder / "checkpoints/last.ckpt").touch()
        evaluations = [{"pass_at_1": 0.5, "seconds": 1.0}]
        (point.folder / "summary.json").write_text(json.dumps(evaluations))
        return 0

    assert run_point(point, launch) is not None and point.state == "finished"
    recorded = json.loads((point.folder / "inputs.json").read_text())
    assert str(weights) in recorded and not any(str(point.folder) in name for name in recorded)
    (point.folder / "result.json").unlink()
    assert point.state == "interrupted"
    (weights / "model").write_text("second")
    assert point.state == "new"
    assert run_point(point, launch) is not None and point.state == "finished"
    (weights / "model").write_text("third")
    assert point.result() is None and point.state == "new"
    (weights / "model").unlink()
    weights.rmdir()
    assert point.state == "finished"  # results are kept where their inputs are gone


def test_axes_multiply(sweep_file):
    grid = {
        "objective": {"grpo": variant("GRPO"), "dr": variant("DAPO", epsilon_low=0.1)},
        "clip": {"tight": {"model": {"init_args": {"max_grad_norm": 0.1}}}, "loose": None},
    }
    sweep = read_sweep(sweep_file(grid=grid))
    assert list(sweep.variants) == ["grpo+tight", "grpo+loose", "dr+tight", "dr+loose"]
    assert list(read_sweep(sweep_file(grid={"rank": {1: None, 16: {}}})).variants) == ["1", "16"]
    init_args = sweep.point("dr+tight", 1).config["model"]["init_args"]
    assert init_args["max_grad_norm"] == 0.1
    # another class_path brings its own arguments only
    assert init_args["objective"] == {
        "class_path": "r1lit.objectives.DAPO",
        "init_args": {"epsilon_low": 0.1},
    }
    assert len({yaml.safe_dump(point.config) for point in sweep.points()}) == 8
    only = {**grid, "clip": {"tight": {"only": {"objective": ["dr"]}}, "loose": None}}
    sweep = read_sweep(sweep_file(grid=only))
    assert list(sweep.variants) == ["grpo+loose", "dr+tight", "dr+loose"]
    assert "only" not in sweep.point("dr+tight", 0).config


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sead": [0]}, "unknown key 'sead'"),
        ({"grid": {}}, "grid: {} is not a mapping"),
        ({"grid": {"objective": {}}}, "grid.objective: {} is not a mapping"),
        ({"grid": {"objective": {"a/b": {}}}}, "'a/b' cannot name a folder"),
        ({"seeds": []}, "seeds: [] is not a list"),
        ({"seeds": ["0"]}, "seeds: "),
        ({"base": ["no/such.yaml"]}, "base: config: no/such.yaml cannot be read"),
        ({"command": "predict"}, "command: 'predict' is not one of fit, test"),
        ({"grid": {"a": {"b": {"only": 1}}}}, "grid.a.b.only: 1 is not a mapping"),
        ({"grid": {"a": {"b": {"only": {"a": ["c"]}}}}}, "only.a: ['c'] is not a list of b"),
        ({"grid": {"a": {"b": {"base": "x"}}}}, "b: base: 'x' is not a list of files"),
        ({"base": "configs/sft.yaml"}, "base: 'configs/sft.yaml' is not a list"),
        ({"grid": ["grpo"]}, r"grid: ['grpo'] is not a mapping"),
        ({"grid": {"lr": [1, 2]}}, "grid.lr: [1, 2] is not a mapping"),
        ({"grid": {"lr": {"low": "x"}}}, "grid.lr.low: 'x' is not a mapping"),
        ({"grid": {"lr": {"low": [1]}}}, "grid.lr.low: [1] is not a mapping"),
        ({"grid": {"lr": {"..": {}}}}, "grid.lr: '..' cannot name a folder"),
        ({"grid": {"lr": {1: {}, "1": {}}}}, "grid.lr: '1' is there as a number and as a text"),
        ({"grid": {"a": {"b": {"data": {"init_args": [1]}}}}}, "b: data.init_args: [1] is not"),
        ({"grid": {"a": {"b": {"run": 3}}}}, "run: the base must name its run folder"),
        ({"grid": {"a": {"b": {"trainer": 3}}}}, "trainer: 3 is not a mapping"),
        ({"grid": {"a": {"b": {"trainer": {"callbacks": [{}]}}}}}, "trainer.callbacks: {} is not"),
        ({"grid": {"a": {"b": {"trainer": {"callbacks": "X"}}}}}, "trainer.callbacks: 'X' is not"),
        ({"seeds": 3}, "seeds: 3 is not a list"),
        (
            {"grid": {"held out": {"nothing": {"data": {"init_args": {"validation": None}}}}}},
            "nothing: data.validation and data.validation_documents are empty",
        ),
        ({"output": ["runs"]}, r"output: ['runs'] is not a path"),
    ],
)
def test_a_wrong_sweep_file_is_an_error_that_names_the_key(sweep_file, changes, says, capsys):
    path = sweep_file(**changes)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_sweep(path)
    assert main([str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_base_by_name_brings_its_policy(sweep_file):
    sweep = read_sweep(sweep_file(base=["r1lit:mini/r1_zero.yaml"]))
    assert sweep.base["model"]["init_args"]["policy"] == str(ROOT / "models/mini")


def test_moving_a_run_moves_every_path_and_the_logger():
    keeper = {"class_path": "r1lit.callbacks.CurveWriter", "init_args": {"dirpath": "runs/aha"}}
    config = {
        "model": {"init_args": {"policy": "runs/aha-base/policy"}},
        "trainer": {
            "default_root_dir": "runs/aha",
            "logger": {"init_args": {"save_dir": "runs", "name": "aha", "version": ""}},
            "callbacks": [keeper, {"class_path": "X", "init_args": {"dirpath": "runs/aha/x"}}],
        },
    }
    moved = move_run(config, ROOT / "new")
    text = json.dumps(moved)
    assert moved["model"] == config["model"]  # a folder whose name only starts alike stays
    assert moved["trainer"]["logger"]["init_args"] == {
        "save_dir": str(ROOT),
        "name": "new",
        "version": "",
    }
    assert '"runs/aha"' not in text and text.count(str(ROOT / "new")) == 3
    with pytest.raises(ValueError, match="run: the base must name its run folder"):
        move_run({"trainer": {}}, ROOT / "new")
    for named in ({"run": "runs/aha"}, {"trainer": {"default_root_dir": "runs/aha"}}):
        with pytest.raises(ValueError, match="CurveWriter"):
            move_run(named, ROOT / "new")


def test_a_run_named_by_one_key_is_moved_by_it():
    keeper = {"class_path": "r1lit.callbacks.CurveWriter"}
    config = {"run": "runs/aha", "trainer": {"callbacks": [keeper]}}
    assert move_run(config, ROOT / "new") == {**config, "run": str(ROOT / "new")}


def test_merging_changes_neither_side():
    base = {"a": {"x": [1]}, "b": {"class_path": "A"}}
    fragment = {"a": {"x+": [2]}}
    assert merge(base, fragment) == {"a": {"x": [1, 2]}, "b": {"class_path": "A"}}
    assert (base, fragment) == ({"a": {"x": [1]}, "b": {"class_path": "A"}}, {"a": {"x+": [2]}})


@pytest.mark.long
def test_a_dry_run_reads_every_config_and_makes_nothing(sweep_file, tmp_path, capsys):
    path = sweep_file()
    assert main([str(path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["new"] * 4
    assert lines[-1].endswith("out/dr/seed-1") and not (tmp_path / "out").exists()
    mistyped = {"objective": {"grpo": {}, "dr": variant("DrGRPO", epsilom=0.3)}}
    assert main([str(sweep_file(grid=mistyped)), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "dr: model.objective.epsilom: DrGRPO has no such key; did you mean epsilon?" in said


@pytest.mark.long
def test_every_variant_is_read_before_the_first_is_trained(sweep_file, tmp_path, capsys):
    mistyped = {"objective": {"grpo": {}, "dr": variant("DrGRPO", epsilom=0.3)}}
    path, launch = sweep_file(grid=mistyped), InProcess()
    assert main([str(path)], launch=launch) == 2
    assert "dr: model.objective.epsilom: DrGRPO has no such key" in capsys.readouterr().err
    assert launch.calls == [] and not (tmp_path / "out").exists()


def test_a_score_is_of_what_the_run_measured():
    assert score_of({"pass_at_1": None, "reward_model": {"accuracy": 0.6}}) == ("accuracy", 0.6)
    assert score_of({"pass_at_1": None}) is None
