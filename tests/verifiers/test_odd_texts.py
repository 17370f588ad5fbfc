"""Texts that no honest data holds cost one item: a verdict, and the worker lives on."""

from __future__ import annotations

import json

import pytest
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import LocalSandbox
from r1lit.verifiers import FunctionalCodeVerifier, StdinCodeVerifier

ODD = {
    "a high surrogate": "\ud800", "a low surrogate": "\udfff", "an escaped byte": "\udcff",
    "a pair of surrogates": "\ud83d\ude00", "a zero byte": "\0", "a byte order mark": "\ufeff",
    "no character": "\uffff", "a line separator": "\u2028", "a carriage return": "\r",
    "brackets that never close": "(" * 5000, "minus signs": "-" * 50_000 + "1",
    "a number of many digits": "9" * 10_000, "a coding nobody knows": "# coding: nonsense\n",
    "a form feed and a tab": "\f\t", "an emoji": "\U0001f600", "many lines": "\n" * 50_000,
}  # fmt: skip
STATUSES = {"right", "wrong", "timeout", "unparsed", "error"}


@pytest.fixture(scope="module")
def functional():
    verifier = FunctionalCodeVerifier(timeout_s=20.0, num_workers=1)
    yield verifier
    verifier.close()


@pytest.fixture(scope="module")
def stdin():
    verifier = StdinCodeVerifier(timeout_s=20.0, num_workers=1)
    yield verifier
    verifier.close()


def problem(**meta: object) -> Problem:
    return Problem(uid="p", question="", answer="", source="test", meta=meta)


def assert_harmless(verifier, code: str, meta: dict[str, object]) -> str:
    verdict = verifier.verify(fenced(code), problem(**meta))
    assert verdict.status in STATUSES and "worker process died" not in verdict.reason, verdict
    json.dumps({"reason": verdict.reason}, ensure_ascii=False).encode()
    return verdict.status


HONEST = "def f(x):\n    return x\n"


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_functions(functional, name):
    odd = ODD[name]
    assert functional.verify(fenced(HONEST), problem(tests=["assert f(1) == 1"])).value == 1.0
    workers = functional.pool.pids
    quoted = f"assert f({json.dumps(odd)}) == {json.dumps(odd)}"
    check = f"def check(c):\n    assert c({json.dumps(odd)}) == 1\n"
    programs = {
        "text": HONEST + f"x = '{odd}'\n", "code": odd + "\n" + HONEST, "end": HONEST + odd,
        "raised": f"def f(x):\n    raise ValueError({json.dumps(odd)})",
        "returned": f"def f(x):\n    return {json.dumps(odd)}",
        "named": f"def f(x):\n    return type({json.dumps(odd)}, (Exception,), {{}})()",
    }  # fmt: skip
    for code in programs.values():
        for tests in (["assert f(1) == 1"], ["assert f(1) == 1, f(1)"], [quoted]):
            assert_harmless(functional, code, {"tests": tests})
    metas = [
        {"tests": [f"assert f('{odd}') == 1"]}, {"tests": [odd, "assert f(1) == 2"]},
        {"tests": ["assert f(1) == 2"], "setup": odd}, {"tests": [quoted], "setup": f"y = '{odd}'"},
        {"test": check + odd, "prompt": "def f(x):\n", "entry_point": "f"},
        {"test": check, "prompt": f"'''{odd}'''\ndef f(x):\n", "entry_point": "f"},
    ]  # fmt: skip
    for meta in metas:
        assert_harmless(functional, HONEST, meta)
    assert functional.pool.pids == workers


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_programs(stdin, name):
    odd = ODD[name]
    languages = [*("python",), *(("cpp",) if "c++" in LocalSandbox().languages else ())]
    assert stdin.verify(fenced("print(1)"), problem(tests=TWICE)).value == 1.0
    workers = stdin.pool.pids
    for language in languages:
        for code in (odd, f"print('{odd}')", f"int main() {{}} // {odd}"):
            verdict = stdin.verify(fenced(code, language), problem(tests=TWICE))
            assert verdict.status in {"wrong", "unparsed", "timeout"}, verdict
            json.dumps({"reason": verdict.reason}, ensure_ascii=False).encode()
    echo = "import sys\nsys.stdout.write(sys.stdin.read())"
    same = {"inputs": [f"a{odd}b"], "outputs": [f"a{odd}b"]}
    assert assert_harmless(stdin, echo, {"tests": same}) == "right"
    other = {"inputs": ["a\ufffdb"], "outputs": [f"a{odd}b"]}
    assert assert_harmless(stdin, echo, {"tests": other}) == "wrong"
    assert stdin.pool.pids == workers


TWICE = {"inputs": ["", ""], "outputs": ["1", "1"]}
