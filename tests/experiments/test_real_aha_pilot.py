"""The gates of the pilot on made responses."""

from __future__ import annotations

import pytest

from experiments.real_aha import authors, pilot
from experiments.real_aha.reading import Reading
from experiments.real_aha.traces import PrimingDocuments, Searches
from r1lit.files import write_records


def group(num_right: int, **fields: int) -> list[tuple[Reading, bool]]:
    own = {"attempts": 4, "computations": 6, "well_formed": True, **fields}
    return [(Reading(**own), i < num_right) for i in range(16)]


def hard(i: int) -> str:
    return f"real-aha-3-4-{i}-63-at-6"


def test_gate_1_passes_and_names_what_fails():
    good = {hard(i): group(4 if i < 7 else 0) for i in range(10)}
    good[hard(8)] = group(0, attempts=8)
    numbers = pilot.gate_1(good)
    assert numbers["pass@1"] == pytest.approx(0.175) and numbers["pass@16"] == pytest.approx(0.7)
    assert numbers["mixed_groups"] == pytest.approx(0.7)
    assert numbers["eight_attempts"] == pytest.approx(0.1)
    assert pilot.failures(numbers, pilot.GATE_1) == []
    slips = pilot.gate_1({**good, hard(9): group(0, wrong=2, repeated=3, skipped=1)})
    assert slips["wrong_computations"] == pytest.approx(2 / 60)
    assert pilot.failures(slips, pilot.GATE_1) == ["wrong_computations"]
    assert "out_of_order" in pilot.failures(
        pilot.gate_1({hard(i): group(4, repeated=1) for i in range(4)}), pilot.GATE_1
    )
    assert "pass@16" in pilot.failures(pilot.gate_1({hard(0): group(4)[:8]}), pilot.GATE_1)


def test_easy_problems_count_for_the_form_and_not_for_the_accuracy():
    hard_ones = {hard(i): group(4 if i < 7 else 0, attempts=8) for i in range(10)}
    easy = {f"real-aha-3-4-{i}-63-at-5": group(16, wrong=1) for i in range(10)}
    numbers = pilot.gate_1({**hard_ones, **easy})
    assert numbers["pass@1"] == pytest.approx(0.175)
    assert numbers["mixed_groups"] == pytest.approx(0.7)
    assert numbers["eight_attempts"] == pytest.approx(0.5)
    assert numbers["wrong_computations"] == pytest.approx(1 / 12)
    assert "pass@16" in pilot.failures(pilot.gate_1(easy), pilot.GATE_1), "no problem that counts"


def test_exact_authors_pass_gate_1_and_would_not_if_easy_problems_counted(monkeypatch):
    responses = authors.evaluation(Searches("held_out", 48).problems(), seed=0)
    numbers = pilot.gate_1(responses)
    assert pilot.failures(numbers, pilot.GATE_1) == []
    assert numbers["wrong_computations"] == numbers["out_of_order"] == 0.0
    assert numbers["well_formed"] == 1.0
    monkeypatch.setattr(pilot, "LEAST", 1)
    assert pilot.failures(pilot.gate_1(responses), pilot.GATE_1) == ["pass@1"]


def test_gate_2_asks_for_a_rise_of_a_fifth():
    assert pilot.failures(pilot.gate_2(0.2, 0.45), pilot.GATE_2) == []
    assert pilot.failures(pilot.gate_2(0.2, 0.35), pilot.GATE_2) == ["rise"]


def test_gate_3_asks_for_accuracy_and_for_attempts_beyond_sampling_error():
    up, flat = [0.2] * 5 + [0.25] * 5 + [0.3] * 5, [0.2] * 15
    before = {str(i): 2.0 for i in range(48)}
    more = {uid: 3.0 + (i % 3) for i, uid in enumerate(before)}
    assert pilot.failures(pilot.gate_3(up, before, more), pilot.GATE_3) == []
    assert pilot.failures(pilot.gate_3(flat, before, more), pilot.GATE_3) == ["accuracy_rise"]
    # one problem of 48 makes six attempts more: a rise, and within what sampling adds
    once = {**before, "0": 8.0}
    numbers = pilot.gate_3(up, before, once)
    assert numbers["attempts_rise"] == pytest.approx(0.125)
    assert pilot.failures(numbers, pilot.GATE_3) == ["attempts_rise_low"]
    assert pilot.failures(pilot.gate_3(up, more, before), pilot.GATE_3) == ["attempts_rise_low"]


def test_a_runs_rollouts_are_read_by_iteration(tmp_path):
    uid, found = "real-aha-3-4-9-63-at-3", "4+3=7,9 left:9+7=16,9-7=2. I give up."
    rows = [
        {"uid": uid, "split": split, "iteration": i, "response": found, "status": status}
        for i, split, status in ((1, "train", "right"), (0, "train", "wrong"), (1, "val", "wrong"))
    ]
    write_records(tmp_path / "responses.jsonl", rows)
    assert pilot.accuracies_of(tmp_path / "responses.jsonl") == [0.0, 1.0]
    assert pilot.attempts_of(rows) == {uid: 2.0}
    assert pilot.read_run(tmp_path / "responses.jsonl")[uid][0][0].order == [0, 1]


def test_bad_input_is_one_line(monkeypatch):
    problems = Searches("train", 8).problems()
    with pytest.raises(ValueError, match="max_tokens: 64 is too short"):
        pilot.check_limit(problems, 64, len, "model.sampling.max_tokens")
    pilot.check_limit(problems, 1024, len, "model.sampling.max_tokens")
    pilot.check_traces(PrimingDocuments())
    monkeypatch.setattr("experiments.real_aha.traces.GIVE_UP", " Perhaps I")
    with pytest.raises(ValueError, match="wrong format"):
        pilot.check_traces(PrimingDocuments())


def test_a_cpu_without_bfloat16_is_refused(monkeypatch, capsys):
    pilot.check_machine(is_fast=False, slow=True)
    monkeypatch.setattr(pilot, "has_fast_bfloat16", lambda: False)
    assert pilot.main([]) == 2
    assert "no bfloat16 instructions: the pilot would take several" in capsys.readouterr().err


def test_the_table_has_every_bound():
    numbers = {"pass@1": 0.2, "pass@1_banned": 0.3, "rise": 0.1}
    table = pilot.as_table([{"gate": 2, "numbers": numbers, "failed": ["rise"]}])
    assert "| 2 | rise | 0.100 | failed |" in table
