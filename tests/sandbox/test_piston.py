"""The remote sandbox, over HTTP, against a server of ours that runs programs for real."""

from __future__ import annotations

import pytest
from sandbox.piston_server import serving
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import Limits, Program, SandboxError
from r1lit.sandbox.piston import PistonSandbox
from r1lit.verifiers import StdinCodeVerifier

LIMITS = Limits(wall_s=1.5)


@pytest.fixture(scope="module", params=[True, False], ids=["status", "no status"])
def server(request):
    with serving(request.param) as server:
        yield server


@pytest.fixture
def piston(server):
    return PistonSandbox(server.url, retries=2)


def python(source: str) -> Program:
    return Program(language="python", files={"main.py": source, "other.py": "x = 5"})


@pytest.mark.long
def test_languages_go_by_our_names(piston):
    assert {"python", "c++"} <= set(piston.languages)


def test_a_run(piston):
    source = "import sys, other\nprint(input() + 'ü', other.x)\nsys.stderr.write('e'); sys.exit(2)"
    outcome = piston.run(python(source), b"a\n", LIMITS)
    assert (outcome.stdout, outcome.stderr) == ("aü 5\n".encode(), b"e")
    assert (outcome.exit_code, outcome.signal, outcome.ok) == (2, None, False)


def test_runs_are_asked_for_one_by_one(server, piston):
    asked = len(server.requests)
    runs = piston.runs(python("print(int(input()) * 2)"), [b"1", b"2", b"3"], LIMITS)
    assert [next(runs).stdout, next(runs).stdout] == [b"2\n", b"4\n"]
    assert len(server.requests) == asked + 2


def test_ends_are_told_apart(piston):
    assert piston.run(python("while True: pass"), b"", LIMITS).timed_out
    killed = piston.run(python("import os; os.kill(os.getpid(), 11)"), b"", LIMITS)
    assert (killed.signal, killed.exit_code, killed.timed_out) == (11, None, False)
    assert piston.run(python("pass"), b"", LIMITS).ok


def test_cpp(server, piston):
    if "c++" not in server.sandbox.languages:
        pytest.skip("no compiler here")
    source = "#include <iostream>\nint main() { std::cout << 7; }"
    assert piston.run(Program(language="c++", files={"main.cpp": source})).stdout == b"7"
    broken = list(piston.runs(Program(language="c++", files={"a.cpp": "int"}), [b"", b""], LIMITS))
    assert len(broken) == 1 and not broken[0].compiled and b"error" in broken[0].stderr


def test_a_busy_server_is_asked_again(server, piston):
    server.troubles[:] = [429, 503]
    assert piston.run(python("print(1)"), b"", LIMITS).stdout == b"1\n"
    server.troubles[:] = [429, 503, 500]
    with pytest.raises(SandboxError, match="500 trouble"):
        piston.run(python("print(1)"), b"", LIMITS)


RUN = {"stdout": "", "stderr": "", "code": 0, "signal": None}
MALFORMED = [
    None, [], 5, "right", {}, {"run": None}, {"run": []}, {"run": "ok"},
    {"compile": "x", "run": RUN},
    *({"run": {**RUN, "code": code}} for code in (False, "0", 0.0, [0], {})),
    {"compile": {"code": False}, "run": RUN}, {"run": {**RUN, "stdout": ["3"]}},
    {"run": {**RUN, "stderr": 5}}, {"run": {**RUN, "status": ["TO"]}},
    {"run": {**RUN, "status": "XX"}},
    {"run": {**RUN, "wall_time": "long"}}, {"run": {**RUN, "wall_time": [1]}}, b"", b"[" * 10**5,
    b"\xff\xfe", b"{", b'{"run": ' + b"9" * 5000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("reply", MALFORMED, ids=lambda reply: repr(reply)[:50])
def test_a_malformed_reply_is_an_error(server, reply):
    server.troubles[:] = [reply]
    with pytest.raises(SandboxError, match="Piston"):
        PistonSandbox(server.url, retries=0).run(python("print(1)"), b"", LIMITS)
    server.troubles[:] = []


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1, 1e300, None])
def test_a_time_that_cannot_be_is_measured_here(server, time):
    server.troubles[:] = [{"run": {**RUN, "wall_time": time}}]
    outcome = PistonSandbox(server.url).run(python("print(1)"), b"", LIMITS)
    assert outcome.ok and 0 <= outcome.seconds < 100


@pytest.mark.parametrize("code", [400, 429, 302, 307])
def test_a_token_is_neither_told_nor_redirected(server, code):
    asked = len(server.requests)
    server.troubles[:] = [code]
    piston = PistonSandbox(server.url, retries=0, token="secret-4711")
    with pytest.raises(SandboxError) as caught:
        piston.run(python("print(1)"), b"", LIMITS)
    assert "4711" not in str(caught.value) and str(code) in str(caught.value)
    assert not server.troubles and len(server.requests) == asked


def test_a_refusal_is_told(piston):
    with pytest.raises(SandboxError, match="400 run_timeout cannot exceed"):
        piston.run(python("print(1)"), b"", Limits(wall_s=99))
    with pytest.raises(ValueError, match="'cobol' is not one of"):
        piston.run(Program(language="cobol", files={"a": ""}))


@pytest.mark.long
def test_nobody_there():
    with pytest.raises(SandboxError, match=r"127\.0\.0\.1:9"):
        PistonSandbox("http://127.0.0.1:9", retries=0).run(python(""))
    with pytest.raises(ValueError, match="must start with http"):
        PistonSandbox("localhost:2000")


def test_the_verifier_runs_programs_there(server):
    verifier = StdinCodeVerifier(num_workers=2, limits=LIMITS, piston=server.url)
    tests = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}
    problem = Problem(uid="p", question="", answer="", source="test", meta={"tests": tests})
    asked = len(server.requests)
    codes = ["print(sum(map(int, input().split())))", "print(3)", "while True: pass"]
    verdicts = verifier.verify_batch([fenced(code) for code in codes], [problem] * 3)
    assert [v.status for v in verdicts] == ["right", "wrong", "timeout"]
    assert len(server.requests) == asked + 5
    server.troubles[:] = [404]
    assert verifier.verify(fenced(codes[0]), problem).status == "error"
    verifier.close()
