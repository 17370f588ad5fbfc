"""The stages of R1 on a real model: its traces, its pairs and its steps."""

from __future__ import annotations

from experiments.__main__ import main
from experiments.real_stages import preferences, traces
from experiments.real_stages.report import mean_and_gain
from r1lit.files import read_records, write_records


def trace(question: int, size: int) -> dict[str, str]:
    return {"prompt": f"Question {question}?", "thinking": " Hm. " + "x" * size, "output": "Yes.\n"}


def test_the_shortest_trace_of_each_question_is_taken_and_none_is_in_both_files(tmp_path):
    num = traces.NUM_TRAINED + traces.NUM_HELD_OUT
    table = tmp_path / "traces.jsonl"
    write_records(table, [trace(q, 10 * q + extra) for q in range(num + 3) for extra in (5, 0)])
    assert traces.main([str(table), "--to", str(tmp_path)]) == 0
    train, held_out = (read_records(tmp_path / f"{n}.jsonl") for n in ("train", "held_out"))
    asked = [int(row["prompt"].split()[1][:-1]) for row in [*train, *held_out]]
    assert (len(train), len(held_out)) == (24, 8) and sorted(asked) == list(range(num))
    assert train[0]["response"] == "<think>\nHm.\n</think>\n\nYes."


def test_too_few_questions_are_named(tmp_path, capsys):
    write_records(tmp_path / "traces.jsonl", [trace(0, 1)] * 40)
    assert traces.main([str(tmp_path / "traces.jsonl"), "--to", str(tmp_path)]) == 2
    assert "1 questions have a response; 32 are needed" in capsys.readouterr().err


def test_the_steps_of_the_study_are_read(capsys):
    tables = ["traces=missing.jsonl", "pairs=pairs.jsonl", "word_problems=svamp.jsonl"]
    assert main(["real_stages", *tables, "--dry-run"]) == 0
    names = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert names[:3] == ["base_evaluation", "traces", "cold_start"] and len(names) == 2 * 25


def test_a_stage_without_scores_has_a_dash():
    assert mean_and_gain({}, {}) == "–"


def conversation(n: int, chosen: str = "Yes.", rejected: str = "No.") -> dict[str, str]:
    human, assistant = preferences.HUMAN, preferences.ASSISTANT
    return {
        "chosen": f"{human} {n}?{assistant} {chosen}",
        "rejected": f"{human} {n}?{assistant} {rejected}",
    }


def test_a_request_is_in_one_file_and_only_conversations_of_one_turn_are_taken(tmp_path):
    num = sum(preferences.SHARES.values())
    longer = conversation(-1, f"Yes.{preferences.HUMAN} Sure?{preferences.ASSISTANT} Yes.")
    rows = [longer, *(conversation(n) for n in range(num)), conversation(0, "Yes, yes.")]
    write_records(tmp_path / "pairs.jsonl", rows)
    assert preferences.main([str(tmp_path / "pairs.jsonl"), "--to", str(tmp_path)]) == 0
    files = {name: read_records(tmp_path / f"{name}.jsonl") for name in preferences.SHARES}
    assert {name: len(rows) for name, rows in files.items()} == preferences.SHARES
    requests = [row.get("prompt", row.get("question")) for rows in files.values() for row in rows]
    assert sorted(requests) == sorted(f"{n}?" for n in range(num))
    assert set(files["judge"][0]) == {"prompt", "chosen", "rejected"}


def test_too_few_conversations_are_named(tmp_path, capsys):
    write_records(tmp_path / "pairs.jsonl", [conversation(0)])
    assert preferences.main([str(tmp_path / "pairs.jsonl"), "--to", str(tmp_path)]) == 2
    assert "1 conversations of one turn; 480 are needed" in capsys.readouterr().err
