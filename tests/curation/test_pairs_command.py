"""``r1lit-pairs`` as a command: judgements in both orders, files, and going on after a stop."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from tiny import ROOT

from r1lit.curation import pairs as command
from r1lit.curation.pairs import build_pairs, main
from r1lit.data import TablePairs

ASKED: list[tuple[str, str, str, int]] = []
LOCK = threading.Lock()


def likes_fives(prompt: str, first: str, second: str, judgement_index: int = 0) -> float:
    """Prefers more fives, and by half a point whatever stands first."""
    with LOCK:
        ASKED.append((prompt, first, second, judgement_index))
    return float(first.count("5") - second.count("5")) + 0.5


def likes_what_is_first(prompt: str, first: str, second: str) -> float:
    return 5.0


def says_nothing(prompt: str, first: str, second: str) -> float | None:
    return None


def says_nan(prompt: str, first: str, second: str) -> float:
    return float("nan")


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    ASKED.clear()


@pytest.fixture
def responses(tmp_path: Path) -> str:
    """Sixty prompts with a response of four fives and one of none, one of the two longer."""
    records: list[dict[str, Any]] = []
    for n in range(60):
        good, bad = "5555", "none"
        longer = " and more of it" * (1 + n // 2 % 3)
        good, bad = (good + longer, bad) if n % 2 else (good, bad + longer)
        both = {"uid": f"u{n:02d}", "question": f"Fives {n}?", "finished": True}
        records.append({**both, "sample": 0, "response": f"<think> a </think> {good}"})
        records.append({**both, "sample": 1, "response": f"<think> b </think> {bad}"})
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_command_writes_pairs_that_the_reward_model_s_data_reads(tmp_path, responses, capsys):
    judge = f"{__name__}.likes_fives"
    card = main([f"--responses=[{responses}]", f"--dirpath={tmp_path}/out", f"--judge={judge}"])
    assert json.loads(capsys.readouterr().out) == card
    assert card == json.loads((tmp_path / "out" / "card.json").read_text())
    assert (card["pairs_compared"], card["judgements"], card["pairs"]) == (60, 240, 60)
    assert card["length"]["share_longer_chosen"] == 0.5
    assert card["mean_difference"] == 4.0  # the liking for the first cancels over both orders
    assert card["settings"]["margin"] == 1.0 and card["settings"]["judge"] == "likes_fives"
    examples = TablePairs(str(tmp_path / "out" / "pairs.jsonl")).examples()
    assert len(examples) == 60
    assert all("5555" in e.responses[0] and "none" in e.responses[1] for e in examples)
    assert all(e.responses[0].startswith("<think>") for e in examples)  # whole responses
    shown = {frozenset((first, second)) for _, first, second, _ in ASKED}
    assert not any("think" in text for both in shown for text in both)


def test_each_pair_is_judged_in_both_orders(tmp_path, responses):
    build_pairs([responses], str(tmp_path / "out"), likes_fives, num_threads=3)
    by_prompt: dict[str, list[str]] = {}
    for prompt, first, _, _ in ASKED:
        by_prompt.setdefault(prompt, []).append(first)
    assert len(by_prompt) == 60
    for firsts in by_prompt.values():
        assert sorted(firsts.count(text) for text in set(firsts)) == [2, 2]


def test_a_judge_that_only_likes_what_is_first_gives_no_pair(tmp_path, responses):
    card = build_pairs([responses], str(tmp_path / "out"), likes_what_is_first)
    assert card["pairs"] == 0 and card["dropped"]["pairs_within_margin"] == 60
    assert card["first_preferred"] == 1.0


def test_lengths_are_balanced_unless_it_is_switched_off(tmp_path, responses):
    records = [r for r in lines(Path(responses)) if int(r["uid"][1:]) % 4 != 0]  # half the shorter
    path = tmp_path / "uneven.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    card = build_pairs([str(path)], str(tmp_path / "even"), likes_fives)
    assert card["length_before_balance"]["share_longer_chosen"] == pytest.approx(30 / 45)
    assert card["length"]["share_longer_chosen"] == 0.5
    assert card["pairs"] == 45 - card["dropped"]["pairs_for_balance_of_length"] < 45
    card = build_pairs([str(path)], str(tmp_path / "as-is"), likes_fives, balance=False)
    assert card["pairs"] == 45


def test_the_configuration_of_the_page_is_read(tmp_path, monkeypatch):
    """With no response there is nothing to ask the page's endpoint."""
    page = (ROOT / "docs" / "REWARD_MODELS.md").read_text()
    block = next(b for b in re.findall(r"```yaml\n(.*?)```", page, re.S) if "judge:" in b)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.yaml").write_text(block)
    (tmp_path / "none.jsonl").write_text("")
    card = main(["-c", "pairs.yaml", "--responses=[none.jsonl]"])
    assert card["pairs"] == 0 and card["settings"]["num_judgements"] == 4
    assert card["settings"]["judge"]  # the endpoint's model
    assert (tmp_path / "runs" / "pairs" / "card.json").is_file()


@pytest.mark.parametrize("torn", [False, True])
def test_what_was_judged_is_not_judged_again(tmp_path, responses, torn):
    whole, again = tmp_path / "whole", tmp_path / "again"
    build_pairs([responses], str(whole), likes_fives)
    again.mkdir()
    kept = (whole / "judgements.jsonl").read_text().splitlines(keepends=True)[:100]
    (again / "judgements.jsonl").write_text("".join(kept) + '{"key": "ab' * torn)
    ASKED.clear()
    build_pairs([responses], str(again), likes_fives)
    assert len(ASKED) == 140
    for name in ("pairs.jsonl", "card.json"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    ASKED.clear()  # another judge's judgements are not taken for its own
    build_pairs([responses], str(again), likes_fives, judge_name="other")
    assert len(ASKED) == 240


def test_judgements_of_another_seed_serve_where_the_order_is_the_same(tmp_path, responses):
    """Of four judgements two show either response first, whoever they were made for."""
    build_pairs([responses], str(tmp_path), likes_fives, seed=1)
    ASKED.clear()
    card = build_pairs([responses], str(tmp_path), likes_fives)
    assert 0 < len(ASKED) < 240
    assert card["mean_difference"] == 4.0
    asked = {(a["key"], a["draw"], a["turned"]) for a in lines(tmp_path / "judgements.jsonl")}
    assert len(asked) == 240 + len(ASKED)
    build_pairs([responses], str(tmp_path / "anew"), likes_fives)
    for name in ("pairs.jsonl", "card.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "anew" / name).read_bytes()


def test_a_judge_that_fails_is_counted_and_one_that_is_broken_ends_the_command(tmp_path, responses):
    card = build_pairs([responses], str(tmp_path / "out"), says_nothing)
    assert card["dropped"]["pairs_not_judged"] == 60 and card["judgements"] == 0
    assert card["mean_difference"] is None and card["first_preferred"] is None
    with pytest.raises(ValueError, match="judge: it returned nan"):
        build_pairs([responses], str(tmp_path / "nan"), says_nan)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_judgements": 0}, "num_judgements: 0 is not at least 1"),
        ({"margin": -1.0}, r"margin: -1.0 is not at least 0"),
        ({"responses": ["no.jsonl"]}, "there is no file 'no.jsonl'"),
    ],
)
def test_what_is_out_of_range_is_named(tmp_path, responses, options, says):
    with pytest.raises(ValueError, match=says):
        build_pairs(**({"responses": [responses], "dirpath": str(tmp_path / "out"),
                        "judge": likes_fives} | options))  # fmt: skip


def test_a_line_without_a_key_is_named_and_ends_the_script_in_one_line(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"uid": "a", "sample": 0, "question": "Q?"}\n')
    given = [f"--responses=[{path}]", f"--dirpath={tmp_path}", f"--judge={__name__}.likes_fives"]
    monkeypatch.setattr("sys.argv", ["r1lit-pairs", *given])
    with pytest.raises(SystemExit) as stop:
        command.run()
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert "line 1 has no 'response'" in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--margn=2", "margn: there is no such key"),
        ("--judge=no.such.judge", "judge"),
        ("--margin=far", "margin"),
    ],
)
def test_what_cannot_be_read_ends_the_script_in_one_line(
    tmp_path, responses, capsys, monkeypatch, option, says
):
    given = [f"--responses=[{responses}]", f"--dirpath={tmp_path}/out"]
    given += [f"--judge={__name__}.likes_fives", option]
    monkeypatch.setattr("sys.argv", ["r1lit-pairs", *given])
    with pytest.raises(SystemExit) as stop:
        command.run()
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("r1lit-pairs: error: ") and says in shown and shown.count("\n") == 1
