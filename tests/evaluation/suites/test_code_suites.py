"""Suites of programs and of long texts: extraction, known verdicts, real rows."""

from __future__ import annotations

import gzip
import json

import pytest
from suite_rows import write_rows
from tiny import ROOT

from r1lit.evaluation.suites import load_suite
from r1lit.evaluation.suites.long_context import LongContext
from r1lit.verifiers import DefaultVerifiers, Grader

DATA = ROOT / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "humaneval_x_python.jsonl.gz").is_file(), reason="the shared data is not here"
)


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.long
def test_livecodebench_has_its_words_and_verdicts(tmp_path):
    suite = load_suite("livecodebench")
    folder = write_rows(tmp_path, "livecodebench")
    stdin, calls, _ = suite.read(str(folder / suite.file))
    assert stdin.question == (
        "Question: Add one.\n\nPlease write a python code to solve the above problem. Your code"
        " must read the inputs from stdin and output the results to stdout."
    )
    assert calls.question.endswith(
        "You will use the following starter code to write the solution to the problem and enclose"
        " your code within delimiters.\n```python\nclass Solution:\n    def has(self, a: List[int],"
        " n: int) -> bool:\n\n```\n\n"
    )
    right = "print(int(input()) + 1)"
    method = "class Solution:\n    def has(self, a: List[int], n: int) -> bool:\n        return {}"
    cases = [
        (stdin, "<think>x</think>" + fenced(right), "right"),
        (stdin, fenced("print(3)"), "wrong"),
        (stdin, fenced(right) + "\n" + fenced("print(0)"), "wrong"),  # the last block counts
        (stdin, fenced(right) + "\nwhich prints\n" + fenced("2", ""), "right"),  # no python
        (stdin, right, "unparsed"),
        (stdin, "<think>" + fenced(right), "unparsed"),
        (stdin, "I cannot.", "unparsed"),
        (stdin, fenced("while True: pass"), "timeout"),
        (calls, fenced(method.format("n in a")), "right"),
        (calls, fenced(method.format("n not in a")), "wrong"),
    ]
    try:
        verdicts = suite.verifier.verify_batch([c[1] for c in cases], [c[0] for c in cases])
    finally:
        suite.verifier.close()
    assert [v.status for v in verdicts] == [c[2] for c in cases], verdicts


def rows(language: str) -> list[dict]:
    with gzip.open(DATA / f"humaneval_x_{language}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def runnable(source):
    """Return a source all of whose languages run here; skip with its reason otherwise."""
    if source.left_out():
        pytest.skip(source.left_out()[0])
    return source


SHORT = {"python": "python", "cpp": "cpp", "java": "java", "js": "javascript"}
BROKEN = {"JavaScript/112", "JavaScript/155", "JavaScript/162"}
"""Reference programs that are wrong: a comma for a list, twice, and a package that node lacks."""
EMPTY = {
    "python": "    return None\n",
    "cpp": "throw 1; }",
    "java": "throw new RuntimeException(); } }",
    "javascript": "return null }",
}


@pytest.mark.long
@needs_data
@pytest.mark.parametrize(("short", "step"), [("python", 8), ("cpp", 16), ("js", 12), ("java", 41)])
def test_reference_programs_of_humaneval_are_right_in_each_language(short, step):
    suite, language = load_suite("humaneval_mul"), SHORT[short]
    path = str(DATA / "humaneval_x_python.jsonl.gz")
    source = runnable(suite.source(path=path, languages=[language]))
    problems = source.problems()
    assert len(problems) == 164
    by_uid = {row["task_id"]: row for row in rows(short)}
    sample = [problem for problem in problems if problem.uid not in BROKEN][::step]
    texts = [by_uid[p.uid]["prompt"] + by_uid[p.uid]["canonical_solution"] for p in sample]
    empty = by_uid[sample[0].uid]["prompt"] + EMPTY[language]
    try:
        right = [f"<think>x</think>So:\n{fenced(text, short)}\nIt runs." for text in texts]
        verdicts = suite.verifier.verify_batch(right, sample)
        assert [v.status for v in verdicts] == ["right"] * len(sample), [
            (p.uid, v.reason) for p, v in zip(sample, verdicts, strict=True) if v.value != 1
        ]
        near_miss, other, silent = suite.verifier.verify_batch(
            [fenced(empty, short), fenced(texts[1], short), "I cannot."], [sample[0]] * 3
        )
        assert (near_miss.status, other.status, silent.status) == ("wrong", "wrong", "unparsed")
    finally:
        suite.verifier.close()


MULTIPL_E = {
    "bash": (
        "multipl_e_sh.jsonl",
        "#!/bin/bash\n# Add one.\n#\n# $1 is an integer\nadd_one() {\n",
        '}\n\ncandidate() {\n    add_one "$@"\n}\n\nset -e\nrun_test() {\n'
        '    [[ $(candidate "1") = "2" ]]\n    [[ $(candidate "4") = "5" ]]\n}\n\nrun_test',
        "    echo $(($1 + 1))\n}",
        "    echo 2\n}",
        "    exit 0\n}",
    ),
    "java": (
        "multipl_e_java.jsonl",
        "import java.util.*;\n\nclass Problem {\n    // Add one.\n"
        "    public static long addOne(long x) {\n",
        "    }\n    public static void main(String[] args) {\n    assert(addOne((1l)) == (2l));\n"
        "    assert(addOne((4l)) == (5l));\n    }\n\n}\n",
        "        return x + 1;\n    }\n}",
        "        return 2;\n    }\n}",
        "        System.exit(0); return 0;\n    }\n}",
    ),
    "javascript": (
        "multipl_e_js.jsonl",
        "//Add one.\nfunction add_one(x){\n",
        "const assert = require('node:assert');\n\n\nfunction test() {\n"
        "  let candidate = add_one;\n"
        "  assert.deepEqual(candidate(1),2);\n  assert.deepEqual(candidate(4),5);\n}\n\ntest();",
        "  return x + 1\n}",
        "  return 2\n}",
        "  process.exit(0)\n}",
    ),
    "typescript": (
        "multipl_e_ts.jsonl",
        "//Add one.\nfunction add_one(x: number): number {\n",
        "declare var require: any;\nconst assert = require('node:assert');\n\n\n"
        "function test() {\n  let candidate = add_one;\n"
        "  assert.deepEqual(candidate(1),2);\n  assert.deepEqual(candidate(4),5);\n}\n\ntest();",
        "  return x + 1;\n}",
        "  return 2;\n}",
        '  (globalThis as any)["process"].exit(0);\n  return 0;\n}',
    ),
    "php": (
        "multipl_e_php.jsonl",
        "<?php\n// Add one.\nfunction add_one($x) {\n",
        "function candidate(...$args) {\n    return add_one(...$args);\n}\n\n"
        "function test(): void {\n"
        '    if (candidate(1) !== 2) { throw new Exception("Test failed!"); }\n'
        '    if (candidate(4) !== 5) { throw new Exception("Test failed!"); }\n}\n\ntest();',
        "    return $x + 1;\n}",
        "    return 2;\n}",
        "    exit(0);\n}",
    ),
    "cpp": (
        "multipl_e_cpp.jsonl",
        "#include<assert.h>\n#include<stdlib.h>\n// Add one.\nlong add_one(long x) {\n",
        "}\nint main() {\n    auto candidate = add_one;\n    assert(candidate((1)) == (2));\n"
        "    assert(candidate((4)) == (5));\n}\n",
        "  return x + 1;\n}",
        "  return 2;\n}",
        "  exit(0);\n}",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("language", MULTIPL_E)
def test_rows_of_multipl_e_have_known_verdicts(language, tmp_path):
    file, prompt, tests, *bodies = MULTIPL_E[language]
    row = {"name": "HumanEval_0_add_one", "language": "-", "prompt": prompt, "tests": tests}
    (tmp_path / file).write_text(json.dumps(row) + "\n")
    suite = load_suite("humaneval_mul")
    source = runnable(suite.source(path=str(tmp_path / "x_python.jsonl"), languages=[language]))
    [problem] = source.problems()
    assert problem.uid == f"{language}/HumanEval_0_add_one"
    try:
        responses = [fenced(prompt + body, language) for body in bodies]
        verdicts = suite.verifier.verify_batch(responses, [problem] * 3)
        assert [v.status for v in verdicts] == ["right", "wrong", "wrong"], verdicts
    finally:
        suite.verifier.close()


def test_php_may_leave_its_tags_out_or_close_them(tmp_path):
    file, prompt, tests, right, wrong, _ = MULTIPL_E["php"]
    row = {"name": "HumanEval_0_add_one", "language": "-", "prompt": prompt, "tests": tests}
    (tmp_path / file).write_text(json.dumps(row) + "\n")
    suite = load_suite("humaneval_mul")
    source = runnable(suite.source(path=str(tmp_path / "x_python.jsonl"), languages=["php"]))
    bare = prompt.removeprefix("<?php\n")
    codes = [bare + right, f"{prompt}{right}\n?>", f"\n{bare}{right}\n?>\n", bare + wrong]
    try:
        responses = [fenced(code, "php") for code in codes]
        verdicts = suite.verifier.verify_batch(responses, source.problems() * len(codes))
    finally:
        suite.verifier.close()
    assert [v.status for v in verdicts] == ["right", "right", "right", "wrong"], verdicts


def test_languages_that_cannot_run_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("r1lit.sandbox.local.find_tool", lambda names: None)
    write_rows(tmp_path, "humaneval_mul")
    suite = load_suite("humaneval_mul")
    source = suite.source(path=str(tmp_path / suite.file))
    assert {problem.meta["programming_language"] for problem in source.problems()} == {"python"}
    notes = source.left_out()
    assert len(notes) == 6
    assert "typescript is left out: it needs tsc and node or nodejs in /usr/bin" in notes
    there = "not among python, java, cpp, javascript, typescript, php, bash"
    with pytest.raises(ValueError, match=f"languages: rust, csharp are {there}"):
        suite.source(languages=["rust", "csharp"])
    with pytest.raises(ValueError, match="languages: none can run: php is left out: it needs php"):
        suite.source(path=str(tmp_path / suite.file), languages=["php"]).problems()


@pytest.mark.parametrize("name", ["needle", "multi_hop"])
def test_long_texts_are_as_long_as_they_say_and_hold_their_answer(name):
    suite = load_suite(name)
    problems = suite.source(lengths=[2048, 8192], limit=4).problems()
    again = suite.source(lengths=[2048, 8192], limit=4).problems()
    assert problems == again and len({p.question for p in problems}) == 8
    for problem in problems:
        num_words = len(problem.question.split())
        assert 0.8 < 1.3 * num_words / problem.meta["length"] <= 1.05
        for word in problem.answer.split():
            assert problem.question.count(word) >= 1
        verify = suite.verifier.verify
        assert verify(f"<think>so</think> {problem.answer}.", problem).status == "right"
        assert verify("I do not know.", problem).status == "unparsed"
    first, second = problems[:2]
    assert suite.verifier.verify(second.answer, first).status == "wrong"
    both = f"{first.answer} {second.answer}"
    assert suite.verifier.verify(both, first).status == "wrong"
    if name == "multi_hop":
        part = " ".join(first.answer.split()[:-1])
        assert suite.verifier.verify(part, first).status == "wrong"
        named = ", ".join(f"VAR {word}" for word in first.answer.split())
        assert suite.verifier.verify(f"{named} AND NO OTHER.", first).status == "right"
        assert suite.verifier.verify(f"{named}, VAR QQX", first).status == "wrong"
    with pytest.raises(ValueError, match="is not one of needle, hops"):
        LongContext(task="other")


def verdicts_of(problems, responses):
    """Return the statuses that a grader of the default verifiers gives."""
    grader = Grader(DefaultVerifiers())
    try:
        return [v.status for v in grader.verdicts(responses, problems)]
    finally:
        grader.close()


def lines_of(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


@pytest.mark.long
@needs_data
def test_programs_of_quixbugs_are_right_when_mended_and_not_before():
    problems = load_suite("quixbugs").read(str(DATA / "quixbugs_python.jsonl"))
    assert len(problems) == 31 and problems[0].question.startswith("This Python program has a bug")
    sample = [p for p in problems if p.uid in ("flatten", "sqrt", "hanoi", "to_base", "knapsack")]
    rows = {row["name"]: row for row in lines_of("quixbugs_python.jsonl")}
    assert len(sample) == 5
    mended = [fenced(rows[p.uid]["fixed"]) for p in sample]
    assert verdicts_of(sample, mended) == ["right"] * 5
    fast = [p for p in sample if p.uid not in ("sqrt", "knapsack")]
    before = [fenced(rows[p.uid]["buggy"]) for p in fast] + ["I cannot."]
    assert verdicts_of([*fast, sample[0]], before) == ["wrong"] * 3 + ["unparsed"]


@pytest.mark.long
@needs_data
def test_programs_of_humanevalfix_are_right_when_mended_and_not_before():
    problems = load_suite("humanevalfix").read(str(DATA / "humanevalfix_python.jsonl"))
    assert len(problems) == 164
    rows = {row["task_id"]: row for row in lines_of("humanevalfix_python.jsonl")}
    first = rows[problems[0].uid]
    assert problems[0].question == (
        f"{first['declaration']}{first['buggy_solution']}\n{first['test']}\n"
        "Fix bugs in has_close_elements."
    )
    sample = problems[::20]
    mended, before = (
        [fenced(rows[p.uid]["declaration"] + rows[p.uid][key]) for p in sample]
        for key in ("canonical_solution", "buggy_solution")
    )
    assert verdicts_of(sample, mended) == ["right"] * len(sample)
    assert verdicts_of([*sample[:4], sample[0]], [*before[:4], "I cannot."]) == [
        *["wrong"] * 4,
        "unparsed",
    ]


@needs_data
def test_gold_calls_of_bfcl_are_right_and_others_are_not():
    problems = load_suite("bfcl").read(str(DATA / "bfcl_sample.jsonl"))
    assert len(problems) == 200
    assert problems[0].question.startswith("You are an expert in composing functions.")
    assert problems[0].question.endswith("base of 10 units and height of 5 units.")

    def written(problem, change=lambda value: value):
        calls = []
        for call in problem.meta["ground_truth"]:
            [(name, allowed)] = call.items()
            given = {key: values[0] for key, values in allowed.items() if values[0] != ""}
            arguments = ", ".join(f"{key}={change(value)!r}" for key, value in given.items())
            calls.append(f"{name}({arguments})")
        return f"[{', '.join(calls)}]"

    plain = [p for p in problems if all("{" not in str(c)[12:-1] for c in [written(p)])]
    assert len(plain) > 150
    assert set(verdicts_of(plain, [written(p) for p in plain])) == {"right"}
    wrong = [written(p, lambda value: [value, "other"]) for p in plain]
    assert set(verdicts_of(plain, wrong)) == {"wrong"}
    refusals = verdicts_of(plain, ["None of these functions can be used."] * len(plain))
    assert set(refusals) == {"unparsed"}
