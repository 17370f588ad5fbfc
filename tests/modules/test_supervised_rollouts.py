"""Supervised runs that roll out responses to held-out problems, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import ROOT, merge, save_policy
from tiny_distillation import losses, off_policy, weights

from r1lit.cli import main

SFT = {"model": {"class_path": "r1lit.modules.SFTModule"}}
TEMPLATE = "Question: {question}\nAnswer:"
CALLBACKS = ("EvaluateFirst", "MajorityVoteEvaluation", "ResponseLength", "ReflectionWords")


def tables(folder: Path) -> dict[str, Any]:
    """Ten questions, each with a document that answers it, as documents and as problems."""
    problems, documents = folder / "problems.jsonl", folder / "answers.jsonl"
    rows = [(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 11)]
    problems.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
    documents.write_text(
        "".join(json.dumps({"prompt": q, "response": rf" \boxed{{{a}}}"}) + "\n" for q, a in rows)
    )

    def source(name: str, path: Path, **init_args: Any) -> list[dict[str, Any]]:
        return [{"class_path": f"r1lit.data.{name}", "init_args": {"path": str(path), **init_args}}]

    return {
        "documents": source("TableDocuments", documents, template=TEMPLATE),
        "validation_documents": source("TableDocuments", documents, template=TEMPLATE, limit=4),
        "validation": source("TableProblems", problems),
        "prompts": {"template": TEMPLATE},
        "evaluation": {"num_samples": 3, "prompts_per_batch": 4},
        "allow_overlap": True,  # what is learnt by heart is easy to test on
    }


def config(run: Path, policy: Path, *changes: dict[str, Any], draw: int = 0, **model: Any) -> Path:
    """Write the YAML of 60 updates with three evaluations of responses and of loss."""
    path = off_policy(run, policy, validation_sampling={"max_tokens": 12}, **model)
    made = yaml.safe_load(path.read_text())
    callbacks = [{"class_path": f"r1lit.callbacks.{name}"} for name in CALLBACKS]
    table = {"class_path": "r1lit.callbacks.ResponseTable", "init_args": {"dirpath": str(run)}}
    for callback in made["trainer"]["callbacks"]:
        if callback["class_path"].endswith("CurveWriter"):
            callback["init_args"]["draw_every_n_iterations"] = draw
    made["trainer"]["callbacks"] += [*callbacks, table]
    made["trainer"]["val_check_interval"] = 30
    made["data"]["init_args"] |= {
        **tables(run.parent),
        "num_iterations": 60,
        "packing": {"max_seq_len": 48},
    }
    for change in changes:
        made = merge(made, change)
    path.write_text(yaml.safe_dump(made))
    return path


def summary(run: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run, without their times."""
    evaluations = json.loads((run / "summary.json").read_text())
    return [{k: v for k, v in e.items() if k != "seconds"} for e in evaluations]


def responses(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> Path:
    """A finished run of SFT."""
    run = tmp_path_factory.mktemp("sft") / "run"
    main(["fit", "-c", str(config(run, policy, SFT, draw=30))])
    return run


@pytest.mark.slow
def test_sft_answers_what_it_has_learnt(sft: Path) -> None:
    evaluations = summary(sft)
    assert [e["iteration"] for e in evaluations] == [0, 30, 60]
    for evaluation in evaluations:
        assert (evaluation["num_problems"], evaluation["num_samples"]) == (10, 3)
        right = [
            r["status"] == "right"
            for r in responses(sft)
            if r["iteration"] == evaluation["iteration"]
        ]
        assert len(right) == 30
        assert evaluation["pass_at_1"] == pytest.approx(sum(right) / 30)
        assert evaluation["cons_at_3"] is not None
        assert evaluation["response_length_tokens"] > 0
    first, *_, last = evaluations
    assert first["pass_at_1"] == 0 and last["pass_at_1"] > 0.5
    assert last["loss"] < 0.5 * first["loss"]
    assert {r["split"] for r in responses(sft)} == {"val"}
    assert (sft / "curves.png").is_file()


@pytest.mark.slow
def test_rolling_out_changes_neither_training_nor_the_held_out_loss(
    sft: Path, tmp_path: Path, policy: Path
) -> None:
    run = tmp_path / "run"
    main(
        ["fit", "-c", str(config(run, policy, SFT, {"data": {"init_args": {"validation": None}}}))]
    )
    assert losses(run) == losses(sft)
    assert all(torch.equal(value, weights(sft)[name]) for name, value in weights(run).items())
    assert [e["loss"] for e in summary(run)] == [e["loss"] for e in summary(sft)]
    assert {e["pass_at_1"] for e in summary(run)} == {None}


@pytest.mark.slow
def test_problems_alone(tmp_path: Path, policy: Path, sft: Path) -> None:
    """Without held-out documents there is no loss, and the responses are the same."""
    run = tmp_path / "run"
    change = {"data": {"init_args": {"validation_documents": None}}}
    main(["fit", "-c", str(config(run, policy, SFT, change))])
    assert {e["loss"] for e in summary(run)} == {None}
    assert responses(run) == responses(sft)


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_run(tmp_path: Path, policy: Path, sft: Path) -> None:
    run = tmp_path / "run"
    path = str(config(run, policy, SFT))
    main(["fit", "-c", path, "--trainer.max_steps", "40"])
    assert len(summary(run)) == 2
    main(["fit", "-c", path, "--ckpt_path", "last"])
    assert losses(run) == losses(sft)
    assert summary(run) == summary(sft)
    assert responses(run) == responses(sft)


def test_validate_alone_writes_both(tmp_path: Path, policy: Path, sft: Path) -> None:
    checkpoint = str(sft / "checkpoints" / "last.ckpt")
    run = tmp_path / "run"
    main(["validate", "-c", str(config(run, policy, SFT)), "--ckpt_path", checkpoint])
    alone = json.loads((run / "validate.json").read_text())
    last = summary(sft)[-1]
    assert {key: alone[key] for key in ("loss", "pass_at_1", "iteration")} == {
        key: last[key] for key in ("loss", "pass_at_1", "iteration")
    }


@pytest.mark.slow
def test_distillation_from_a_teachers_distributions(tmp_path: Path, policy: Path) -> None:
    teacher = save_policy(tmp_path / "teacher", layers=3, seed=11)
    of = {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(teacher)}}
    run = tmp_path / "run"
    path = config(
        run, policy, teacher=of, logit_weight=0.1, rewards=[{"class_path": "tiny.DigitShare"}]
    )
    main(["fit", "-c", str(path)])
    first, *_, last = summary(run)
    assert last["pass_at_1"] > first["pass_at_1"]
    assert last["loss"] < first["loss"]
    assert "digits" in last["rewards"]


def test_a_problem_that_is_imitated_is_no_held_out_one(tmp_path: Path, policy: Path) -> None:
    path = config(tmp_path / "run", policy, SFT, {"data": {"init_args": {"allow_overlap": False}}})
    with pytest.raises(
        ValueError, match=r"^contamination: 10 of 10 problems of data.validation have the"
    ):
        main(["fit", "-c", str(path)])


def test_a_context_too_short_is_told_before_training(tmp_path: Path, policy: Path) -> None:
    path = str(config(tmp_path / "run", policy, SFT))
    with pytest.raises(ValueError, match=r"^max_tokens: 500 after a prompt of \d+ tokens exceeds"):
        main(["fit", "-c", path, "--model.validation_sampling.max_tokens", "500"])


@pytest.mark.slow
def test_two_ranks_evaluate_as_one(tmp_path: Path, policy: Path) -> None:
    evaluations = []
    for name, devices in (("one", 1), ("two", 2)):
        ranks = {"trainer": {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}}
        config_path = config(tmp_path / name, policy, SFT, ranks)
        done = subprocess.run(
            [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(config_path)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        evaluations.append(summary(tmp_path / name))
    one, two = evaluations
    assert [e["iteration"] for e in one] == [e["iteration"] for e in two] == [0, 30, 60]
    assert [e["num_problems"] for e in two] == [10, 10, 10]
    assert one[0]["response_length_tokens"] == two[0]["response_length_tokens"]
    for of_one, of_two in zip(one, two, strict=True):
        assert of_two["loss"] == pytest.approx(of_one["loss"], rel=0.05)
    assert two[-1]["pass_at_1"] > 0.5
