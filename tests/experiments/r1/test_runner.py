"""The runner's decisions, on steps that are real commands but take no time."""

from __future__ import annotations

import fcntl
import json
import time

import pytest
import yaml
from tiny_pipeline import copy, manifest, states, write

from experiments import runner
from experiments.pipeline import read_pipeline
from experiments.r1.__main__ import main
from experiments.runner import run_pipeline


@pytest.fixture
def chain(tmp_path):
    """a -> b -> c, and d apart from them."""
    (tmp_path / "in.json").write_text('{"x": 1}')
    (tmp_path / "other.json").write_text('{"y": 1}')
    steps = [
        copy("a", str(tmp_path / "in.json"), "{run}/a.json"),
        copy("b", "{run}/a.json", "{run}/b.json"),
        copy("c", "{run}/b.json", "{run}/c.json", scores={"x": "{run}/c.json:x"}),
        copy("d", str(tmp_path / "other.json"), "{run}/d.json"),
    ]
    return write(tmp_path / "pipeline.yaml", steps)


def run(path, *words):
    return main([str(path), *words])


def attempts(out):
    """The steps that a run started, from what it printed."""
    lines = [line for line in out.splitlines() if line.startswith("[")]
    return [line.split(" / ")[1].split(":")[0] for line in lines if ": running" in line]


def test_a_run_makes_every_step_once_and_says_what_each_read_wrote_cost_and_scored(
    chain, tmp_path, capsys
):
    assert run(chain) == 0
    assert attempts(capsys.readouterr().out) == ["a", "b", "c", "d"]
    assert json.loads((tmp_path / "run/c.json").read_text()) == {"x": 1}
    entries = manifest(tmp_path / "run")
    assert list(entries) == ["a", "b", "c", "d"]
    c = entries["c"]
    assert c["state"] == "finished" and c["started"] <= c["finished"]
    assert c["reads"] == {str(tmp_path / "run/b.json"): entries["b"]["writes"][c_read(c)]}
    assert list(c["writes"]) == [str(tmp_path / "run/c.json")]
    assert c["cost"]["attempts"] == 1 and c["cost"]["seconds"] >= 0
    assert c["scores"] == {"x": 1.0}
    assert list(c["needs"]) == ["b"]
    assert "json.tool" in c["command"] and "json.tool" in (tmp_path / "run/logs/c.log").read_text()

    before = (tmp_path / "run/manifest.json").read_bytes()
    assert run(chain) == 0
    out = capsys.readouterr().out
    assert attempts(out) == [] and out.count("unchanged") == 4
    assert (tmp_path / "run/manifest.json").read_bytes() == before


def c_read(entry):
    [path] = entry["reads"]
    return path


@pytest.mark.long
def test_a_changed_input_makes_it_and_what_depends_on_it_anew(chain, tmp_path, capsys):
    run(chain)
    (tmp_path / "in.json").write_text('{"x": 2}')
    capsys.readouterr()
    assert run(chain) == 0
    out = capsys.readouterr().out
    assert attempts(out) == ["a", "b", "c"]
    assert f"anew: {tmp_path / 'in.json'} has changed" in out
    assert f"anew: {tmp_path / 'run/a.json'} has changed" in out
    assert manifest(tmp_path / "run")["c"]["scores"] == {"x": 2.0}
    # an input that only looks another way comes out the same, and nobody behind it minds
    (tmp_path / "in.json").write_text('{ "x" :  2}')
    assert run(chain) == 0
    assert attempts(capsys.readouterr().out) == ["a"]


@pytest.mark.parametrize("damage", ["missing", "is not what it wrote"])
def test_an_output_that_is_gone_or_changed_is_made_anew(chain, tmp_path, capsys, damage):
    run(chain)
    path = tmp_path / "run/b.json"
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("{}")
    capsys.readouterr()
    assert run(chain) == 0
    out = capsys.readouterr().out
    assert attempts(out) == ["b"] and damage in out
    assert json.loads(path.read_text()) == {"x": 1}


def test_a_changed_configuration_makes_a_step_anew(chain, tmp_path, capsys):
    run(chain)
    chain.write_text(chain.read_text().replace("{run}/d.json", "{run}/e.json"))
    capsys.readouterr()
    assert run(chain) == 0
    out = capsys.readouterr().out
    assert attempts(out) == ["d"] and "its configuration has changed" in out
    assert (tmp_path / "run/e.json").exists()


def test_a_step_that_a_process_still_writes_is_left_as_it_is(chain, tmp_path, capsys, monkeypatch):
    run(chain)
    monkeypatch.setattr(runner, "ORPHAN_S", 0.0)
    chain.write_text(chain.read_text().replace("{run}/d.json", "{run}/e.json"))
    before = (tmp_path / "run/manifest.json").read_bytes()
    with (tmp_path / "run/.d.lock").open("a") as orphan:
        fcntl.flock(orphan, fcntl.LOCK_EX)
        assert run(chain) == 2
    assert "still works on it" in capsys.readouterr().err
    assert (tmp_path / "run/manifest.json").read_bytes() == before


@pytest.mark.long
def test_from_begins_anew_there_and_only_leaves_the_others(chain, tmp_path, capsys):
    run(chain)
    capsys.readouterr()
    assert run(chain, "--from", "Stage b") == 0
    assert attempts(capsys.readouterr().out) == ["b", "c", "d"]
    assert run(chain, "--from", "b", "--only", "b") == 0
    assert attempts(capsys.readouterr().out) == ["b"]
    (tmp_path / "in.json").write_text('{"x": 3}')
    (tmp_path / "other.json").write_text('{"y": 3}')
    assert run(chain, "--only", "d") == 0
    assert attempts(capsys.readouterr().out) == ["d"]
    assert run(chain, "--only", "nobody") == 2
    assert "no step or stage is called 'nobody'" in capsys.readouterr().err


def test_only_refuses_a_step_whose_inputs_were_never_made(chain, capsys):
    assert run(chain, "--only", "c") == 2
    assert "step c needs b, which is not finished" in capsys.readouterr().err


def test_a_failing_step_shows_its_last_lines_and_how_to_repeat_it(chain, tmp_path, capsys):
    (tmp_path / "in.json").write_text("not JSON")
    assert run(chain) == 1
    out = capsys.readouterr().out
    assert "Expecting value" in out  # json.tool's own message
    assert f"to repeat it: {manifest(tmp_path / 'run')['a']['command']}" in out
    assert states(tmp_path / "run") == {"a": "failed"}
    (tmp_path / "in.json").write_text('{"x": 5}')
    assert run(chain) == 0
    assert set(states(tmp_path / "run").values()) == {"finished"}


def test_a_mistyped_key_of_a_later_step_is_refused_before_the_first(chain, tmp_path, capsys):
    content = yaml.safe_load(chain.read_text())
    late = {"name": "late", "command": "fit", "config": ["configs/mini/r1_zero.yaml"]}
    content["steps"].append({**late, "set": {"model": {"init_args": {"max_grad_nrm": 1.0}}}})
    chain.write_text(yaml.safe_dump(content))
    assert run(chain) == 2
    error = capsys.readouterr().err
    assert f"{chain}: step late: " in error and "max_grad_nrm" in error
    assert not (tmp_path / "run").exists()
    content["steps"][-1]["set"] = {}
    chain.write_text(yaml.safe_dump(content))
    assert run(chain, "--only", "a", "b", "c", "d") == 0  # a step that is left out is not read


def test_a_step_that_does_not_write_what_it_should_has_failed(tmp_path, capsys):
    (tmp_path / "in.json").write_text("1")
    step = copy("a", str(tmp_path / "in.json"), "{run}/a.json")
    step["writes"].append("{run}/never.json")
    assert run(write(tmp_path / "pipeline.yaml", [step])) == 1
    assert "did not write" in capsys.readouterr().out
    assert states(tmp_path / "run") == {"a": "failed"}


def test_another_seed_has_a_folder_of_its_own(chain, tmp_path):
    assert run(chain, "--seed", "3") == 0
    assert (tmp_path / "run-seed-3/c.json").exists() and not (tmp_path / "run").exists()
    assert json.loads((tmp_path / "run-seed-3/manifest.json").read_text())["seed"] == 3


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(chain, tmp_path, capsys):
    assert run(chain, "--dry-run") == 0
    assert not (tmp_path / "run").exists()
    run(chain)
    (tmp_path / "run/b.json").unlink()
    capsys.readouterr()
    assert run(chain, "--dry-run") == 0
    a, b, c, d = capsys.readouterr().out.splitlines()
    assert a.endswith("finished") and d.endswith("finished")
    assert "anew" in b and "missing" in b
    assert "after b, if something else comes out" in c


def test_a_second_runner_is_refused(chain, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/.runner.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(chain) == 2
    assert "another runner is at work" in capsys.readouterr().err
    assert run(chain) == 0


def test_a_run_that_is_stopped_ends_its_step_and_says_interrupted(tmp_path, monkeypatch):
    step = {
        "name": "a",
        "module": "timeit",
        "arguments": ["-n", "1", "import time; time.sleep(60)"],
    }
    pipeline = read_pipeline(write(tmp_path / "pipeline.yaml", [step]))

    def stop(seconds):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.runner.time.sleep", stop)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(pipeline)
    assert time.monotonic() - began < 30
    assert states(tmp_path / "run") == {"a": "interrupted"}
