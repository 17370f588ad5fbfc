"""Forgetting by family: values, losses over problems of one run and over runs, missing stages."""

from __future__ import annotations

import shutil

from tiny import ROOT

from experiments.forgetting.report import read, report
from experiments.r1.forgetting import main, read_runs, value_of
from experiments.study import Study
from r1lit.files import write_records

SHIPPED = ROOT / "notebooks" / "data" / "r1"


def write(run, stage: str, **families: list[float]) -> None:
    """Write an evaluation whose problems of a family have these values."""
    folder = run / "eval" / stage
    folder.mkdir(parents=True)
    lines = []
    for family, values in families.items():
        for n, value in enumerate(values):
            metrics = {} if family == "chain" else {"helpfulness_true": value}
            status = "right" if value == 1 else "wrong"
            lines.append({"uid": f"{family}-en-{n}", "sample": 0, "status": status}
                         | {"eval_metrics": metrics})  # fmt: skip
    write_records(folder / "responses.jsonl", lines)


def test_a_response_is_graded_by_what_applies_to_it():
    assert value_of({"status": "wrong", "eval_metrics": {"helpfulness_true": 0.8}}) == 0.8
    assert value_of({"status": "wrong", "eval_metrics": {"safety": 1.0, "format": 0.0}}) == 1.0
    assert value_of({"status": "right", "eval_metrics": {"format": 1.0}}) == 1.0


def test_losses_are_named_where_the_interval_excludes_zero(tmp_path, capsys):
    write(tmp_path, "base", fact=[0.9, 1.0, 0.8, 0.9, 0.9], word=[0.1, 0.2], chain=[0] * 5)
    write(tmp_path, "zero", fact=[0.2, 0.4, 0.1, 0.2, 0.2], word=[0.9, 0.9], chain=[1] * 5)
    assert main([str(tmp_path), "--output", str(tmp_path / "page.md")]) == 0
    page = capsys.readouterr().out
    assert page == (tmp_path / "page.md").read_text()
    assert "| fact | 5 | 0.90 | 0.22 |" in page and "| chain | 5 | 0.00 | 1.00 |" in page
    [step] = [line for line in page.splitlines() if line.startswith("- base → zero")]
    assert (
        "loses fact -0.68" in step and "gains chain +1.00" in step and "word" not in step
    )  # two problems


def test_the_shipped_run_has_families_from_r1_zero_on(capsys):
    stages = read_runs([SHIPPED])
    assert list(stages) == ["zero", "dev1", "dev2", "dev3", "r1"]
    assert {"fact", "translation", "writing", "who", "harm"} <= {*stages["r1"][0]}
    main([str(SHIPPED)])
    assert "| fact | 9 |" in capsys.readouterr().out


def test_too_few_stages_are_an_error(tmp_path, capsys):
    shutil.copytree(SHIPPED / "eval" / "zero", tmp_path / "eval" / "zero")
    assert main([str(tmp_path)]) == 2
    assert "have 1 stages in common of base, zero, dev1" in capsys.readouterr().err


def test_the_study_reports_the_seeds_that_came_furthest(tmp_path):
    for seed, stages in ((0, ("base", "zero")), (1, ("base", "zero")), (2, ("base",))):
        for stage in stages:
            lost = (0.4 + 0.02 * seed) * (stage == "zero")
            write(tmp_path / f"seed-{seed}", stage, fact=[0.9 - lost, 0.7 - lost], word=[0.5])
    study = Study(path=tmp_path, content={}, values={}, seeds=[0, 1, 2], output=tmp_path)
    records = read(study)
    assert len(records) == 10 and records[0]["values"] == {"fact-en-0": 0.9, "fact-en-1": 0.7}
    page, figure = report(records)
    assert page.startswith("seeds 0, 1, to stage zero;") and "| fact | 2 | 0.80 | 0.39 |" in page
    assert "| base → zero | fact | -0.41 (" in page and "word" not in page.partition("Changes")[2]
    assert figure.axes[0].get_title(loc="left") == "What each stage keeps, by family"
