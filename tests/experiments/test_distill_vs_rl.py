"""Distillation against RL: the shipped experiment on a tiny student, its compute and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_sweep import ROOT

from benchmarks.flops import Shape, training_flops
from experiments.distill_vs_rl import report
from experiments.distill_vs_rl.compute import ComputeCount, document_lengths
from experiments.distill_vs_rl.run import Experiment, read_experiment, run
from experiments.launch import held
from experiments.page import END, START
from r1lit import cli
from r1lit.batches import PackedRows
from r1lit.files import read_records
from r1lit.policy import load_config

SHIPPED = Path("experiments/distill_vs_rl/experiment.yaml")
RL = "experiments/distill_vs_rl/rl.yaml"
WORLD = "r1lit.worlds.WorldCountdown"
FAST: dict[str, Any] = {"trainer": {"precision": "32-true", "enable_model_summary": False}}
SMALL: dict[str, dict[str, Any]] = {
    "distilled": {
        "model": {"init_args": {"micro_batch_tokens": 256}},
        "data": {
            "init_args": {
                "packing": {"max_seq_len": 64, "train_batch_size": 2},
                "num_iterations": 4,
            }
        },
        **FAST,
    },
    "rl": {
        "model": {
            "init_args": {
                "objective": {"init_args": {"max_tokens": 8}},
                "sampling": {"max_tokens": 8},
                "train_batch_size": 4,
                "micro_batch_tokens": 512,
            }
        },
        "data": {
            "init_args": {
                "train": [{"class_path": WORLD, "init_args": {"num_problems": 4}}],
                "rollout": {"prompts_per_iteration": 2, "group_size": 2},
            }
        },
        **FAST,
    },
    "evaluation": {
        "model": {"init_args": {"sampling": {"max_tokens": 8}}},
        "data": {
            "init_args": {
                "test": [
                    {"class_path": WORLD, "init_args": {"split": "held_out", "num_problems": 2}}
                ],
                "evaluation": {"num_samples": 2},
            }
        },
        **FAST,
    },
}


@pytest.fixture
def experiment(tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped file with a tiny student, few documents, and small fragments over its configs."""
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(SHIPPED.read_text())
    for name, fragment in SMALL.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(fragment))
    documents = [{"prompt": f"{n} + 1?", "response": f" {n} + 1 = {n + 1}."} for n in range(20)]
    table = tmp_path / "sft.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in documents))
    content |= {"student": str(policy), "documents": str(table), "seeds": [0]}
    content["output"] = str(tmp_path / "out")
    content["evaluation"].append(str(tmp_path / "evaluation.yaml"))
    for name, arm in content["arms"].items():
        arm["base"].append(str(tmp_path / f"{name}.yaml"))
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    (tmp_path / "README.md").write_text(f"# It\n\n{START}\n{END}\n\nThe end.\n")
    return path


def made(experiment: Experiment) -> list[str]:
    """Make what is missing in this process; return the commands that it took."""
    launched: list[str] = []

    def launch(arguments: list[str], log: Path) -> int:
        launched.append(arguments[0])
        cli.main(arguments)
        return 0

    assert run(experiment, experiment.seeds, launch) == []
    return launched


@pytest.mark.slow
def test_rl_ends_when_it_has_computed_as_much_as_distillation(experiment, tmp_path, capsys):
    read = read_experiment(experiment)
    assert made(read) == ["test", "fit", "test", "fit", "test"]
    assert made(read) == []  # all is finished
    spent = {
        arm: json.loads((tmp_path / f"out/{arm}/seed-0/compute.json").read_text())
        for arm in ("distilled", "rl")
    }
    assert spent["distilled"]["iterations"] == 12 and spent["distilled"]["limit"] is None
    limit, rl = spent["distilled"]["flops"], spent["rl"]
    assert rl["limit"] == limit <= rl["flops"]
    one = rl["flops"] / rl["iterations"]  # iterations cost much the same
    assert 1 < rl["iterations"] < 1000 and rl["flops"] < limit + 1.5 * one
    assert [r["arm"] for r in read.results()] == ["base", "distilled", "rl"]
    asked = {}
    for arm in ("base", "distilled", "rl"):
        text = (tmp_path / f"out/{arm}/seed-0/evaluation/evaluation.yaml").read_text()
        asked[arm] = yaml.safe_load(text)["data"]["init_args"]["prompts"]["template"]
    assert asked == {"base": "chat", "distilled": "chat", "rl": "small_world"}
    capsys.readouterr()
    assert report.main([str(experiment)]) == 0
    readme = (tmp_path / "README.md").read_text()
    assert capsys.readouterr().out.strip() in readme and readme.endswith("The end.\n")
    rows = [line for line in readme.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == ["| base", "| distilled", "| rl"]
    assert f"{limit:.2e}" in rows[2] and "3 of 3 runs finished" in readme
    assert report.as_table(read_records(tmp_path / "results.jsonl")) in readme
    assert "![arms](arms.png)" in readme and (tmp_path / "arms.png").stat().st_size > 10_000

    with held(tmp_path / "out/.seed-0.lock"):  # of another process, which makes the seed
        assert made(read) == []
    assert "seed 0  left to another process" in capsys.readouterr().out

    documents = tmp_path / "sft.jsonl"
    documents.write_text(documents.read_text().replace("+ 1?", "and 1?"))
    assert made(read)[:2] == ["fit", "test"]  # afresh, and RL too if its limit is another
    documents.unlink()
    assert len(read.results()) == 3  # results are kept where what made them is gone


def test_documents_are_counted_up_to_what_predicts_their_last_target(tmp_path, policy):
    """Two documents of a row, of 5 and 3 tokens, and padding that is no target."""
    batch = PackedRows(
        iteration=0,
        input_ids_RL=torch.arange(10)[None],
        position_ids_RL=torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1]]),
        loss_mask_RL=torch.tensor(
            [[False, False, True, True, True, False, True, True, False, False]]
        ),
    )
    assert document_lengths(batch) == [4, 2]
    shape = Shape.of(load_config(str(policy)))
    squares = 6 * shape.num_layers * shape.attention_size * (4**2 + 2**2)
    assert training_flops(shape, [4, 2]) == 6 * shape.num_parameters * 6 + squares
    with pytest.raises(ValueError, match=r"limit: 0\.0 FLOPs is not above 0"):
        ComputeCount(str(tmp_path / "c.json"), 0.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extra": 1}, "unknown key 'extra'"),
        ({"student": None}, "student: None is not a path"),
        ({"output": None}, "output: None is not a path"),
        ({"evaluation": "some.yaml"}, "evaluation: 'some.yaml' is not a list"),
        ({"arms": None}, "arms: None is not a mapping"),
        ({"arms": {1: {}}}, "arms: 1 cannot name a folder"),
        ({"arms": {"..": {}}}, r"arms: '\.\.' cannot name a folder"),
        ({"arms": {"rl": ["rl.yaml"]}}, "arms.rl: .'rl.yaml'. is not a mapping"),
        ({"arms": {"rl": {"base": "rl.yaml"}}}, "arms.rl: base: 'rl.yaml' is not a list"),
        ({"arms": {"base": {"base": [RL]}}}, "'base' is the student untrained"),
        ({"arms": {"rl": {"base": [RL], "like": 1}}}, "arms.rl: unknown key 'like'"),
        ({"arms": {"rl": {"base": [RL], "compute_of": "rl"}}}, "'rl' is no arm before it"),
        ({"arms": {"rl": {"base": [RL], "evaluation": [RL]}}}, "arms.rl.evaluation: .* is not"),
        ({"arms": {"rl": {"base": ["no.yaml"]}}}, "arms.rl.base: config: no.yaml cannot be read"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_key(experiment, change, says):
    content = yaml.safe_load(experiment.read_text()) | change
    experiment.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=says):
        read_experiment(experiment)


def test_a_report_of_nothing_is_an_error_that_says_what_to_run(experiment, capsys):
    assert report.main([str(experiment)]) == 2
    assert "no run is finished" in capsys.readouterr().err


def test_its_readme_has_a_place_for_the_report():
    text = (ROOT / SHIPPED.parent / "README.md").read_text()
    assert text.index(START) < text.index(END)
