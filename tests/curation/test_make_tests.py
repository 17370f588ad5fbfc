"""Tests made for programs: which inputs stay, which are chosen, and what they tell apart."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from r1lit.curation.make_tests import (
    TestWriter,
    agreed,
    main,
    make_tests,
    read_programs,
    written_inputs,
)
from r1lit.data import TaskTable
from r1lit.endpoint.client import RequestError
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.verifiers import StdinCodeVerifier

QUESTION = "Read n and then n whole numbers. Print the largest."
RIGHT = [
    "input()\nprint(max(map(int, input().split())))",
    "n = int(input())\nbest = None\nfor x in input().split():\n    x = int(x)\n"
    "    best = x if best is None or x > best else best\nprint(best)",
]
FROM_ZERO = "input()\nprint(max(0, *map(int, input().split())))"
FIRST_OR_LAST = "input()\na = input().split()\nprint(max(int(a[0]), int(a[-1])))"
INPUTS = [
    "3\n1 2 3\n",  # exposes nobody
    "3\n1 5 3\n",  # the one that skips the middle
    "2\n-4 -2\n",  # the one that begins at zero
    "1\n1.5\n",  # against the format: solutions fail
    "3\n1 2 3\n",  # twice
    "4\n2 1 1 2\n",
]


class Writer:
    """A model that replies with generators, each of which prints one of these inputs."""

    name = "writer"

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if "Say hello" in prompt:
            return "I will not."
        return "So:\n" + "\nOr:\n".join(
            f"```python\nimport random\nprint({text!r}, end='')\n```" for text in INPUTS
        )


def table(path: Path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ROW = {"prompt": QUESTION, "solutions": RIGHT, "incorrect_solutions": [FROM_ZERO, FIRST_OR_LAST]}


def test_the_tests_tell_right_from_wrong_programs(tmp_path):
    out, model = tmp_path / "tested.jsonl", Writer()
    hello = {"prompt": "Say hello", "solutions": RIGHT}
    alone = {"prompt": "Alone", "solutions": RIGHT[:1]}
    problems = table(tmp_path / "p.jsonl", ROW, hello, alone)
    found = make_tests(problems, str(out), TestWriter(model, attempts=1), num_tests=2)
    why = "no program in the writer's reply"
    assert found == {"problems": 3, "tested": 1, why: 1, "too few solutions": 1}
    assert f"Question:\n{QUESTION}\n\nConstruct some random input generators" in model.prompts[0]
    (made,) = (json.loads(line) for line in out.read_text().splitlines())
    assert made["tests"]["inputs"] == INPUTS[1:3], "the two that expose somebody"
    assert [text.split() for text in made["tests"]["outputs"]] == [["5"], ["-2"]]
    assert made["tests_made"] == {"inputs": 5, "agreed": 4, "wrong_programs": 2, "exposed": 2}

    source = TaskTable(path=str(out), verifier="stdin_code", meta={"tests": "tests"})
    (problem,) = source.problems()
    verifier = StdinCodeVerifier(num_workers=1)
    fenced = [f"```python\n{code}\n```" for code in (*RIGHT, FROM_ZERO, FIRST_OR_LAST)]
    assert [verifier.verify(text, problem).status for text in fenced] == ["right"] * 2 + [
        "wrong"
    ] * 2
    verifier.close()

    again = make_tests(table(tmp_path / "q.jsonl", ROW), str(out), TestWriter(model))
    assert again == {"problems": 1, "made before": 1} and len(out.read_text().splitlines()) == 1


def printing(*texts: str) -> str:
    """A program whose answer to input k is texts[k]; an empty one is a failure."""
    return (
        f"import sys\ntext = {texts!r}[int(input())]\nif not text:\n    sys.exit(1)\n"
        "sys.stdout.buffer.write(text.encode('latin-1'))"
    )


def test_an_answer_is_one_that_all_solutions_give():
    inputs = {index: f"{index}\n" for index in range(5)}
    solutions = [
        printing("1", "2.0", "", " ", "\xe9"),
        printing("1", "2.0000001", "3", " ", "\xe9"),
    ]
    with LocalSandbox() as sandbox:
        found = agreed(sandbox, solutions, inputs, Limits(), threading.Event())
        assert {index: answer for index, (answer, _) in found.items()} == {0: "1", 1: "2.0"}
        stop = threading.Event()
        stop.set()
        assert agreed(sandbox, solutions, inputs, Limits(), stop) == {}


def test_a_solution_does_not_agree_with_itself(tmp_path):
    twice = table(tmp_path / "p.jsonl", ROW | {"solutions": RIGHT[:1] * 2})
    with pytest.raises(ValueError, match="'too few solutions': 1"):
        make_tests(twice, str(tmp_path / "out.jsonl"), TestWriter(Writer()))


def test_a_line_that_a_kill_tore_is_made_again(tmp_path):
    out = tmp_path / "out.jsonl"
    first = json.dumps({"prompt": "made before"}) + "\n"
    out.write_text(first + '{"prompt": "Read n and')
    found = make_tests(table(tmp_path / "p.jsonl", ROW), str(out), TestWriter(Writer()))
    assert found == {"problems": 1, "tested": 1}
    assert [json.loads(x)["prompt"] for x in out.read_text().splitlines()][1] == QUESTION


def test_a_writer_that_cannot_be_reached_is_said(tmp_path):
    def gone(prompt: str) -> str:
        raise RequestError("no answer from http://x")

    problems = table(tmp_path / "p.jsonl", ROW)
    with pytest.raises(ValueError, match="the writer: no answer from http://x"):
        make_tests(problems, str(tmp_path / "out.jsonl"), TestWriter(gone))


def test_a_language_that_is_missing_leaves_its_problem_out(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalSandbox, "languages", ("python",))
    cpp = ROW | {"prompt": "C++", "solutions": ["#include <iostream>\nint main() {}", *RIGHT]}
    problems = table(tmp_path / "p.jsonl", ROW, cpp)
    found = make_tests(problems, str(tmp_path / "out.jsonl"), TestWriter(Writer()))
    assert found["tested"] == 1 and any(why.startswith("the sandbox: ") for why in found)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("```python\nraise SystemExit(1)\n```", "the writer's program failed"),
        ("```python\nprint('x' * 200_001)\n```", "the writer's programs printed no input"),
        ("```python\nprint(' ')\n```", "the writer's programs printed no input"),
        ("```python\n...\n```", "no program in the writer's reply"),
        (
            "```python\nimport sys\nsys.stdout.buffer.write(bytes([255]))\n```",
            "the writer's programs printed no input",
        ),
        ("```python\nprint('x')\n```", "solutions agree on no input"),
    ],
)
def test_what_a_writer_does_wrong_is_said(tmp_path, reply, why):
    problems = table(tmp_path / "p.jsonl", ROW)
    with pytest.raises(ValueError, match=f"none of 1 got tests: .*{why}"):
        make_tests(problems, str(tmp_path / "out.jsonl"), TestWriter(lambda prompt: reply))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solutions": "print(1)"}, "line 1 has no list of programs under 'solutions'"),
        ({"prompt": None}, "line 1 has no text under 'prompt'"),
    ],
)
def test_a_line_that_lacks_a_key_is_named(tmp_path, change, message):
    problems = table(tmp_path / "p.jsonl", ROW | change)
    with pytest.raises(ValueError, match=message):
        make_tests(problems, str(tmp_path / "out.jsonl"), TestWriter(Writer()))


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    out = tmp_path / "tested.jsonl"
    problems, cache = table(tmp_path / "p.jsonl", ROW), tmp_path / "replies.sqlite"
    options = ["--writer.model=test_make_tests.Writer", f"--writer.cache={cache}"]
    main([f"--problems={problems}", f"--output={out}", *options])
    with pytest.raises(ValueError, match="num_tezts"):
        main([f"--problems={problems}", f"--output={out}", "--num_tezts=3", *options])
    assert "'tested': 1" in capsys.readouterr().out and out.is_file()


def test_generators_run_with_seeds_until_there_are_enough_inputs():
    """One generator alone makes all inputs, the same ones each time the command runs."""
    reply = "```python\nimport random\nprint(2)\nprint(random.randint(0, 10**9), 1)\n```"
    [code] = read_programs(reply, "") or []
    with LocalSandbox() as sandbox:
        first, again, other = (
            written_inputs(sandbox, [code], Limits(), count=6, seed=seed) for seed in (1, 1, 2)
        )
    assert first == again != other and len(first) == 6
