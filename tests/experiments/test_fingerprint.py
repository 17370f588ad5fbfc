"""Folders that know what they were made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.fingerprint import begin, is_of


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights/model"
    path.parent.mkdir()
    path.write_text("first")
    return path


def test_a_folder_is_of_its_config_and_of_what_that_names(tmp_path, weights):
    folder, config = tmp_path / "run", {"policy": str(weights.parent), "names": [{"lr": 0.1}]}
    assert not is_of(folder, "run.yaml", config)
    made = begin(folder, "run.yaml", config)
    (folder / "work").touch()
    assert made.exists() and is_of(folder, "run.yaml", config)
    begin(folder, "run.yaml", config)
    assert (folder / "work").exists()
    assert not is_of(folder, "run.yaml", {**config, "names": []})

    weights.write_text("second")
    assert not is_of(folder, "run.yaml", config)
    begin(folder, "run.yaml", config)
    assert is_of(folder, "run.yaml", config) and not (folder / "work").exists()
    weights.unlink()
    weights.parent.rmdir()
    assert is_of(folder, "run.yaml", config)


def test_a_file_of_the_working_folder_is_an_input_without_a_folder_in_its_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("a")
    config = {"data": {"path": "table.csv", "split": "train"}}
    begin(Path("run"), "c.yaml", config)
    assert is_of(Path("run"), "c.yaml", config)
    Path("table.csv").write_text("b")
    assert not is_of(Path("run"), "c.yaml", config)


def test_what_a_run_writes_is_no_input(tmp_path, weights, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs/one"
    for name in ("runs/cache", "runs/logs", "runs/one/policy"):
        (tmp_path / name).mkdir(parents=True)
    (folder / "policy").rmdir()
    config = {
        "cache": "runs/cache",
        "logger": {"save_dir": "runs/logs"},
        "own": ["runs/one/policy", str(folder), "runs", "./", "/"],
        "policy": str(weights),
    }
    begin(folder, "run.yaml", config)
    assert list(json.loads((folder / "inputs.json").read_text())) == [str(weights)]


def test_a_kill_on_the_way_is_begun_again_and_what_is_not_ours_is_left_alone(tmp_path, weights):
    folder, config = tmp_path / "run", {"policy": str(weights)}
    begin(folder, "run.yaml", config)
    (folder / "run.yaml").unlink()  # killed between the two
    weights.write_text("second")
    begin(folder, "run.yaml", config)
    assert is_of(folder, "run.yaml", config)

    (folder / "inputs.json").unlink()  # of a version without it: nobody knows what it was made from
    (folder / "report.json").touch()
    assert not is_of(folder, "run.yaml", config)
    begin(folder, "run.yaml", config)
    assert not (folder / "report.json").exists()

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"output: .*other holds something else"):
        begin(other, "run.yaml", config)
    assert (other / "thesis.tex").exists()
