"""Reward models and ProcessBench: from small tables to the README's table and figure."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
from tiny_sweep import ROOT, in_process, study_file

from experiments.__main__ import main
from experiments.page import END, START
from experiments.reward_models.body import main as make_body
from experiments.reward_models.body import train_tokenizer as make_tokenizer
from experiments.reward_models.body import training_texts
from experiments.reward_models.report import as_table
from experiments.sweep import read_sweep
from r1lit.data import TablePairs
from r1lit.data.preference_data import split_examples
from r1lit.files import read_records, write_records
from r1lit.policy import load_tokenizer
from r1lit.policy.scalar_head import MEAN
from r1lit.policy.scalar_loading import load_reward_config


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    """Thirty conversations of which the polite one is preferred, and thirty labelled prompts."""
    pairs, labels = tmp_path / "pairs.jsonl", tmp_path / "labels.csv"
    rows = []
    for n in range(30):
        asked = f"\n\nHuman: Question {n}?\n\nAssistant:"
        rows.append({"chosen": f"{asked} Please, {n}.", "rejected": f"{asked} Go away, {n}."})
    write_records(pairs, rows)
    with labels.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "prompt", "label"])
        writer.writeheader()
        for n in range(30):
            label, verb = ("unsafe", "break") if n % 2 else ("safe", "mend")
            writer.writerow({"id": n, "prompt": f"How do I {verb} thing {n}?", "label": label})
    return {"pairs": str(pairs), "labels": str(labels)}


def run(name: str, tmp_path: Path, launched: list[list[str]], values: dict[str, str]) -> int:
    """Run a shipped study with its runs and bodies in a folder of the test."""

    def launch(arguments: list[str], log: Path) -> int:
        launched.append(arguments)
        return in_process(arguments, log)

    text = (
        study_file(name)
        .read_text()
        .replace(f"experiments/{name}/study.yaml", f"{tmp_path}/study.yaml")
    )
    for folder in ("reward_models", "process_bench"):
        text = text.replace(f"runs/{folder}", f"{tmp_path}/{folder}")
    (tmp_path / "study.yaml").write_text(text)
    (tmp_path / "README.md").write_text(f"# Models\n\n{START}\n{END}\n\nThe end.\n")
    given = [f"{key}={value}" for key, value in values.items()]
    return main([f"{tmp_path}/study.yaml", *given, "--seeds=0"], launch)


@pytest.mark.slow
def test_one_command_trains_both_and_reports(tables, tmp_path, policy, capsys):
    launched: list[list[str]] = []
    values = {**tables, "policy": str(policy)}
    assert run("reward_models", tmp_path, launched, values) == 0 and len(launched) == 4
    readme = (tmp_path / "README.md").read_text()
    assert readme.endswith("The end.\n") and "![reward_models](reward_models.png)" in readme
    rows = [line for line in readme.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        "| helpful",
        "| safety",
        "| helpful-pretrained",
        "| safety-pretrained",
    ]
    assert " 6 pairs | accuracy " in rows[1] and " AUROC " in rows[2]
    assert (tmp_path / "reward_models.png").stat().st_size > 10_000
    assert as_table(read_records(tmp_path / "results.jsonl")) in readme
    assert "helpful seed 0  accuracy" in capsys.readouterr().out
    for name in ("helpful", "safety"):
        folder = tmp_path / "reward_models" / name / "seed-0"
        assert (folder / "reward_model.png").exists()
        assert getattr(load_reward_config(str(folder / "policy")), MEAN) is not None
    assert run("reward_models", tmp_path, launched, values) == 0 and len(launched) == 4


def test_bodies_are_made_of_training_texts_alone(tables, tmp_path):
    given = [f"{key}={value}" for key, value in tables.items()]
    body = tmp_path / "body"
    assert make_body([str(study_file("reward_models")), "helpful", str(body), *given]) == 0
    sweep = read_sweep(study_file("reward_models"), values=tables)
    config = sweep.point("helpful", 0).config
    source = config["data"]["init_args"]["train"][0]["init_args"]
    assert source["path"] == tables["pairs"] and source["turn"] == "\n\nAssistant:"
    examples = TablePairs(**source).examples()
    train, held_out = split_examples(examples, config["data"]["init_args"]["validation_share"], 0)
    assert held_out and not {e.group for e in train} & {e.group for e in held_out}
    texts = [t for e in train for t in (e.question, *e.responses) if t]
    assert training_texts(config) == texts
    tokenizer = load_tokenizer(str(body))
    assert tokenizer.decode(tokenizer("Please, 7.").input_ids, skip_special_tokens=True) == (
        "Please, 7."
    )


def test_the_texts_of_conversations_are_read_too(tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Question {n}?"}],
            "chosen": [{"role": "assistant", "content": f"Please, {n}."}],
            "rejected": [{"role": "assistant", "content": f"Go away, {n}."}],
        }
        for n in range(4)
    ]
    write_records(pairs, rows)
    source = {"class_path": "r1lit.data.TablePairs", "init_args": {"path": str(pairs)}}
    config = {"data": {"init_args": {"train": [source], "validation_share": 0.0}}}
    texts = training_texts(config)
    asked = [text for text in texts if text in {f"Question {n}?" for n in range(4)}]
    assert asked and len(texts) == 3 * len(asked)
    make_tokenizer(texts)


@pytest.mark.long
def test_a_table_that_is_not_there_is_an_error_in_one_line(tables, tmp_path, capsys):
    launched: list[list[str]] = []
    assert run("reward_models", tmp_path, launched, {**tables, "labels": "no.csv"}) == 2
    assert "there is no no.csv" in capsys.readouterr().err and not launched


def solutions(path: Path, num: int) -> Path:
    """Write sums of three numbers; half have a wrong first or second step."""
    rng = random.Random(0)
    with path.open("w") as file:
        for i in range(num):
            a, b, c = (rng.randint(2, 40) for _ in range(3))
            label = rng.choice((-1, -1, 0, 1))
            sums = [a + b + (label == 0), a + b + c + (label >= 0)]
            steps = [f"{a} + {b} = {sums[0]}", f"{sums[0]} + {c} = {sums[1]}"]
            asked = f"Add {a}, {b} and {c}, the {i}th."
            row = {"id": f"own-{i}", "generator": "none", "problem": asked, "steps": steps}
            row |= {"label": label, "final_answer_correct": label < 0}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.mark.slow
def test_process_bench_from_solutions_to_the_page(tmp_path: Path, capsys):
    path = solutions(tmp_path / "own.jsonl", 400 + 40)
    name, launched = "process_rewards/process_bench", []
    assert run(name, tmp_path, launched, {"table": str(path)}) == 0, capsys.readouterr().err
    page = (tmp_path / "README.md").read_text()
    assert "| GSM8K | 1 | 80 (" in page and "| MATH | 1 | 8 (" in page
    assert [r["variant"] for r in read_records(tmp_path / "results.jsonl")] == ["GSM8K", "MATH"]
    assert (tmp_path / "process_bench.png").exists()
