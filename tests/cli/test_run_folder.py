"""One key names the run folder, and no other way of naming one is ignored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from tiny import grpo_config, merge
from tiny_evaluation import evaluation_config

from r1lit.cli import main
from r1lit.cli.composition import as_mapping, compose
from r1lit.problems import Response
from r1lit.rewards import RewardFunction

CALLBACKS = ("ResponseTable", "CurveWriter", "IterationCheckpoint", "ExportHuggingFace")
FILES = {
    "checkpoints/last.ckpt",
    "config.yaml",
    "metrics.jsonl",
    "policy/model.safetensors",
    "responses.jsonl",
    "summary.json",
}


@pytest.fixture
def config(tmp_path: Path, policy: Path):
    """Write the YAML of 2 iterations that names no folder but in ``changes``."""

    def write(
        *changes: dict[str, Any], callbacks: tuple[str, ...] = CALLBACKS, draw: int = 0
    ) -> str:
        made = yaml.safe_load(grpo_config(tmp_path / "unused", policy).read_text())
        made["trainer"]["callbacks"] = [
            {"class_path": f"r1lit.callbacks.{name}"}
            for name in ("MajorityVoteEvaluation", *callbacks)
        ]
        for callback in made["trainer"]["callbacks"]:
            if callback["class_path"].endswith("CurveWriter"):
                callback["init_args"] = {"draw_every_n_iterations": draw}
        del made["trainer"]["default_root_dir"], made["trainer"]["logger"]
        made["data"]["init_args"]["num_iterations"] = 2
        for change in changes:
            made = merge(made, change)
        path = tmp_path / "named.yaml"
        path.write_text(yaml.safe_dump(made))
        return str(path)

    return write


def merged(*args: str) -> dict[str, Any]:
    return as_mapping(compose(args))


def everything(folder: Path) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}


def assert_whole(run: Path) -> None:
    files = everything(run)
    assert files >= FILES
    assert any(name.startswith("events.out") for name in files), files
    assert not (run.parent / "unused").exists()


@pytest.mark.long
def test_run_in_the_file(config, tmp_path):
    run = tmp_path / "runs" / "mine"
    main(["fit", "-c", config({"run": str(run)}, draw=10)])
    assert_whole(run)
    assert everything(run) >= {"curves.png", "curves.pdf"}
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved["run"] == str(run) == saved["trainer"]["default_root_dir"]


@pytest.mark.long
def test_a_trial_leaves_a_run_alone(config, tmp_path):
    run = tmp_path / "mine"
    file = config({"run": str(run)})
    main(["fit", "-c", file, "--trainer.fast_dev_run", "true", "--trainer.val_check_interval", "9"])
    assert not run.exists()
    main(["fit", "-c", file])
    before = {name: (run / name).read_bytes() for name in everything(run)}
    main(["fit", "-c", file, "--trainer.fast_dev_run", "true"])
    assert {name: (run / name).read_bytes() for name in everything(run)} == before


@pytest.mark.long
def test_run_on_the_command_line_moves_everything(config, tmp_path):
    file, run = config({"run": str(tmp_path / "other")}), tmp_path / "mine"
    main(["fit", "-c", file, "--run", str(run)])
    assert_whole(run)
    assert not (tmp_path / "other").exists()


def test_lightnings_name_of_it_is_as_good(config, tmp_path):
    run = str(tmp_path / "mine")
    named = merged("fit", "-c", config(), "--run", run)
    assert named["run"] == run == named["trainer"]["default_root_dir"]
    in_file = config({"trainer": {"default_root_dir": run}})
    assert merged("fit", "-c", in_file) == named
    other = config({"run": str(tmp_path / "other")})
    assert merged("fit", "-c", other, "--trainer.default_root_dir", run) == named


@pytest.mark.slow
def test_a_saved_configuration_runs_again_elsewhere(config, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    main(["fit", "-c", config({"run": str(first)})])
    before = everything(first)
    main(["fit", "-c", str(first / "config.yaml"), "--run", str(second)])
    assert_whole(second)
    assert everything(first) == before
    main(["validate", "-c", str(second / "config.yaml"),
          "--ckpt_path", str(second / "checkpoints" / "last.ckpt")])  # fmt: skip
    assert (second / "validate.json").is_file()


class ByRule(RewardFunction):
    """A user's reward whose defaults are objects that YAML has no words for."""

    rules: ClassVar[list[Any]] = []

    def __init__(
        self,
        rule: Any = lambda response: float(response.num_tokens > 3),
        others: Sequence[Any] = (1, object()),
        weight: float = 1.0,
    ) -> None:
        super().__init__(weight)
        self.rule = rule
        self.rules.append((rule, others))

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [self.rule(response) for response in responses]


@pytest.mark.long
def test_defaults_that_are_objects_are_left_out_of_the_configuration(config, tmp_path, recwarn):
    first, second = tmp_path / "first", tmp_path / "second"
    own = f"{__name__}.ByRule"
    rewards = [{"class_path": own, "init_args": {"weight": 0.5}}]
    file = config({"model": {"init_args": {"rewards": rewards}}}, callbacks=CALLBACKS[1:])
    main(["fit", "-c", file, "--run", str(first)])
    saved = yaml.safe_load((first / "config.yaml").read_text())
    assert saved["model"]["init_args"]["rewards"] == rewards
    main(["fit", "-c", str(first / "config.yaml"), "--run", str(second)])
    assert [len(others) for _, others in ByRule.rules] == [2, 2]
    assert all(callable(rule) for rule, _ in ByRule.rules)
    assert not [str(w.message) for w in recwarn if "serialize" in str(w.message)]


@pytest.mark.slow
def test_a_killed_run_is_found_by_its_folder_and_goes_on(config, tmp_path):
    file = config({"data": {"init_args": {"num_iterations": 4}}})
    whole, part = tmp_path / "whole", tmp_path / "part"
    main(["fit", "-c", file, "--run", str(whole)])
    main(["fit", "-c", file, "--run", str(part), "--trainer.max_steps", "4"])
    assert len((part / "metrics.jsonl").read_text().splitlines()) == 2
    main(["fit", "-c", file, "--run", str(part), "--ckpt_path", "last"])
    for name in ("responses.jsonl", "policy/model.safetensors"):
        assert (part / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.long
def test_loggers_that_name_no_folder_write_to_the_run_folder(config, tmp_path):
    run = tmp_path / "mine"
    loggers = [
        {"class_path": "lightning.pytorch.loggers.CSVLogger"},
        {"class_path": "TensorBoardLogger"},
    ]
    main(["fit", "-c", config({"run": str(run), "trainer": {"logger": loggers}})])
    assert (run / "metrics.csv").is_file()
    assert_whole(run)


@pytest.mark.long
def test_what_names_its_own_folder_keeps_it(config, tmp_path):
    run, own = tmp_path / "mine", tmp_path / "own"
    table = {"class_path": "r1lit.callbacks.ResponseTable", "init_args": {"dirpath": str(own)}}
    trainer = {"logger": False, "enable_checkpointing": False, "callbacks": [table]}
    main(["fit", "-c", config({"run": str(run), "trainer": trainer})])
    assert everything(own) == {"responses.jsonl"}
    assert everything(run) == {"config.yaml"}


def test_two_folders_in_files_are_refused(config, tmp_path):
    both = {"run": "runs/a", "trainer": {"default_root_dir": "runs/b"}}
    with pytest.raises(
        ValueError, match=r"^run: runs/a and trainer.default_root_dir: runs/b differ"
    ):
        main(["fit", "-c", config(both)])


@pytest.mark.parametrize("name", ["ResponseTable", "CurveWriter", "ExportHuggingFace"])
def test_a_run_without_a_folder_is_refused(config, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    file = config(callbacks=(name,))
    before = set(os.listdir())
    with pytest.raises(ValueError, match=rf"^run: null, but {name} writes to the run folder; name"):
        main(["fit", "-c", file])
    assert set(os.listdir()) - before <= {"lightning_logs"}  # Lightning's own, made before


@pytest.mark.long
def test_a_reference_that_is_not_kept_is_not_refreshed(config, tmp_path):
    """A sweep over beta may hold 0."""
    file = config({"run": str(tmp_path / "mine")})
    with pytest.warns(UserWarning, match="ReferenceRefresh does nothing: objective.beta: 0"):
        main(["fit", "-c", file, "--trainer.callbacks+=r1lit.callbacks.ReferenceRefresh",
              "--trainer.callbacks.every_n_iterations=1"])  # fmt: skip
    assert_whole(tmp_path / "mine")


@pytest.fixture
def evaluation(tmp_path: Path, policy: Path):
    """Return the YAML of an evaluation whose folder is ``own`` and that of one without a folder."""
    given = evaluation_config(tmp_path, policy, {"model": {"init_args": {"dirpath": "own"}}})
    without = yaml.safe_load(given.read_text())
    del without["model"]["init_args"]["dirpath"]
    path = tmp_path / "without.yaml"
    path.write_text(yaml.safe_dump(without))
    return str(given), str(path)


@pytest.mark.long
@pytest.mark.parametrize("named", ["command line", "later file"])
def test_run_names_the_folder_of_an_evaluation(evaluation, tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "mine"
    (tmp_path / "run.yaml").write_text(f"run: {run}\n")
    how = ["-c", str(tmp_path / "run.yaml")] if named == "later file" else ["--run", str(run)]
    main(["test", "-c", evaluation[0], *how])
    assert {"report.json", "report.md", "responses.jsonl", "settings.json"} <= everything(run)
    assert not (tmp_path / "own").exists()


def test_every_name_of_the_folder_of_an_evaluation_is_the_same(evaluation, tmp_path):
    own, without = evaluation
    (tmp_path / "run.yaml").write_text("run: mine\n")
    file = ["-c", str(tmp_path / "run.yaml")]
    expected = merged("test", "-c", without, "--run", "mine")
    assert merged("test", "-c", own, "--run", "mine") == expected
    assert merged("test", "-c", own, "--trainer.default_root_dir", "mine") == expected
    assert merged("test", *file, "-c", without) == expected
    assert merged("test", "-c", own, *file) == expected


@pytest.mark.long
def test_a_named_dirpath_of_an_evaluation_is_kept(evaluation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["test", "-c", evaluation[1], "--run", "mine", "--model.dirpath", "own"])
    assert (tmp_path / "own" / "report.json").is_file()


def test_an_evaluation_without_a_folder_is_refused(evaluation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^run: null, but an evaluation writes to the run folder"):
        main(["test", "-c", evaluation[1]])
