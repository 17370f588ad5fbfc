"""Pipeline files: how one is read, and what is said of a wrong one."""

from __future__ import annotations

import pytest
from tiny_pipeline import copy, write

from experiments.pipeline import read_pipeline
from experiments.r1.__main__ import main


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"modul": "x"}, "unknown key 'modul'"),
        ({"command": "train", "module": None}, "'train' is not one of fit"),
        ({"command": "fit"}, "one of the two"),
        ({"name": "a/b"}, "letters, digits"),
        ({"needs": ["z"]}, "no earlier step 'z'"),
        ({"reads": ["{run}/nobody.json"]}, "no earlier step writes"),
        ({"config": ["no.yaml"]}, "go with command"),
        ({"command": "fit", "module": None, "config": ["no.yaml"]}, "there is no file 'no.yaml'"),
        ({"arguments": [{"a": 1}]}, "arguments: [{'a': 1}] is not a list of texts"),
        ({"arguments": None}, "arguments: None is not a list of texts"),
        ({"reads": None}, "reads: None is not a list of texts"),
        ({"reads": [3]}, "reads: [3] is not a list of texts"),
        ({"needs": "first"}, "needs: 'first' is not a list of texts"),
        ({"writes": "runs/x/a"}, "writes: 'runs/x/a' is not a list of texts"),
        ({"scores": ["a"]}, "scores: ['a'] is not a mapping"),
        ({"folder": 3}, "folder: 3 is not a path"),
        ({"module": 3}, "module: 3 is not the name of a module"),
        ({"name": ".."}, "name: '..' cannot name a folder"),
        ({"name": None}, "name: None cannot name a folder"),
        ({"command": "fit", "module": None, "set": [1]}, "set: [1] is not a mapping"),
        ({"writes": ["{run}/first.json"]}, "is written by step first too"),
        ({"name": "first"}, "an earlier step has it too"),
    ],
)
def test_a_wrong_pipeline_file_is_an_error_that_names_the_step_and_key(
    tmp_path, change, says, capsys
):
    (tmp_path / "in.json").write_text("1")
    first = copy("first", str(tmp_path / "in.json"), "{run}/first.json")
    second = {**copy("second", "{run}/first.json", "{run}/second.json"), **change}
    path = write(tmp_path / "pipeline.yaml", [first, second])
    assert main([str(path)]) == 2
    assert says in capsys.readouterr().err


STEP = "steps: [{name: a, command: fit, config: [config.yaml]}]"


@pytest.mark.parametrize(
    ("pipeline", "config", "says"),
    [
        ("run: [", "", "pipeline.yaml is not YAML"),
        ("- run", "", r"pipeline.yaml: \['run'\] is not a mapping"),
        ("", "", "run: None is not a path"),
        (f"run: 3\n{STEP}", "", "run: 3 is not a path"),
        ("run: runs/x\nsteps: {a: 1}", "", "steps: .* is not a list"),
        ("run: runs/x\nsteps: [a]", "", "steps: 'a' is not a mapping"),
        (f"run: runs/x\nmoves: {{a: 1}}\n{STEP}", "", "moves: .* is not a mapping from folder"),
        (f"run: runs/x\nmoves: [a]\n{STEP}", "", r"moves: \['a'\] is not a mapping"),
        (f"run: runs/x\n{STEP}", "- 1", r"step a: config: config.yaml: \[1\] is not a mapping"),
        (f"run: runs/x\n{STEP}", "a: [", "step a: config: config.yaml is not YAML"),
    ],
)
def test_a_file_of_another_shape_is_an_error_that_names_the_key(
    tmp_path, monkeypatch, pipeline, config, says
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "pipeline.yaml").write_text(pipeline)
    with pytest.raises(ValueError, match=says):
        read_pipeline(tmp_path / "pipeline.yaml")


def test_configs_are_filled_in_moved_and_seeded(tmp_path):
    config = tmp_path / "a.yaml"
    config.write_text(
        "model: {init_args: {policy: runs/x/base, dirpath: '{run}/eval'}}\n"
        "trainer:\n  default_root_dir: runs/x/zero\n"
        "  logger: {init_args: {save_dir: runs/x, name: zero}}\n"
    )
    path = tmp_path / "pipeline.yaml"
    step = {
        "name": "zero",
        "command": "fit",
        "config": [str(config)],
        "set": {"trainer": {"max_epochs": 2}},
        "arguments": ["--model.policy=runs/x/base", "--name={seed}", "runs/xy"],
        "writes": ["runs/x/zero/policy"],
    }
    write(path, [step], run="runs/x")
    [made] = read_pipeline(path, seed=2).steps
    first, last = made.configs
    assert first["model"]["init_args"] == {
        "policy": "runs/x-seed-2/base",
        "dirpath": "runs/x-seed-2/eval",
    }
    assert first["trainer"]["logger"]["init_args"] == {"save_dir": "runs/x-seed-2", "name": "zero"}
    assert last == {"seed_everything": 2, "trainer": {"max_epochs": 2}}
    assert made.arguments == ["--model.policy=runs/x-seed-2/base", "--name=2", "runs/xy"]
    assert str(made.folder) == "runs/x-seed-2/zero"
    [same] = read_pipeline(path).steps
    assert same.digest != made.digest
    config.write_text(config.read_text() + "# a comment changes nothing\n")
    assert read_pipeline(path, seed=2).steps[0].digest == made.digest
