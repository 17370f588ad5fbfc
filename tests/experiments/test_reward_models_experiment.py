"""The experiment on reward models: from two small tables to the README's table and figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from experiments.page import END, START
from experiments.points import score_of
from experiments.reward_models.__main__ import main, sweep_of
from experiments.reward_models.body import make_body
from experiments.reward_models.report import as_table, draw, measure
from r1lit import cli
from r1lit.data import TablePairs
from r1lit.data.preference_loader import split_examples
from r1lit.files import read_records
from r1lit.policy import load_tokenizer
from r1lit.policy.loading import load_reward_config
from r1lit.policy.scalar_head import MEAN


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    """Thirty conversations of which the polite one is preferred, and thirty labelled prompts."""
    pairs, labels = tmp_path / "pairs.jsonl", tmp_path / "labels.csv"
    rows = []
    for n in range(30):
        asked = f"\n\nHuman: Question {n}?\n\nAssistant:"
        rows.append({"chosen": f"{asked} Please, {n}.", "rejected": f"{asked} Go away, {n}."})
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with labels.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "prompt", "label"])
        writer.writeheader()
        for n in range(30):
            label, verb = ("unsafe", "break") if n % 2 else ("safe", "mend")
            writer.writerow({"id": n, "prompt": f"How do I {verb} thing {n}?", "label": label})
    return {"helpful": str(pairs), "safety": str(labels)}


def in_process(launched: list[list[str]]):
    def launch(arguments: list[str], log: Path) -> int:
        launched.append(arguments)
        cli.main(arguments)
        return 0

    return launch


def run(tables: dict[str, str], tmp_path: Path, *more: str) -> tuple[int, list[list[str]]]:
    report = tmp_path / "report"
    report.mkdir(exist_ok=True)
    (report / "README.md").write_text(f"# Models\n\n{START}\n{END}\n\nThe end.\n")
    launched: list[list[str]] = []
    given = [*tables.values(), "--seeds=0", f"--output={tmp_path}/runs", f"--report={report}"]
    return main([*given, *more], in_process(launched)), launched


@pytest.mark.slow
def test_one_command_trains_both_and_reports(tables, tmp_path, policy, capsys):
    status, launched = run(tables, tmp_path, f"--policy={policy}")
    assert status == 0 and len(launched) == 4
    readme = (tmp_path / "report" / "README.md").read_text()
    assert readme.endswith("The end.\n") and "![reward_models](reward_models.png)" in readme
    rows = [line for line in readme.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        "| helpful",
        "| safety",
        "| helpful-pretrained",
        "| safety-pretrained",
    ]
    assert " 6 pairs | accuracy " in rows[1] and " AUROC " in rows[2]
    assert (tmp_path / "report" / "reward_models.png").stat().st_size > 10_000
    assert as_table(read_records(tmp_path / "report" / "results.jsonl")) in readme
    assert "helpful seed 0  accuracy" in capsys.readouterr().out
    for name in ("helpful", "safety"):
        folder = tmp_path / "runs" / name / "seed-0"
        assert (folder / "reward_model.png").exists()
        assert getattr(load_reward_config(str(folder / "policy")), MEAN) is not None
    assert run(tables, tmp_path, f"--policy={policy}") == (0, [])  # all is finished


def test_bodies_are_made_of_training_texts_alone(tables, tmp_path):
    sweep = sweep_of(tables, tmp_path / "runs", [0])
    config = sweep.point("helpful", 0).config
    source = config["data"]["init_args"]["train"][0]["init_args"]
    assert source["path"] == tables["helpful"] and source["turn"] == "\n\nAssistant:"
    tokenizer = load_tokenizer(config["model"]["init_args"]["policy"])
    examples = TablePairs(**source).examples()
    train, held_out = split_examples(examples, config["data"]["init_args"]["validation_share"], 0)
    assert held_out and not {e.group for e in train} & {e.group for e in held_out}
    again = make_body([t for e in train for t in (e.question, *e.responses)], tmp_path / "other")
    assert load_tokenizer(str(again)).get_vocab() == tokenizer.get_vocab()
    assert tokenizer.decode(tokenizer("Please, 7.").input_ids, skip_special_tokens=True) == (
        "Please, 7."
    )
    other = make_body(["something else"], tmp_path / "other")
    assert other != again


def test_a_table_that_is_not_there_is_an_error_in_one_line(tables, tmp_path, capsys):
    assert run({**tables, "safety": "no.csv"}, tmp_path) == (2, [])
    assert "there is no file 'no.csv'" in capsys.readouterr().err


def result(variant: str, seed: int, **report: float) -> dict:
    table = [{"from": 0.0, "to": 1.0, "count": 4, "predicted": 0.6, "observed": 0.5}]
    numbers = {"num_examples": 40, "calibration_error": 0.1, "reliability": table} | report
    return {
        "variant": variant,
        "seed": seed,
        "seconds": 10.0 * (seed + 1),
        "final": {"pass_at_1": None, "reward_model": numbers},
    }


def test_the_table_by_hand():
    pairs = [
        result(
            "helpful",
            s,
            accuracy=a,
            accuracy_stderr=0.08,
            length_baseline_accuracy=0.55,
            above_length_baseline_stderr=0.04,
        )
        for s, a in enumerate((0.6, 0.7, 0.8))
    ]
    labels = [
        result(
            "safety", 0, accuracy=0.5, num_safe=30, auroc=0.9, auroc_stderr=0.05,
            length_baseline_auroc=0.5,
        )
    ]  # fmt: skip
    rows = as_table([*pairs, *labels]).splitlines()
    assert rows[2].split(" | ")[1:] == (
        [
            "3",
            "40 pairs",
            "accuracy",
            "0.700",
            "0.058",
            "0.080",
            "0.550",
            "+0.150 ± 0.040",
            "0.100",
            "20 |",
        ]
    )
    assert rows[3].split(" | ")[2:] == (
        ["30 safe, 10 unsafe", "AUROC", "0.900", "–", "0.050", "0.500", "+0.400", "0.100", "10 |"]
    )
    assert measure(labels[0]["final"]["reward_model"]) == ("AUROC", 0.9, 0.05, 0.5)
    assert score_of(labels[0]["final"]) == ("AUROC", 0.9)
    assert score_of(pairs[0]["final"]) == ("accuracy", 0.6)
    assert score_of({"pass_at_1": None}) is None
    left, right = draw([*pairs, *labels]).axes
    assert [text.get_text() for text in left.get_xticklabels()] == [
        "helpful\naccuracy",
        "safety\nAUROC",
    ]
    assert right.lines[1].get_xydata().tolist() == [[0.6, 0.5]]
