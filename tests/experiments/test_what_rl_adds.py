"""What RL adds: the shortest version of it, and its tables from numbers made by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from tiny_sweep import ROOT, TINY, data, shortened

from experiments import what_rl_adds
from experiments.compose import merge
from experiments.points import read_sweep
from experiments.what_rl_adds.__main__ import main
from experiments.what_rl_adds.report import doses_table, samples_table
from experiments.what_rl_adds.rewards import Coin
from r1lit import jsonl
from r1lit.problems import Problem, Response, Verdict

RIGHT = Verdict(value=1.0, status="right", canonical="1", reason="")


def response(text: str, uid: str = "a") -> Response:
    problem = Problem(uid=uid, question="?", answer="1", source="hand")
    return Response(text=text, problem=problem, verdict=RIGHT, num_tokens=1, finished=True)


def test_the_coin_is_fair_and_knows_neither_answer_nor_history():
    tossed = Coin()([response(f"text {i}") for i in range(2000)])
    assert set(tossed) == {0.0, 1.0} and 0.45 < sum(tossed) / 2000 < 0.55
    assert Coin()([response("text 7")]) == [tossed[7]]
    other = Coin()([response(f"text {i}", uid="b") for i in range(2000)])
    assert 0.45 < sum(a == b for a, b in zip(tossed, other, strict=True)) / 2000 < 0.55


def test_tables():
    samples = [
        {"policy": "base", "pass_at_k": {"1": 0.2, "256": 0.9}, "tokens": 60},
        {"policy": "base", "pass_at_k": {"1": 0.4, "256": 1.0}, "tokens": 70},
        {"policy": "rl", "pass_at_k": {"1": 0.8, "256": 1.0}, "tokens": 150},
    ]
    rows = samples_table(samples).splitlines()
    assert rows[0] == "| | n seeds | tokens | pass@1 | pass@256 |"
    assert rows[2] == "| base | 2 | 65 ± 5 | 0.300 ± 0.100 | 0.950 ± 0.050 |"
    assert rows[3] == "| RL | 1 | 150 | 0.800 | 1.000 |"
    before, after = (
        {"pass_at_1": p, "response_length_tokens": n, "reflection_words_per_response": w}
        for p, n, w in ((0.0, 40.0, 0.5), (0.5, 80.0, 1.0))
    )
    row = doses_table([{"share": 5, "evaluations": [before, after]}]).splitlines()[2]
    assert row == "| 5 % | 1 | 0.000 → 0.500 | 40 → 80 | 0.50 → 1.00 |"


def test_every_control_changes_what_it_says():
    sweep = read_sweep(ROOT / "experiments" / "what_rl_adds" / "sweep.yaml")
    recipe = sweep.point("recipe", 0).config["model"]["init_args"]
    weights = {}
    for name in ("format-only", "random-reward"):
        rewards = sweep.point(name, 0).config["model"]["init_args"]["rewards"]
        weights[name] = {r["class_path"].split(".")[-1]: r["init_args"]["weight"] for r in rewards}
    assert weights["format-only"] == {"Accuracy": 0.0, "Format": 1.0}
    assert weights["random-reward"] == {"Accuracy": 0.0, "Coin": 1.0, "Format": 1.0}
    objective = sweep.point("r1-objective", 0).config["model"]["init_args"]["objective"]
    assert objective["init_args"] == {"epsilon": 10.0, "beta": 0.001}
    assert recipe["objective"]["class_path"].endswith("DrGRPO")


@pytest.mark.slow
def test_from_the_controls_to_the_page(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    sweep = yaml.safe_load((Path(what_rl_adds.__file__).parent / "sweep.yaml").read_text())
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    sweep["base"] += [str(tmp_path / "tiny.yaml")]
    sweep["output"] = str(tmp_path / "controls")
    controls = sweep["grid"]["control"]
    sweep["grid"] = {"control": {name: controls[name] for name in ("recipe", "random-reward")}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    policy = str(tmp_path / "controls" / "recipe" / "seed-0" / "policy")
    few = {"evaluation": {"num_samples": 4}, "test": TINY["data"]["init_args"]["validation"]}
    pages = {"class_path": "r1lit.worlds.WorldCorpus", "init_args": {"num_documents": 60}}
    read = {**data(num_iterations=2, documents=[pages], validation_documents=[pages])}
    read["set"]["trainer"] = {"val_check_interval": 2}
    changes = {
        "controls": {"arguments": [str(tmp_path / "sweep.yaml"), "--seeds=0"], "writes": [policy]},
        "sft": read,
        "base_samples": data(**few),
        "rl_samples": {
            "set": {"model": {"init_args": {"policy": policy}}, **data(**few)["set"]},
            "reads": [policy],
        },
        "sft_samples": data(**few),
        "pages-": read,
        "dose-": {"set": merge(TINY, {"model": {"init_args": {"from_scratch": False}}})},
    }
    arguments = shortened(tmp_path, what_rl_adds, changes)
    monkeypatch.setattr(what_rl_adds.report, "HERE", tmp_path)
    assert main(arguments) == 0, capsys.readouterr().out
    readme = (tmp_path / "README.md").read_text()
    for row in (
        "| recipe | 1 |",
        "| random-reward | 1 |",
        "| base | 1 |",
        "| RL | 1 |",
        "| 50 % | 1 |",
    ):
        assert row in readme, row
    kept = jsonl.read(tmp_path / "results.jsonl")
    assert Counter(r["part"] for r in kept) == {"controls": 2, "samples": 3, "doses": 4}
    assert len(kept[0]["entropies"]) == 2
    assert (tmp_path / "what_rl_adds.png").exists()
