"""Tests by standard input and output: comparison, limits, languages, real contests."""

from __future__ import annotations

import json

import pytest
from verifiers.code_problems import code_contests, fenced, needs_data

from r1lit.batches import Problem
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.verifiers import StdinCodeVerifier

ADD = "a, b = map(int, input().split())\nprint(a + b)"
ADD_CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
needs_cpp = pytest.mark.skipif(
    "c++" not in LocalSandbox().languages, reason="this machine has no C++ compiler"
)


@pytest.fixture(scope="module")
def verifier():
    verifier = StdinCodeVerifier(num_workers=2, limits=Limits(wall_s=2.0, cpu_s=2.0))
    yield verifier
    verifier.close()


@pytest.fixture(scope="module")
def partial():
    verifier = StdinCodeVerifier(num_workers=2, partial=True)
    yield verifier
    verifier.close()


def problem(*tests: tuple[str, str]) -> Problem:
    inputs, outputs = (list(texts) for texts in zip(*tests, strict=True))
    meta = {"tests": {"inputs": inputs, "outputs": outputs}}
    return Problem(uid="p", question="", answer="", source="test", meta=meta)


SUMS = problem(("1 2\n", "3\n"), ("5 5\n", "10\n"), ("-1 1\n", "0\n"))


@pytest.mark.parametrize(
    ("printed", "expected", "status"),
    [
        ("3", "3\n", "right"),
        ("  3\n\n", "3", "right"),
        ("1 2", "1\n2\n", "right"),
        ("1 2", "1\n3\n", "wrong"),
        ("1", "1 2", "wrong"),
        ("1 2 3", "1 2", "wrong"),
        ("", "1", "wrong"),
        ("", "", "right"),
        ("0.3333333", "0.333333333", "right"),
        ("0.333", "0.333333333", "wrong"),
        ("1e6", "1000000.0", "right"),
        ("1000000.9", "1000000.0", "wrong"),
        ("1000000.001", "1000000.0", "right"),
        ("12345678.12", "12345678.123456", "right"),
        ("123456789012.5", "123456789012.0", "wrong"),
        ("1000000000000003.0", "1000000000000000.0", "right"),
        ("3.0", "3", "wrong"),
        ("3", "3.0", "right"),
        ("nan", "0.5", "wrong"),
        ("inf", "0.5", "wrong"),
        ("1e9999", "0.5", "wrong"),
        ("yes", "YES", "wrong"),
        ("10000000000000000000001", "10000000000000000000000", "wrong"),
        ("100000.05", "100000.0", "right"),
        ("³", "3", "wrong"),
    ],
)
def test_outputs_are_compared_by_tokens(verifier, printed, expected, status):
    verdict = verifier.verify(fenced(f"print({printed!r})"), problem(("", expected)))
    assert verdict.status == status, verdict
    assert bool(verdict.reason) == (status == "wrong")


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (ADD, "right", ""),
        ("print(3)", "wrong", "test 2 of 3: token 1 is '3', not '10'"),
        ("print(1 / 0)", "wrong", "ZeroDivisionError"),
        (ADD + "\nimport sys; sys.exit(1)", "wrong", "exit code 1"),
        ("while True: pass", "timeout", "test 1 of 3: ran out of"),
        ("import time; time.sleep(50)", "timeout", "ran out of wall time"),
        ("import os\nwhile 1: os.write(1, b'3 ' * 9999)", "wrong", "limit of output"),
        ("def f(:", "wrong", "SyntaxError"),
    ],
)
def test_python(verifier, code, status, reason):
    verdict = verifier.verify(fenced(code), SUMS)
    assert verdict.status == status and reason in verdict.reason, verdict


@needs_cpp
@pytest.mark.parametrize("tag", ["cpp", "c++", ""])
def test_cpp(verifier, tag):
    assert verifier.verify(fenced(ADD_CPP, tag), SUMS).status == "right"
    wrong = verifier.verify(fenced(ADD_CPP.replace("+ b;", "- b;"), tag), SUMS)
    assert wrong.status == "wrong"
    broken = verifier.verify(fenced(ADD_CPP.replace("int main", "main("), tag), SUMS)
    assert broken.status == "wrong" and "does not compile" in broken.reason


@needs_cpp
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("int* p = 0; *p = 1;", "wrong"),
        ("while (true) {}", "timeout"),
        ("std::vector<char> v(8ull << 30); std::cout << v.size();", "wrong"),
    ],
)
def test_cpp_that_fails(verifier, body, status):
    code = "#include <iostream>\n#include <vector>\nint main() { " + body + " }"
    assert verifier.verify(fenced(code, "cpp"), SUMS).status == status


def test_a_fraction_of_the_tests(verifier, partial):
    code = "a, b = map(int, input().split())\nprint(3 if a == 1 else a + b if a > 0 else 7)"
    verdict = partial.verify(fenced(code), SUMS)
    assert (verdict.value, verdict.status) == (pytest.approx(2 / 3), "wrong")
    assert verdict.reason == "test 3 of 3: token 1 is '7', not '0'"
    assert verifier.verify(fenced(code), SUMS).value == 0.0
    assert partial.verify(fenced(ADD), SUMS).value == 1.0


def test_the_time_for_all_tests_is_limited():
    verifier = StdinCodeVerifier(timeout_s=1.0, num_workers=1, partial=True)
    many = problem(*[(f"{n} {n}", str(2 * n)) for n in range(50)])
    verdict = verifier.verify(fenced("import time; time.sleep(0.2)\n" + ADD), many)
    verifier.close()
    assert verdict.status == "timeout" and 0 < verdict.value < 0.5 and verdict.seconds < 4


def test_no_run_sees_what_another_wrote(verifier):
    code = "import os\nprint(len(os.listdir('.')))\nopen('seen', 'w').write('x')"
    assert verifier.verify(fenced(code), problem(("a", "0"), ("b", "0"))).status == "right"


@pytest.mark.parametrize(
    "tests",
    [
        None, [], {"inputs": ["1"]}, {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": ["1", "2"]}, {"inputs": [1], "outputs": ["1"]},
    ],
)  # fmt: skip
def test_malformed_problems_are_named(verifier, tests):
    bad = Problem(uid="p", question="", answer="", source="test", meta={"tests": tests})
    with pytest.raises(ValueError, match=r"meta\.tests: problem 'p'"):
        verifier.verify(fenced(ADD), bad)


def test_a_program_in_another_language_is_unparsed(verifier):
    verdict = verifier.verify(fenced("fn main() {}", "rust"), SUMS)
    assert verdict.status == "unparsed"


def table(problem: Problem) -> str:
    """A program that knows the outputs: right for this problem without solving it."""
    tests = problem.meta["tests"]
    answers = dict(zip(map(str.strip, tests["inputs"]), tests["outputs"], strict=True))
    return f"import sys\nprint({answers!r}[sys.stdin.read().strip()])"


SOLUTIONS = {
    "asc-desc-ending": """
import sys
def main():
    data = sys.stdin.read().split()
    n = int(data[0])
    flip = {i: 155 - i for i in range(65, 91)}
    def key(s):
        out = list(s)
        out[1::2] = s[1::2].translate(flip)
        return ''.join(out)
    books = data[2:2 + n]
    print(*sorted(range(1, n + 1), key=lambda i: key(books[i - 1])))
main()
""",
}


@needs_data
@pytest.mark.parametrize("words", SOLUTIONS)
def test_a_real_contest_is_solved(verifier, words):
    found = next(p for p in code_contests() if words in p.question)
    assert verifier.verify(fenced(SOLUTIONS[words]), found).status == "right"
    broken = SOLUTIONS[words].replace("[1::2]", "[::2]")
    assert broken != SOLUTIONS[words]
    assert verifier.verify(fenced(broken), found).status == "wrong"


@needs_data
def test_real_contests(verifier):
    """Outputs from a table pass; with one digit of the last output changed they do not."""
    problems = [p for p in code_contests() if len(json.dumps(dict(p.meta))) < 20_000][:25]
    assert len(problems) == 25
    programs = [table(p) for p in problems]
    verdicts = verifier.verify_batch([fenced(code) for code in programs], problems)
    assert [v.status for v in verdicts] == ["right"] * 25
    other = [fenced(code.replace("print(", "print('x', ")) for code in programs]
    assert {v.status for v in verifier.verify_batch(other, problems)} == {"wrong"}
