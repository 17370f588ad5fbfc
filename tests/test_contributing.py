"""Every worked example of CONTRIBUTING.md is written to a file and trains through the CLI."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny import ROOT, data, grpo_config, merge

from experiments.__main__ import main as experiments
from r1lit.cli import main
from r1lit.evaluation.suites import load_suite

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = {
    title: dict(re.findall(r"^```(python|yaml)\n(.*?)^```", body, re.M | re.S))
    for title, body in re.findall(r"^## A (?:new )?(.*?)\n(.*?)(?=^## )", PAGE, re.M | re.S)
}
CRITIC = "step with a model of its own: a critic"


def test_the_page_has_the_examples_it_promises() -> None:
    wanted = {
        "objective",
        "advantage",
        "reward",
        "verifier",
        "data source",
        "engine",
        "environment",
    }
    wanted |= {"step of an iteration", CRITIC}
    assert wanted <= SECTIONS.keys()
    assert all(set(blocks) == {"python", "yaml"} for blocks in SECTIONS.values())


@pytest.mark.long
@pytest.mark.parametrize("title", SECTIONS)
def test_an_example_trains(
    title: str, tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for blocks in SECTIONS.values():  # one may use another's class
        name = re.match(r"# (\w+)\.py\n", blocks["python"])
        assert name, "an example names its file in its first line"
        (tmp_path / f"{name[1]}.py").write_text(blocks["python"])
    monkeypatch.syspath_prepend(str(tmp_path))
    config = grpo_config(tmp_path / "run", policy, merge(data(num_iterations=2), {}))
    change = tmp_path / "change.yaml"
    change.write_text(SECTIONS[title]["yaml"])
    main(["fit", "-c", str(config), "-c", str(change), f"--model.init_args.policy={policy}"])
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [0, 1]
    if title == "engine":
        assert json.loads(lines[0])["train/mismatch/max_abs"] < 1e-3
    if title == "environment":
        assert json.loads(lines[0])["train/environment/turns"] >= 1
    if title == "step of an iteration":
        assert 0 <= json.loads(lines[0])["train/share_copies"] < 1
    if title == CRITIC:
        assert json.loads(lines[0])["train/value_loss"] >= 0
    if title == "reward":
        assert json.loads(lines[0])["train/reward/brevity"] >= 0


def test_the_suite_reads_its_problems(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(# colours\.yaml\n.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "colours.yaml").write_text(block)
    row = {"question": "Which colour is the sky?", "answer": "blue"}
    (tmp_path / "colours.jsonl").write_text(json.dumps(row) + "\n")
    suite = load_suite(str(tmp_path / "colours.yaml"))
    (problem,) = suite.read(path=str(tmp_path / "colours.jsonl"))
    assert (problem.question, problem.answer, problem.verifier) == (*row.values(), "exact")
    assert (suite.name, suite.num_samples) == ("colours", 4)


def test_a_suite_takes_a_score_of_ones_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    score = "def number(groups, *, seed=0):\n    return {'name': 'number', 'value': len(groups)}\n"
    (tmp_path / "own_scores.py").write_text(score)
    (block,) = re.findall(r"^```yaml\n(# colours\.yaml\n.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "colours.yaml").write_text(block + "score: own_scores.number\n")
    suite = load_suite(str(tmp_path / "colours.yaml"))
    groups = {"a": [{"value": 1.0}], "b": [{"value": 0.0}]}
    assert suite.report(groups, seed=0, problems=[]) == {"name": "number", "value": 2}


def test_the_study_is_six_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(
        r"^```yaml\n# experiments/penalty/study\.yaml\n(.*?)^```", PAGE, re.M | re.S
    )
    (tmp_path / "study.yaml").write_text(block)
    arguments = [str(tmp_path / "study.yaml"), "--dry-run", "--output", str(tmp_path / "runs")]
    assert experiments(arguments) == 0
    named = set(re.findall(r"runs/(\w+)/seed-(\d)", capsys.readouterr().out))
    assert named == {(variant, seed) for variant in ("low", "high") for seed in "012"}
