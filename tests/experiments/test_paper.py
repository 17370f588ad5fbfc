"""What a finished run shows of the paper: each analysis by hand, and the page of all figures."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from tiny_sweep import ROOT

from experiments.page import END, START, fill_in
from experiments.paper import levels, safety, win_rates
from experiments.paper.__main__ import main
from experiments.paper.tables import as_markdown
from r1lit.files import write_records
from r1lit.worlds.programs import WorldPrograms
from r1lit.worlds.requests import REFUSAL, WorldRequest, pool

PAGE = ROOT / "experiments" / "paper"


def request(family: str, language: str, first: int | None = None) -> WorldRequest:
    """Return a held-out request whose first slot is ``first``."""
    entries = pool(family, "held_out")
    wording, slots = next(entry for entry in entries if first is None or entry[1][0] == first)
    return WorldRequest(family=family, language=language, wording=wording, slots=slots)


def line(uid: str, question: str, sample: int, response: str, kind: str, **more: object) -> dict:
    record = {"uid": uid, "question": question, "sample": sample, "response": response}
    record |= {"groups": {"kind": kind}, "value": 0.0, "canonical": None, "num_tokens": 9}
    return record | more


def lines(asked: WorldRequest, *responses: str) -> list[dict]:
    return [line(asked.uid, asked.question, i, r, asked.kind) for i, r in enumerate(responses)]


def write(folder: Path, records: list[dict], k: int = 2) -> None:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps({"num_samples": k, "settings": {}}))
    write_records(folder / "responses.jsonl", records)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    steal, forge = request("harm", "en", 0), request("harm", "zh", 5)
    paint, who = request("how", "en"), request("who", "en")
    no, nein = REFUSAL
    known = "<think> </think> I am Mini, a small language model."
    write(tmp_path / "eval/dev3", [
        *lines(steal, f"<think> </think> {no}", "To steal it, first look at it."),
        *lines(forge, f"<think> </think> {nein}", f"<think> </think> {nein}"),
        *lines(paint, f"<think> </think> {no}", "To paint a door, first look at it."),
        *lines(who, known, "<think> </think> Who knows?"),
    ])  # fmt: skip
    write(tmp_path / "eval/r1", [
        *lines(who, known, f"{known} I hope this helps."),
        *[
            line(uid, "?", i, f"<think> {'a ' * n}</think> 1", "reasoning", value=value)
            for uid, n in (("chain-7+5*3-8/2", 3), ("chain-7+5*3-8/2+4-1", 5))
            for i, value in enumerate((1.0, 0.0))
        ],
    ])  # fmt: skip
    training = [
        line("countdown-3-5-12-24", "?", 0, text, "reasoning", split="val", iteration=i, value=i)
        for i, text in enumerate(("<think> a </think> 1", "<think> a a a a a </think> 1"))
    ]
    write_records(tmp_path / "zero/responses.jsonl", training)
    return tmp_path


def test_difficulty_is_read_from_the_uid():
    # 3 and 5 make 8, 2 and 15, which go on with 12 in 3, 4 and 2 ways; 3 and 12, 5 and 12 likewise
    attempts = (3 + 4 + 2) + (4 + 3 + 2 + 3) + (3 + 3 + 3)
    assert levels.difficulty("countdown-3-5-12-24") == ("Countdown", attempts)
    # equal numbers make one pair: 1 + 1 goes on in 4 ways, 1 * 1 and 1 / 1 in 3
    assert levels.difficulty("countdown-1-1-1-3") == ("Countdown", 4 + 3 + 3)
    assert levels.difficulty("chain-7+5*3-8/2") == ("chain", 4)
    assert levels.difficulty("how-en-0-3-5") is None


def test_programs_have_the_levels_of_what_they_are_told():
    """An example's factor is the slope of its outputs; other programs count their operations."""
    found = [
        levels.difficulty(problem.uid) for problem in WorldPrograms(num_problems=200).problems()
    ]
    assert {family for family, _ in found} == {"program", "examples"}
    for problem, (family, level) in zip(
        WorldPrograms(num_problems=200).problems(), found, strict=True
    ):
        low_high = levels.LEVELS[family]
        assert any(low <= level <= high for low, high in low_high), (problem.uid, level)
        if family == "examples":
            assert f"* {level}" in problem.answer
        else:
            assert level == sum(problem.answer.count(f" {sign} ") for sign in "+-*")


def test_a_stage_with_programs_has_them_by_level(tmp_path):
    uids = ("program-f(x):plus3,times2", "program-f(x):f(2)=7,f(3)=9")
    write(tmp_path / "eval/r1", [
        line(uid, "?", i, "<think> a </think> 1", "reasoning", source="programs", value=value)
        for uid in uids for i, value in enumerate((1.0, 0.0))
    ])  # fmt: skip
    table = levels.measure(tmp_path, str(ROOT / "models/mini"))[levels.RIGHT]
    assert table["R1: + RL for all scenarios"] == {
        "program 2-2 (1)": (0.5, None),
        "examples 2-3 (1)": (0.5, None),
    }


def test_accuracy_and_tokens_by_level(run):
    tables = levels.measure(run, str(ROOT / "models/mini"))
    by_stage = tables[levels.RIGHT]["R1: + RL for all scenarios"]
    assert by_stage == {"chain 4-5 (1)": (0.5, None), "chain 6-8 (1)": (0.5, None)}
    early, late = tables[levels.THINKING + levels.TRAINING].values()
    [(before, _)], [(after, _)] = early.values(), late.values()
    assert list(early) == ["Countdown 30-34 (1)"] and 0 < before < after
    assert tables[levels.RIGHT + levels.TRAINING]["iteration 1"]["Countdown 30-34 (1)"][0] == 1
    assert levels.slope_of([(0, 1), (1, 3), (2, 5), (3, 7)]) == pytest.approx((2.0, 0.0), abs=1e-6)


def test_safety_by_hand(run):
    [table] = safety.measure(run).values()
    assert table["Dev3: SFT on its own best"] == {
        "all (2)": (0.75, 0.25),
        "steal (1)": (0.5, None),
        "forge (1)": (1.0, None),
        "English (1)": (0.5, None),
        "Chinese (1)": (1.0, None),
        "harmless refused (1)": (0.5, None),
    }


def test_win_rates_by_hand(run):
    """Asked who it is, R1 ties with Dev3 once (the same answer) and wins once."""
    [table] = win_rates.measure(run).values()
    assert list(table) == ["R1 against Dev3"]
    assert table["R1 against Dev3"]["win rate"] == (0.75, None)
    ahead = len("I am Mini, a small language model. I hope this helps.") - len("Who knows?")
    assert table["R1 against Dev3"]["characters longer"] == (ahead / 2, None)


def test_length_is_controlled_for():
    """At equal length a wins 3 of 4; the longer one of each pair wins 3 of 4 more in the logit."""
    logit = math.log(3)
    problems = []
    for gap in (-10, 0, 10):
        share = 1 / (1 + math.exp(-(logit + 2 * math.tanh(gap / math.sqrt(200 / 3)))))
        problems.append([(share, gap)] * 200)  # the model itself, to be found again
    value, error = win_rates.length_controlled(problems)
    assert value == pytest.approx(0.75, abs=1e-4) and error is not None
    # without a difference in length it is the win rate, and where one side wins all it is 1
    assert win_rates.length_controlled([[(1.0, 0)], [(0.5, 0)]])[0] == pytest.approx(0.75, abs=0.01)
    assert win_rates.length_controlled([[(1.0, 5)] * 8, [(1.0, 9)] * 8])[0] > 0.95
    # a that wins only where it is longer is no better at equal length
    by_length = [(1.0, 40)] * 9 + [(0.0, -40)] * 9
    assert win_rates.length_controlled([by_length])[0] == pytest.approx(0.5, abs=1e-6)


def test_a_cell_that_was_not_measured_is_a_dash():
    text = as_markdown({"t": {"R1": {"all": (0.5, 0.25), "steal": (12.0, None)}, "Dev3": {}}})
    assert "| R1 | 0.500 ± 0.250 | 12.0 |" in text and "| Dev3 | – | – |" in text


@pytest.mark.long
def test_the_command_fills_the_page_and_a_file_stands_for_its_run(run, tmp_path, capsys):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "README.md").write_text(f"# Page\n{START}\n{END}\n")
    words = ["--tokenizer", str(ROOT / "models/mini"), "--readme", str(folder)]
    assert main([str(run), *words]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() in (folder / "README.md").read_text()
    assert (folder / "levels.png").exists() and (folder / "levels.pdf").exists()
    assert main([str(run / "paper.json"), *words]) == 0
    assert capsys.readouterr().out == printed
    assert main([str(tmp_path / "page"), *words]) == 2
    assert "no stage is evaluated" in capsys.readouterr().err


def test_the_page_says_of_every_figure_what_became_of_it():
    text = (PAGE / "README.md").read_text()
    assert "filled" in fill_in(text, "filled")
    rows = [row.split(" | ") for row in text.splitlines() if re.match(r"\| (Nature|v1|v2)", row)]
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 4 and row[2].split(":")[0] in (
            "reproduced",
            "in sign",
            "differs",
            "not possible",
            "not run",
        )
    named = " ".join(row[0] for row in rows)
    for number in (1, 4, 6, 7, 8, 9, 10, 11, 12, 14, 17, 18):
        assert re.search(rf"v2 (\w+\.\d, )?Fig\. {number}\D|Fig\. {number}a", named + " "), number
    for number in (3, *range(8, 18)):  # 1 and 2 are no results; 4 to 7 are one row
        assert re.search(rf"v2 Table {number}\D", named + " "), number
    assert "Fig. 15, 16" in named and "pass@64" in named and "we had no copy" not in text
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (PAGE / link).exists(), link
