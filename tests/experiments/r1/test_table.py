"""The stage table: its arithmetic by hand, and on stages that were really evaluated."""

from __future__ import annotations

import json
import math

import pytest
from tiny import ROOT
from tiny_stages import make_run

from experiments.page import END, START
from experiments.r1 import table
from experiments.r1.figure import draw_moves, draw_stages
from experiments.r1.shape import COUNTERPARTS, PAPER, as_lines, check, combine
from experiments.r1.stages import COLUMNS, STAGES, read_stage, read_stages
from experiments.tables import RULE
from r1lit.files import write_records

RESULTS = ROOT / "experiments/r1/results"


def line(uid, sample, kind, right, *, canonical=None, tokens=10, **eval_metrics):
    return {
        "uid": uid,
        "sample": sample,
        "groups": {"kind": kind},
        "value": float(right),
        "canonical": canonical,
        "num_tokens": tokens,
        "eval_metrics": eval_metrics,
    }


def write_evaluation(folder, lines, num_samples):
    folder.mkdir(parents=True)
    settings = {"sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 64}, "seed": 0}
    report = {"num_samples": num_samples, "settings": settings}
    (folder / "report.json").write_text(json.dumps(report))
    write_records(folder / "responses.jsonl", lines)


def test_a_stage_by_hand(tmp_path):
    # problem a: right, right, wrong; b: wrong thrice; sample 3 is of an evaluation with a larger k
    reasoning = [
        line("a", 0, "reasoning", True, canonical="4", tokens=10, format=1.0),
        line("b", 0, "reasoning", False, canonical="1", tokens=20, format=0.0),
        line("a", 2, "reasoning", False, canonical="5", tokens=30, format=1.0),
        line("a", 1, "reasoning", True, canonical="4", tokens=20, format=1.0),
        line("b", 1, "reasoning", False, canonical="1", tokens=20, format=0.0),
        line("b", 2, "reasoning", False, canonical="2", tokens=20, format=1.0),
        line("a", 3, "reasoning", True, canonical="4", tokens=9000, format=0.0),
    ]
    general = [
        line("g", 0, "general", False, tokens=5, instruction_following=1.0, helpfulness_true=0.5),
        line("h", 0, "general", False, tokens=5, helpfulness_true=0.7),  # nothing is instructed
        line("x", 0, "harmful", False, tokens=5, safety=1.0),
    ]
    write_evaluation(tmp_path / "dev1/reasoning", reasoning, 3)
    write_evaluation(tmp_path / "dev1/other", general, 1)
    stage = read_stage(tmp_path / "dev1")
    assert stage["name"] == "dev1"
    assert stage["reasoning_pass_at_1"] == pytest.approx(1 / 3)  # (2/3 + 0) / 2
    assert stage["reasoning_pass_at_1_se"] == pytest.approx(1 / 3)  # std √2/3, over √2
    assert stage["cons_at_16"] == pytest.approx(0.5) and stage["cons_k"] == 3
    assert stage["format"] == pytest.approx((1 + 1 / 3) / 2)
    assert stage["language_consistency"] is None and stage["language_consistency_se"] is None
    assert stage["instruction_following"] == 1.0 and stage["instruction_following_se"] is None
    assert stage["helpfulness_true"] == pytest.approx(0.6)
    assert stage["helpfulness_true_se"] == pytest.approx(0.1)
    assert stage["helpfulness_rm"] is None
    assert stage["safety"] == 1.0
    assert stage["response_length_tokens"] == pytest.approx((20 + 20 + 5 + 5 + 5) / 5)
    assert stage["settings"]["reasoning"]["k"] == 3 and stage["settings"]["general"]["k"] == 1


def test_without_kinds_the_error_says_how_to_have_them(tmp_path):
    write_evaluation(tmp_path / "eval/zero", [line("a", 0, None, True)], 1)
    with pytest.raises(ValueError, match=r"by: \[kind\]"):
        read_stages(tmp_path)


def test_programs_and_puzzles_have_columns_where_they_were_measured(tmp_path):
    sums = [
        line("a", s, "reasoning", True, canonical="4", language_consistency=1.0) for s in (0, 1)
    ]
    write_evaluation(tmp_path / "dev1", sums, 2)
    others = [
        line("p", 0, "reasoning", True, tokens=30, language_consistency=0.0)
        | {"source": "programs"},
        line("p", 1, "reasoning", False, tokens=30, language_consistency=0.0)
        | {"source": "programs"},
        line("z", 0, "reasoning", False, canonical="KN") | {"source": "puzzles"},
        line("z", 1, "reasoning", False, canonical="NN") | {"source": "puzzles"},
    ]
    write_evaluation(tmp_path / "dev2", [*sums, *others], 2)
    before, after = read_stage(tmp_path / "dev1"), read_stage(tmp_path / "dev2")
    assert before["programs_pass_at_1"] is None and before["puzzles_pass_at_1"] is None
    assert after["programs_pass_at_1"] == 0.5 and after["puzzles_pass_at_1"] == 0.0
    assert after["reasoning_pass_at_1"] == after["cons_at_16"] == 1.0, "sums alone, as ever"
    assert after["language_consistency"] == 0.5
    assert after["response_length_tokens"] == pytest.approx((10 + 30 + 10) / 3)
    assert after["settings"]["programs"]["num_problems"] == 1
    old = table.as_table({"stages": [before]})
    assert "programs" not in old and "puzzles" not in old
    new = table.as_table({"stages": [before, after]}).splitlines()
    assert "| cons@16 | programs | puzzles | format |" in new[0]
    assert "| – | – |" in new[2] and "| 0.500 | 0.000 |" in new[3]
    del before["programs_pass_at_1"], before["programs_pass_at_1_se"]  # a summary from before
    assert table.as_table({"stages": [before]}) == old
    combined = combine([{"stages": [before]}, {"stages": [after | {"name": "dev1"}]}])
    assert combined["stages"][0]["programs_pass_at_1"] == 0.5


def stage(name, reasoning, *, following=0.5, helpful=0.5, safety=0.5, error=0.01):
    record = {"name": name, "cons_k": 16, "settings": {}}
    for column in COLUMNS:
        record |= {column.key: 0.5, f"{column.key}_se": error}
    return record | {
        "reasoning_pass_at_1": reasoning,
        "instruction_following": following,
        "helpfulness_true": helpful,
        "safety": safety,
    }


def summary(*, r1=0.8, last_helpful=0.9):
    stages = [
        stage("zero", 0.8, following=0.4),
        stage("dev1", 0.6, following=0.7),
        stage("dev2", 0.75),
        stage("dev3", 0.78, helpful=0.6, safety=0.5),
        stage("r1", r1, helpful=last_helpful, safety=0.5),
    ]
    return {"stages": stages, "distilled": None, "small_rl": None}


def move(results, step, key):
    [found] = [r for r in results if (r["step"], r["key"]) == (step, key)]
    return found


def test_every_direction_of_the_papers_table_that_has_a_counterpart_is_tested():
    results = check([summary()])
    tested = {(r["step"], column) for r in results for column in r["verdicts"]}
    steps = ("cold start", "RL-1", "second SFT", "RL-2", "R1 against R1-Zero")
    assert tested == {(step, column) for step in steps for column in COUNTERPARTS}
    assert set(PAPER) == set(COUNTERPARTS)
    sums = summary()
    for found in sums["stages"]:
        del found["programs_pass_at_1"]  # as in runs before there were programs
    assert {c for r in check([sums]) for c in r["verdicts"]} == set(PAPER) - {"LiveCodeBench"}
    lowered = move(results, "cold start", "reasoning_pass_at_1")
    assert lowered["difference"] == pytest.approx(-0.2)
    assert lowered["difference_se"] == pytest.approx(math.hypot(0.01, 0.01))
    assert lowered["verdicts"] == {"AIME 2024": "agrees", "MATH-500": "agrees"}
    assert lowered["paper"]["AIME 2024"] == pytest.approx(-18.9)


def test_verdicts_by_hand():
    """Of one run with an error of 0.01 on either side: 0.014, so 0.028 is clear and 0.026 leans."""
    results = check([summary(r1=0.78 + 0.026)])
    verdicts = move(results, "RL-2", "reasoning_pass_at_1")["verdicts"]
    assert set(verdicts.values()) == {"leans"}
    assert move(results, "cold start", "helpfulness_true")["verdicts"]["AlpacaEval 2"] == (
        "no move"
    )
    results = check([summary(r1=0.70)])
    assert set(move(results, "RL-2", "reasoning_pass_at_1")["verdicts"].values()) == {"disagrees"}
    assert not move(results, "RL-2", "reasoning_pass_at_1")["not_lost"]
    assert move(check([summary(r1=0.77)]), "RL-2", "reasoning_pass_at_1")["not_lost"]
    # IF-Eval moves by 0.3 in RL-1: ours fell from 0.7 to 0.5
    assert move(results, "RL-1", "instruction_following")["verdicts"]["IF-Eval"] == (
        "not shown to stay"
    )
    text = "\n".join(as_lines(results))
    assert "Of 30 directions" in text and "RL-2, AIME 2024 (reasoning_pass_at_1)" in text
    assert "costs 0.05 of reasoning or more is not ruled out" in text


def test_runs_that_were_evaluated_otherwise_are_not_combined():
    runs = [summary() for _ in range(3)]
    for run, (k, seed) in zip(runs, ((16, 0), (16, 1), (4, 2)), strict=True):
        run["stages"][-1]["settings"] = {"reasoning": {"k": k, "seed": seed}}
    assert combine(runs[:2])["stages"][-1]["num_runs"] == 2
    with pytest.raises(ValueError, match=r"stage r1, reasoning: evaluated under .* neither"):
        combine(runs)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("stages"))


@pytest.mark.slow
def test_stages_that_were_evaluated_become_a_table_a_summary_and_a_figure(
    run_folder, tmp_path, capsys
):
    readme = tmp_path / "README.md"
    readme.write_text(f"# R1\n{START}\n{END}\n")
    capsys.readouterr()
    assert table.main([str(run_folder), "--readme", str(readme)]) == 0
    printed = capsys.readouterr().out
    found = json.loads((run_folder / "summary.json").read_text())
    assert [s["name"] for s in found["stages"]] == list(STAGES)
    assert found["distilled"]["name"] == "distilled" and found["small_rl"] is None
    for stage in found["stages"]:
        report = json.loads((run_folder / "eval" / stage["name"] / "report.json").read_text())
        reasoning = report["by"]["kind"]["reasoning"]
        assert stage["reasoning_pass_at_1"] == pytest.approx(reasoning["value"])
        assert stage["reasoning_pass_at_1_se"] == pytest.approx(reasoning["stderr"])
        assert stage["format"] == report["eval_metrics"]["format"]
        assert stage["response_length_tokens"] == pytest.approx(report["response_length"]["mean"])
        assert stage["cons_k"] == 4
        for key in ("instruction_following", "helpfulness_true", "helpfulness_rm", "safety"):
            assert 0 <= stage[key] <= 1  # said of its own kind only, see below
    lines = (run_folder / "eval/zero/responses.jsonl").read_text().splitlines()
    for record in map(json.loads, lines):
        assert ("safety" in record["eval_metrics"]) <= (record["groups"]["kind"] == "harmful")
    assert len({s["helpfulness_true"] for s in found["stages"]}) == 5
    assert "cons@16" in printed and "(k = 4)" in printed and "AIME 2024 -18.9" in printed
    assert "3 held-out problems × 4 responses, temperature 1.0" in printed
    assert printed.strip() in readme.read_text()
    for folder in (run_folder, tmp_path):
        assert (folder / "stages.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "stages.pdf").read_bytes().startswith(b"%PDF")
    assert len(draw_stages(found["stages"]).axes) == 7
    # again: the same bytes
    before = (run_folder / "summary.json").read_bytes()
    assert table.main([str(run_folder), str(run_folder)]) == 0
    assert (run_folder / "summary.json").read_bytes() == before
    assert "over 2 seeds" in capsys.readouterr().out


def test_the_figure_of_the_committed_seeds_shows_every_move_of_the_paper():
    summaries = [table.read_summary(path) for path in sorted(RESULTS.glob("seed-*.json"))]
    moves = check(summaries)
    ours, paper = draw_moves(moves, table.runs_note(summaries)).axes
    compared = [move for move in moves if move["paper"]]
    assert [text.get_text() for text in ours.texts] == [
        " / ".join(dict.fromkeys(move["verdicts"].values())) for move in compared
    ]
    assert [line.get_xdata()[0] for line in paper.lines[:-1]] == [
        points for move in compared for points in move["paper"].values()
    ]
    note = "stages from models/mini; seeds 0, 1, 2; the paper's differences have no errors"
    assert ours.figure.get_supxlabel() == note


def test_several_seeds_say_what_they_can_tell_and_one_says_nothing_of_it():
    summaries = [table.read_summary(path) for path in sorted(RESULTS.glob("seed-*.json"))]
    lines = as_lines(check(summaries))
    assert any(line.endswith("| p, Holm | seen | sign wrong | more seeds |") for line in lines)
    assert RULE in lines
    # 0.925 - 0.938, 0.773 - 0.818 and 0.875 - 0.934: three seeds see 0.075, and two more settle it
    lost = next(line for line in lines if line.startswith("| RL-2 | reasoning_pass_at_1 |"))
    assert lost.endswith("| -0.039 (-0.096 to +0.018) | 0.099 | 0.59 | 0.075 | 0.049 | 2 |")
    alone = "\n".join(as_lines(check(summaries[:1])))
    assert "more seeds" not in alone and RULE not in alone


def test_a_folder_without_evaluations_is_an_error(tmp_path, capsys):
    assert table.main([str(tmp_path)]) == 2
    assert "no stage is evaluated" in capsys.readouterr().err


@pytest.mark.long
def test_a_summary_stands_for_its_run(tmp_path, capsys):
    run_folder = make_run(tmp_path, STAGES[:2])
    capsys.readouterr()
    assert table.main([str(run_folder)]) == 0
    printed = capsys.readouterr().out
    kept = tmp_path / "seed-0.json"
    kept.write_bytes((run_folder / "summary.json").read_bytes())
    assert table.main([str(kept)]) == 0
    assert capsys.readouterr().out == printed
    for text, message in (("{", "it is not JSON"), ("{}", "it has no stages")):
        kept.write_text(text)
        assert table.main([str(kept)]) == 2
        assert f"{kept}: {message}" in capsys.readouterr().err
