"""When a word sets in: the table and figure of curves made by hand, and what the runs differ in."""

from __future__ import annotations

import pytest
from tiny_sweep import ROOT

from experiments.curves import smooth
from experiments.late_onset.__main__ import main
from experiments.late_onset.report import as_table, draw, reached
from experiments.points import read_sweep
from r1lit.files import Record


def run(variant: str, words: list[float]) -> Record:
    ends = zip((0, len(words)), (0.05, 0.9), strict=True)
    evaluations = [
        {"iteration": i, "pass_at_1": share / 2, "tokens": 40 + i, "deceptive_checked": share}
        for i, share in ends
    ]
    return {"variant": variant, "seed": 0, "words": {"wait": words}, "evaluations": evaluations}


def test_when_words_stand_at_a_share_of_their_end() -> None:
    late = [0.01] * 50 + [0.5] * 5 + [1.0] * 45
    assert reached(late, 0.1) == 48, "the middle of five iterations, one of them at 0.5"
    assert reached(late, 0.5) == 52
    steady = [i / 100 for i in range(101)]
    assert (reached(steady, 0.1), reached(steady, 0.5)) == (10, 49)
    assert reached([1.0] * 10 + [0.0] * 10, 0.5) is None, "a word that is gone reaches nothing"
    iterations, means = smooth([1.0, 1.0, 1.0], 5)
    assert list(iterations) == [1] and list(means) == pytest.approx([1.0])


def test_table_and_figure_of_known_runs() -> None:
    results = [run("early", [1.0] * 100), run("late", [0.01] * 50 + [1.0] * 50)]
    _, _, early, late = as_table(results).splitlines()
    assert (
        early == "| early | 1 | 0.050 → 0.900 | 0.025 → 0.450 | 40 → 140 | 1.000 → 1.000 | 2 | 2 |"
    )
    assert (
        late == "| late | 1 | 0.050 → 0.900 | 0.025 → 0.450 | 40 → 140 | 0.010 → 1.000 | 48 | 50 |"
    )
    titles = [axes.get_title("left") for axes in draw(results).axes]
    assert titles == [
        "Wait, in training",
        "Checks of what only seems right",
        "Accuracy",
    ]


def test_the_runs_differ_in_their_bases_alone_and_those_in_how_much_is_checked() -> None:
    runs, bases = (
        read_sweep(ROOT / "experiments/late_onset" / name).points()
        for name in ("sweep.yaml", "pages.yaml")
    )
    policies = {p.variant: p.config["model"]["init_args"].pop("policy") for p in runs}
    assert policies == {b.variant: f"{b.folder}/policy" for b in bases}
    documents = [b.config["data"]["init_args"]["documents"][0]["init_args"] for b in bases]
    assert [own.pop("check") for own in documents] == [0.25, 0.05]
    for points in (runs, bases):
        first, *others = [{k: v for k, v in p.config.items() if k != "run"} for p in points]
        same = [o for o in others if o["seed_everything"] == first["seed_everything"]]
        assert same and all(o == first for o in same)


def test_a_page_is_made_of_other_machines_runs_where_none_is_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "experiments", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = ROOT / "experiments/late_onset"
    (tmp_path / "README.md").write_text((page / "README.md").read_text())
    words = ["--report", "--readme", str(tmp_path)]
    assert main(words) == 2
    assert "no point is finished yet" in capsys.readouterr().err
    assert main([*words, "--also", str(page / "results.jsonl")]) == 0
    assert (tmp_path / "README.md").read_text() == (page / "README.md").read_text()
