"""Distillation from real solutions against RL: its solutions and its steps."""

from __future__ import annotations

from experiments.__main__ import main
from experiments.real_distillation import solutions
from r1lit.files import read_records, write_records


def judged(n: int, label: int = -1, size: int = 0) -> dict[str, object]:
    return {
        "id": f"gsm8k-{n}", "problem": f"Problem {n}?", "label": label,
        "steps": ["First." + "x" * size, f"So \\boxed{{{n}}}."], "final_answer_correct": True,
    }  # fmt: skip


def gold(n: int, num_steps: int = 1) -> dict[str, str]:
    return {"question": f"Problem {n}?", "answer": "<<1+1=2>>" * num_steps + f"\n#### 1,{n:03}"}


def test_the_shortest_right_solutions_are_taken_and_their_problems_are_not_held_out(tmp_path):
    num = solutions.NUM_SOLUTIONS + 2
    rows = [judged(n, size=n) for n in range(num)]
    rows[0]["label"] = 1  # a wrong step
    problems = [gold(n) for n in range(num + solutions.NUM_HELD_OUT)]
    problems += [gold(n, num_steps=4) for n in range(1000, 1050)]
    write_records(tmp_path / "bench.jsonl", rows)
    write_records(tmp_path / "gold.jsonl", problems)
    tables = [str(tmp_path / "bench.jsonl"), str(tmp_path / "gold.jsonl")]
    assert solutions.main([*tables, "--to", str(tmp_path)]) == 0
    made = {
        name: read_records(tmp_path / f"{name}.jsonl")
        for name in ("documents", "problems", "held_out")
    }
    questions = [row["prompt"] for row in made["documents"]]
    assert questions == [f"Problem {n}?" for n in range(1, num - 1)]
    assert made["documents"][0]["response"] == "First.x\n\nSo \\boxed{1}."
    assert [row["question"] for row in made["problems"]] == questions
    assert made["problems"][0]["answer"] == "1001"
    held_out = {row["question"] for row in made["held_out"]}
    assert held_out == {f"Problem {n}?" for n in range(num, num + solutions.NUM_HELD_OUT)}


def test_too_few_solutions_are_named(tmp_path, capsys):
    write_records(tmp_path / "bench.jsonl", [judged(1)])
    write_records(tmp_path / "gold.jsonl", [gold(1)])
    tables = [str(tmp_path / "bench.jsonl"), str(tmp_path / "gold.jsonl")]
    assert solutions.main([*tables, "--to", str(tmp_path)]) == 2
    assert "process_bench: 1 rows can be used; 96 are needed" in capsys.readouterr().err


def test_the_steps_of_the_study_are_read(capsys):
    tables = ["process_bench=missing.jsonl", "gsm8k=gsm8k.jsonl"]
    assert main(["real_distillation", *tables, "--dry-run"]) == 0
    names = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert names == [
        "solutions", "base_evaluation", "distilled", "distilled_evaluation", "rl", "rl_evaluation"
    ]  # fmt: skip
