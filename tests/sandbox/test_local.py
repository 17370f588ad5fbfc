"""The sandbox of this machine, as one who runs programs in it sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from sandbox.leftovers import descendants, files, num_descriptors, num_mounts, strangers

from r1lit.sandbox import Limits, LocalSandbox, Program, SandboxError

pytestmark = pytest.mark.alone

SMALL = Limits(wall_s=2.0, cpu_s=1.0, memory_bytes=256 << 20, output_bytes=1 << 16)


@pytest.fixture(scope="module")
def sandbox():
    with LocalSandbox() as sandbox:
        yield sandbox


def python(source: str) -> Program:
    return Program(language="python", files={"main.py": source})


def test_streams_and_exit_code(sandbox):
    source = "import sys\nprint(input()[::-1])\nprint('e', file=sys.stderr)\nsys.exit(3)"
    outcome = sandbox.run(python(source), "abü\n".encode())
    assert (outcome.stdout, outcome.stderr) == ("üba\n".encode(), b"e\n")
    assert (outcome.exit_code, outcome.signal, outcome.ok) == (3, None, False)


@pytest.mark.parametrize(
    ("source", "exit_code", "output"),
    [
        ("print(__name__, __file__)", 0, b"__main__ /program/main.py\n"),
        ("exit()", 0, b""),
        ("raise SystemExit('no')", 1, b""),
        ("import sys; sys.exit(True)", 1, b""),
        ("1 / 0", 1, b""),
        ("import atexit; atexit.register(print, 'end')", 0, b"end\n"),
        ("import threading; threading.Thread(target=lambda: print(1)).start()", 0, b"1\n"),
        ("import sys; sys.stdout.write('a')", 0, b"a"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", 0, b"\xff"),
        ("import os; print(sorted(os.environ))", 0, None),
        ("from other import x; print(x)", 0, b"5\n"),
        (
            "def f(n): return n and f(n - 1)\nimport sys\nsys.setrecursionlimit(10**5)\nf(9**4)",
            0,
            b"",
        ),
        ("import sys; print(sum(map(int, sys.stdin.read().split())))", 0, b"0\n"),
        ("print(open(0).read())", 0, b"\n"),
    ],
)
def test_it_is_a_python_like_any(sandbox, source, exit_code, output):
    program = Program(language="python", files={"main.py": source, "other.py": "x = 5"})
    outcome = sandbox.run(program)
    assert outcome.exit_code == exit_code, outcome
    assert output is None or outcome.stdout == output


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("import time; time.sleep(100)", "wall time"),
        ("import os\nwhile True: os.write(1, b'x' * 1000)", "output"),
        ("open('a', 'wb').write(bytes(17 << 20))", "file size"),
    ],
)
def test_limits_are_named(sandbox, source, limit):
    source = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + source
    outcome = sandbox.run(python(source), limits=SMALL)
    assert (outcome.limit, outcome.timed_out) == (limit, limit.endswith("time"))
    assert not outcome.ok and len(outcome.stdout) <= SMALL.output_bytes


@pytest.mark.parametrize(
    "handler",
    [
        "signal.SIG_DFL",
        "signal.SIG_IGN",
        "lambda *a: exit(1)",
        "lambda *a: os.kill(os.getpid(), 15)",
    ],
)
def test_cpu_time_is_named_however_a_program_takes_its_signal(sandbox, handler):
    source = f"import os, signal\nsignal.signal(signal.SIGXCPU, {handler})\nwhile True: pass"
    outcome = sandbox.run(python(source), limits=Limits(wall_s=60.0, cpu_s=1.0))
    assert (outcome.limit, outcome.timed_out) == ("CPU time", True)


def test_processes_are_counted_for_each_sandbox(sandbox):
    source = (
        "import os, time\nn = 1\ntry:\n    while os.fork(): n += 1\n    time.sleep(9)\n"
        "except OSError: print(n)"
    )
    outcome = sandbox.run(python(source), limits=Limits(wall_s=5, processes=7))
    assert outcome.stdout == b"7\n"


def test_runs_share_nothing_but_the_program(sandbox):
    source = "import os\nprint(os.listdir('.'))\nopen(input(), 'w').write('x')"
    outcomes = list(sandbox.runs(python(source), [b"a\n", b"b\n", b"c\n"], SMALL))
    assert [o.stdout for o in outcomes] == [b"[]\n"] * 3 and all(o.ok for o in outcomes)


def test_long_input_and_output_cross(sandbox):
    text = b"x" * (3 << 20)
    outcome = sandbox.run(python("import sys; sys.stdout.write(sys.stdin.read())"), text)
    assert outcome.stdout == text
    assert sandbox.run(python("pass"), text).ok, "input that nobody reads"


def test_cpp(sandbox):
    if "c++" not in sandbox.languages:
        pytest.skip("no compiler here")
    source = "#include <iostream>\nint main() { int a; while (std::cin >> a) std::cout << 2 * a; }"
    program = Program(language="c++", files={"main.cpp": source})
    outcomes = list(sandbox.runs(program, [b"4", b"50"], SMALL))
    assert [o.stdout for o in outcomes] == [b"8", b"100"]
    broken = sandbox.run(Program(language="c++", files={"main.cpp": "int main() {"}))
    assert not broken.compiled and not broken.ok and b"error" in broken.stderr
    peek = '#include "/etc/passwd"\nint main() {}'
    assert not sandbox.run(Program(language="c++", files={"main.cpp": peek})).compiled


def test_an_unknown_language_is_named(sandbox):
    with pytest.raises(ValueError, match="'cobol' is not one of"):
        sandbox.run(Program(language="cobol", files={"a": ""}))


@pytest.mark.parametrize("name", ["", "../a", "/etc/x", "a/b", ".hidden"])
def test_file_names_are_plain(name):
    with pytest.raises(ValueError, match="plain file name"):
        Program(language="python", files={name: ""})


def test_limits_are_positive():
    with pytest.raises(ValueError, match=r"limits\.wall_s: 0"):
        Limits(wall_s=0)


def test_threads_share_one_sandbox(sandbox):
    found = {}

    def run(number: int) -> None:
        found[number] = sandbox.run(python(f"print({number})")).stdout

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"{n}\n".encode() for n in range(8)}


def test_a_killed_launcher_is_replaced():
    before = descendants()
    with LocalSandbox() as sandbox:
        assert sandbox.run(python("print(1)")).ok
        process = sandbox._process
        with sandbox.open(1 << 20) as container:
            container.put("main.py", "import time; time.sleep(100)")
            container.start({"mode": "main", "files": ["main.py"]}, Limits())
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(SandboxError, match="ended"):
                container.outcome(10)
        process.wait()
        assert sandbox.run(python("print(1)")).ok
    time.sleep(0.1)
    assert descendants() == before and not strangers()


def test_what_protects_is_said(sandbox):
    on = "\n".join(sandbox.protections())
    for word in ("network", "other processes", "files", "scratch", "system call", "limits"):
        assert word in on
    assert "memory of all its processes and sockets together" in on


NO_NAMESPACES = """
import sys
from r1lit.sandbox import Limits, LocalSandbox, Program, SandboxError
source = "import os, time\\nif os.fork() == 0: os.setsid(); time.sleep(1000)\\nprint(os.getcwd())"
program = Program(language="python", files={"main.py": source})
try:
    LocalSandbox().run(program)
except SandboxError as error:
    print(error)
sandbox = LocalSandbox(allow_unprotected=True)
outcome = sandbox.run(program)
print(sandbox.protections())
print(outcome)
import os
assert not os.path.exists(outcome.stdout.decode().strip()), outcome
sandbox.close()
"""


def test_without_namespaces_it_refuses_unless_allowed():
    before = descendants()
    script = "echo 0 > /proc/sys/user/max_user_namespaces && exec " + sys.executable + ' -c "$0"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, NO_NAMESPACES]
    paths = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=paths)
    if "unshare" in done.stderr:
        pytest.skip("no user namespaces to take away")
    refusal, on, outcome = done.stdout.splitlines()
    assert "allow_unprotected=True" in refusal and "No space" in refusal
    assert "system call filter" in on and "network namespace" not in on
    assert "exit_code=0" in outcome and done.returncode == 0
    assert descendants() == before and not strangers()


def leak(sandbox, num: int) -> None:
    sources = [
        "print(1)",
        "import os, time\nif os.fork() == 0:\n    os.setsid(); os.fork(); time.sleep(1000)",
        "import os\nfor n in range(100): open(f'{n}', 'w').write('x' * 1000)\nos._exit(1)",
        "import os, signal\nos.fork()\nos.kill(os.getpid(), signal.SIGSEGV)",
    ]
    sandbox.run(python("pass"))
    before = descendants(), files(), num_mounts(), num_descriptors()
    launcher = sandbox._process.pid
    opened = len(os.listdir(f"/proc/{launcher}/fd"))
    for number in range(num):
        sandbox.run(python(sources[number % len(sources)]), limits=SMALL)
    assert (descendants(), files(), num_mounts(), num_descriptors()) == before
    assert len(os.listdir(f"/proc/{launcher}/fd")) == opened and not strangers()


def test_twenty_programs_in_a_row_leak_nothing(sandbox):
    leak(sandbox, 20)


@pytest.mark.slow
def test_five_hundred_programs_in_a_row_leak_nothing(sandbox):
    leak(sandbox, 500)
