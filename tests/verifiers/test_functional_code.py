"""Functional tests: references pass, changed programs fail, and what lies between."""

from __future__ import annotations

import pytest
from verifiers.code_problems import fenced, humaneval, mbpp, needs_data
from verifiers.mutants import mutants, passes

from r1lit.batches import Problem
from r1lit.verifiers import FunctionalCodeVerifier


@pytest.fixture(scope="module")
def verifier():
    verifier = FunctionalCodeVerifier(timeout_s=10.0, num_workers=2)
    yield verifier
    verifier.close()


def problem(*tests: str, setup: str = "") -> Problem:
    meta = {"tests": list(tests), "setup": setup}
    return Problem(uid="p", question="", answer="", source="test", meta=meta)


@needs_data
@pytest.mark.parametrize("load", [humaneval, pytest.param(mbpp, marks=pytest.mark.long)])
def test_every_reference_passes(load):
    verifier = FunctionalCodeVerifier(
        timeout_s=60.0, num_workers=2
    )  # mbpp/123 computes for seconds
    problems, programs = zip(*load(), strict=True)
    verdicts = verifier.verify_batch([fenced(code) for code in programs], problems)
    verifier.close()
    lost = {p.uid: v for p, v in zip(problems, verdicts, strict=True) if v.status != "right"}
    assert not lost
    assert len(verdicts) == {humaneval: 164, mbpp: 500}[load]


@needs_data
def test_what_follows_the_prompt_is_enough(verifier):
    rows = humaneval()[:40]
    bodies = [code[len(p.meta["prompt"]) :] for p, code in rows]
    verdicts = verifier.verify_batch([fenced(body) for body in bodies], [p for p, _ in rows])
    assert {v.status for v in verdicts} == {"right"}


def check_mutants(rows, num_each, least):
    """Grader mutants beside the ground truth: the two must agree about every one that fails."""
    items = [
        (p, code)
        for n, (p, program) in enumerate(rows)
        for code in mutants(program, n, num_each, p.meta.get("entry_point"))
    ]
    truth = [passes(code, p) for p, code in items]
    verifier = FunctionalCodeVerifier(timeout_s=5.0, num_workers=2)
    verdicts = verifier.verify_batch([fenced(code) for _, code in items], [p for p, _ in items])
    verifier.close()
    truth = [  # on a busy machine the ground truth of a right program may have run out of time
        passed or (verdict.status == "right" and passes(code, p, seconds=60.0))
        for (p, code), passed, verdict in zip(items, truth, verdicts, strict=True)
    ]
    fooled = [
        (p.uid, code, verdict)
        for (p, code), passed, verdict in zip(items, truth, verdicts, strict=True)
        if not passed and verdict.status not in ("wrong", "timeout")
    ]
    refused = [
        (p.uid, code, verdict)
        for (p, code), passed, verdict in zip(items, truth, verdicts, strict=True)
        if passed and verdict.status != "right"
    ]
    patient = FunctionalCodeVerifier(timeout_s=60.0)  # on a slow machine five seconds are too few
    refused = [
        (uid, code, verdict)
        for uid, code, verdict in refused
        if verdict.status != "timeout"
        or patient.verify(fenced(code), next(p for p, _ in items if p.uid == uid)).status != "right"
    ]
    patient.close()
    assert not fooled
    assert not refused
    assert truth.count(False) >= least, (truth.count(False), len(truth))


@pytest.mark.long
@needs_data
def test_mutants_of_a_sample_fail():
    check_mutants(humaneval()[::16] + mbpp()[::50], num_each=1, least=15)


@needs_data
@pytest.mark.long
def test_mutants_of_every_reference_fail():
    check_mutants(humaneval() + mbpp(), num_each=2, least=1000)


@pytest.mark.parametrize(
    ("code", "tests", "status", "reason"),
    [
        ("def f(x): return x", ["assert f(1) == 2"], "wrong", "failed assert f(1) == 2"),
        ("def g(x): return x", ["assert f(1) == 1"], "wrong", "has no attribute 'f'"),
        ("def f(x): return 1 / 0", ["assert f(1)"], "wrong", "ZeroDivisionError"),
        ("def f(x) return x", ["assert f(1)"], "wrong", "SyntaxError"),
        ("raise OSError('no')", ["assert f(1)"], "wrong", "OSError: no"),
        ("def f(x): return {x}", ["assert f(1) == {1}"], "right", ""),
        ("def f(x): return x", ["assert f({1: (2.5, 'ü')}) == {1: (2.5, 'ü')}"], "right", ""),
        ("def f(x): return [x]", ["assert f(1) == (1,)"], "wrong", "test 1 of 1"),
        ("def f(x): return x", ["assert f(float('inf')) > 10**400"], "right", ""),
        ("def f(x): return iter(x)", ["assert list(f([1])) == [1]"], "right", ""),
        ("def sum(a, b): return a * b", ["assert sum(2, 5) == 10"], "right", ""),
        ("def f(x): return x", ["assert math.isclose(f(1), 1)"], "right", ""),
        (
            "class P:\n    def __init__(s, a): s.a = a\ndef f(ps): return [p.a for p in ps]",
            ["assert f([P(1), P(2)]) == [1, 2]"],
            "right",
            "",
        ),
        (
            "def f(x): raise ValueError('bad')",
            [
                "try:\n    f(1)\nexcept ValueError as e:\n    assert str(e) == 'bad'",
                "try: assert f(1) and False\nexcept ValueError: pass",
            ],
            "right",
            "",
        ),
    ],
)
def test_decision(verifier, code, tests, status, reason):
    verdict = verifier.verify(fenced(code), problem(*tests))
    assert verdict.status == status, verdict
    assert reason in verdict.reason and bool(verdict.reason) == (status != "right")
    assert verdict.canonical is None and verdict.seconds > 0


def test_tests_that_catch_everything_do_not_hide_a_program_that_died(verifier):
    tests = "try:\n    f(1)\nexcept BaseException:\n    pass"
    verdict = verifier.verify(fenced("import os\ndef f(x): os._exit(0)"), problem(tests))
    assert (verdict.status, "has ended" in verdict.reason) == ("wrong", True)


def test_an_object_of_the_program_cannot_be_compared(verifier):
    code = "class f:\n    def __init__(s, x): pass\n    def __eq__(s, o): return True"
    for test in ("assert f(1) == 1", "assert f(1)", "assert f(1) != 2", "assert 1 in [f(1)]"):
        verdict = verifier.verify(fenced(code), problem(test))
        assert verdict.status == "wrong" and "not plain data" in verdict.reason, verdict


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "no fenced block"),
        ("def f(x): return x", "no fenced block"),
        ("<think>\n```python\ndef f(x): return x\n```\n</think> done", "no fenced block"),
        ("```python\n\n```", "empty block"),
        ("```cpp\nint f(int x) { return x; }\n```", "in c++"),
        ("```python\n" + "#" * 300_000 + "\n```", "longer than"),
    ],
)
def test_no_program(verifier, response, reason):
    verdict = verifier.verify(response, problem("assert f(1) == 1"))
    assert verdict.status == "unparsed" and reason in verdict.reason


@pytest.mark.parametrize(
    ("meta", "key"),
    [
        ({}, "meta.tests: problem 'p' has None"),
        ({"tests": []}, "meta.tests"),
        ({"tests": "assert f(1)"}, "meta.tests"),
        ({"tests": [1]}, "meta.tests"),
        ({"test": "def check(c): pass", "prompt": "def f(): pass"}, "meta.entry_point"),
        ({"test": "x", "prompt": "y", "entry_point": "a b"}, "meta.entry_point"),
    ],
)
def test_malformed_problems_are_named(verifier, meta, key):
    bad = Problem(uid="p", question="", answer="", source="test", meta=meta)
    with pytest.raises(ValueError, match=key):
        verifier.verify(fenced("def f(x): return x"), bad)


def test_tests_that_fail_by_themselves_are_an_error(verifier):
    verdict = verifier.verify(fenced("def f(x): return x"), problem("assert f(1) =="))
    assert verdict.status == "error" and "SyntaxError" in verdict.reason


@pytest.mark.long
def test_tests_that_use_up_their_cpu_time_are_a_timeout(verifier):
    spin = "def g():\n    while True: hashlib.sha256(bytes(1 << 24))\n"
    threads = "for _ in range(4): threading.Thread(target=g).start()\n"
    test = f"import hashlib, threading\n{spin}{threads}assert f(1) == 1\ng()"
    verdict = verifier.verify(fenced("def f(x): return x"), problem(test))
    assert verdict.status == "timeout", verdict


def test_order_is_kept(verifier):
    codes = [
        f"import time\ntime.sleep({0.2 if n % 3 == 0 else 0})\ndef f(): return {n}"
        for n in range(9)
    ]
    problems = [problem(f"assert f() == {n if n % 2 else -1}") for n in range(9)]
    verdicts = verifier.verify_batch([fenced(code) for code in codes], problems)
    assert [v.value for v in verdicts] == [float(n % 2) for n in range(9)]


def test_a_crowded_machine_costs_waiting_and_no_cpu_time():
    """A reference of MBPP computes for 5 s: by default it may wait for twice its CPU limit."""
    given = {t: FunctionalCodeVerifier(timeout_s=t).limits for t in (5.0, 10.0, 20.0, 60.0)}
    assert {t: (x.cpu_s, x.wall_s) for t, x in given.items()} == {
        5.0: (5.0, 5.0), 10.0: (10.0, 10.0), 20.0: (10.0, 20.0), 60.0: (30.0, 60.0)
    }  # fmt: skip
    assert FunctionalCodeVerifier().limits == given[20.0]


def test_tests_that_run_nothing_are_the_users_mistake(verifier):
    for tests in (["def check(f):\n    assert f(1) == 2"], [""], ["# none"], ["x = 1"]):
        with pytest.raises(ValueError, match=r"meta.tests: problem 'p' .*asserts that run"):
            verifier.verify(fenced("def f(x): return 0"), problem(*tests))
    meta = {"test": "assert f(1) == 2", "prompt": "def f(x):\n", "entry_point": "f"}
    he = Problem(uid="p", question="", answer="", source="test", meta=meta)
    with pytest.raises(ValueError, match="source that defines check"):
        verifier.verify(fenced("def f(x): return 2"), he)


def test_a_check_may_use_a_helper_of_the_program(verifier):
    test = (
        "def check(candidate):\n    assert candidate(shift(3)) == 3\n    assert candidate(9) == 8"
    )
    meta = {"test": test, "prompt": "def back(*args, **kwargs):\n", "entry_point": "back"}
    he = Problem(uid="p", question="", answer="", source="test", meta=meta)
    shift = "def shift(x):\n    return x + 1\n"
    assert verifier.verify(fenced(shift + "def back(x):\n    return x - 1"), he).status == "right"
    assert verifier.verify(fenced(shift + "def back(x):\n    return x"), he).status == "wrong"
    assert verifier.verify(fenced("def back(x):\n    return x - 1"), he).status == "wrong"
    # where the prompt defines it, the tests use ours
    meta["prompt"] = shift + "def back(x):\n    pass\n"
    lazy = (
        "def shift(x):\n    return 3\ndef back(x):\n    return 8 if x == 9 else 3 if x == 3 else 0"
    )
    assert verifier.verify(fenced(lazy), he).status == "wrong"


def test_a_block_in_a_list_loses_the_indent_of_its_fence(verifier):
    response = "1. Add\n\n   ```python\n   def f(x):\n       return x + 1\n   ```\n"
    assert verifier.verify(response, problem("assert f(1) == 2")).status == "right"
