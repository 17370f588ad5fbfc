"""The ranking of tasks on a tiny policy, how it goes on, and what counts as an answer."""

from __future__ import annotations

import pytest
import yaml
from tiny import save_policy

from experiments.difficulty import GymVerifier, Ranking, answer_in, gym_problems, main, table
from r1lit.files import read_records, write_records
from r1lit.problems import Problem
from r1lit.rollout import Sampling

CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ '\n' }}"
SMALL = ["--num-problems", "3", "--num-samples", "2", "--max-tokens", "4"]


@pytest.fixture
def model(tmp_path):
    policy = save_policy(tmp_path / "policy")
    (policy / "chat_template.jinja").write_text(CHAT)
    return policy


@pytest.mark.parametrize(
    ("response", "gold", "answer"),
    [
        ("The GCD of 4 and 6 is 2.", "3", "2"),
        ("I cannot say.", "3", None),
        ("<answer> 5 </answer> or 6", "3", "5"),
        ("Sure, sorted:\napple, bear", "apple, bear", "apple, bear"),
        ("So the answer is B. Done.", "A", "B"),
        ("", "A", None),
    ],
)
def test_what_is_taken_as_the_answer(response, gold, answer):
    assert answer_in(response, gold) == answer


def test_a_gold_answer_of_reasoning_gym_is_right_and_another_is_wrong():
    pytest.importorskip("reasoning_gym")
    verifier = GymVerifier()
    for problem in gym_problems("gcd", 4, verifier, seed=1):
        right = verifier.verify(f"The GCD is {problem.answer}.", problem)
        wrong = verifier.verify(f"The GCD is {int(problem.answer) + 1}.", problem)
        assert [right.status, wrong.status] == ["right", "wrong"]


def test_a_scorer_that_raises_reads_no_answer():
    pytest.importorskip("reasoning_gym")
    verifier = GymVerifier()
    problem = gym_problems("prime_factorization", 1, verifier, seed=0)[0]
    assert verifier.verify("two times three", problem).value == 0.0


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_base_model_without_a_chat_template_is_asked_as_r1_zero_was(tmp_path, is_chat):
    policy = save_policy(tmp_path / "policy")
    ranking = Ranking(str(policy), Sampling(max_tokens=4), 2, "{question}", seed=0)
    ranking.tokenizer.chat_template = CHAT if is_chat else None
    problem = Problem(uid="p", question="What is 1 plus 1?", answer="2", source="s")
    text = ranking.tokenizer.decode(ranking.prompts([problem])[0])
    assert "What is 1 plus 1?" in text
    assert ("A conversation between User and Assistant" in text) == (not is_chat)


def test_tasks_are_ranked_and_a_second_command_makes_only_what_is_missing(model, tmp_path, capsys):
    pytest.importorskip("reasoning_gym")
    rows = tmp_path / "rows.jsonl"
    write_records(rows, [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(5)])
    source = {"class_path": "r1lit.data.TableProblems", "init_args": {"path": str(rows)}}
    data = tmp_path / "data.yaml"
    data.write_text(yaml.safe_dump({"plus_one": source}))
    output = tmp_path / "out"
    common = [str(model), *SMALL, "--output", str(output)]
    assert main([*common, "--tasks", "gcd"]) == 0
    first = (output / "tasks.jsonl").read_text()
    assert main([*common, "--tasks", "gcd", "--data", str(data)]) == 0
    assert (output / "tasks.jsonl").read_text().startswith(first)
    records = read_records(output / "tasks.jsonl")
    assert [r["task"] for r in records] == ["gcd", "plus_one"]
    for record in records:
        assert len(record["num_right"]) == record["num_problems"] == 3
        share = sum(record["num_right"]) / 6
        assert record["pass_at_1"]["value"] == pytest.approx(share)
    assert table(records) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no/such/folder"], "policy: "),
        (["{model}", "--tasks", "gdc"], "--tasks: reasoning-gym has no 'gdc'"),
        (["{model}", "--num-samples", "0"], "--num-samples: 0 is below 1"),
        (["{model}", "--tasks", "--data", "{wrong}"], "is not a mapping of names to sources"),
        (["{model}", "--tasks", "--data", "{unknown}"], "unknown.yaml: gsm: "),
    ],
)
def test_bad_input_is_one_line(arguments, said, model, tmp_path, capsys):
    pytest.importorskip("reasoning_gym")
    names = {"model": model, "wrong": tmp_path / "wrong.yaml", "unknown": tmp_path / "unknown.yaml"}
    names["wrong"].write_text("[1]")
    names["unknown"].write_text("gsm: {class_path: r1lit.data.TablePromblems}")
    filled = [argument.format_map(names) for argument in arguments]
    assert main([*filled, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len([line for line in error if "error:" in line]) == 1 and said in error[-1]
