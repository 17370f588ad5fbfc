"""What happens when an answer hangs, when a worker dies, and when the parent does."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier
from r1lit.verifiers import pool as pool_module
from r1lit.verifiers.pool import MAX_FAILED_STARTS, ItemReply, WorkerPool

HANGS = ["(10^{9})!", "9^{9^{9^{9}}}", "2^{10^{10}}"]
GOLD = Problem(uid="m", question="", answer="2^{-1}", source="test")  # never decided here


@pytest.fixture
def one_worker() -> Iterator[MathVerifier]:
    verifier = MathVerifier(timeout_s=4.0, num_workers=1)
    yield verifier
    verifier.close()


def decide(verifier: MathVerifier, answers: list[str]) -> list[Verdict]:
    return verifier.verify_batch([f"<answer>{a}</answer>" for a in answers], [GOLD] * len(answers))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("hang", HANGS)
def test_an_answer_that_hangs_costs_only_itself(one_worker: MathVerifier, hang: str):
    verdicts = decide(one_worker, ["0.5", hang, "1/3", "1/2"])
    assert [v.status for v in verdicts] == ["right", "timeout", "wrong", "right"]
    late = verdicts[1]
    assert (late.value, late.canonical, late.reason) == (0.0, None, "no decision in 4 s")
    assert 4.0 <= late.seconds < 10.0


@pytest.mark.long
def test_order_is_kept_and_other_workers_go_on():
    verifier = MathVerifier(timeout_s=4.0, num_workers=2)
    answers = [HANGS[0], *[f"{n}/7" for n in range(1, 20)], "0.5", HANGS[1], "3/6"]
    statuses = [v.status for v in decide(verifier, answers)]
    assert statuses == ["timeout", *["wrong"] * 19, "right", "timeout", "right"]
    canonicals = [v.canonical for v in decide(verifier, answers[1:14])]
    verifier.close()
    assert canonicals == ["1/7", "2/7", "3/7", "4/7", "5/7", "6/7", "1"] + [
        f"{n}/7" for n in range(8, 14)
    ]


def kill_at_work(pool: WorkerPool, others: list[int]) -> int:
    """Kill the worker that is busy and none of ``others``; return which it was."""

    def victims() -> list[int]:
        busy = [w for w in list(pool._workers) if w.item is not None]
        return [w.process.pid for w in busy if w.process.pid not in others]

    assert wait_until(lambda: len(victims()) == 1)
    (victim,) = victims()
    os.kill(victim, signal.SIGKILL)
    return victim


def sleeper(folder: Path, first: str, later: str) -> WorkerPool:
    """A pool whose workers do ``first`` with the first item of all, and ``later`` with others."""
    script, serving = folder / "sleeper.py", Path(pool_module.__file__).with_name("worker.py")
    script.write_text(
        "import pathlib, runpy, time\n"
        f"seen = pathlib.Path({str(folder / 'seen')!r})\n"
        "def decide(request):\n"
        "    is_first = not seen.exists()\n"
        "    seen.touch()\n"
        f"    {first} if is_first else {later}\n"
        "    return {'status': 'right', 'canonical': None, 'reason': ''}\n"
        f"runpy.run_path({str(serving)!r})['serve'](lambda: None, decide)\n"
    )
    return WorkerPool(script, num_workers=1, timeout_s=60.0)


def run_in_thread(pool: WorkerPool, count: int) -> tuple[threading.Thread, list[ItemReply]]:
    replies: list[ItemReply] = []
    thread = threading.Thread(target=lambda: replies.extend(pool.run([{}] * count)))
    thread.start()
    return thread, replies


def test_an_item_whose_worker_is_killed_is_tried_once_more(tmp_path: Path):
    pool = sleeper(tmp_path, first="time.sleep(1000)", later="None")
    thread, replies = run_in_thread(pool, 3)
    assert wait_until((tmp_path / "seen").exists)  # killed before, the next one would sleep
    victim = kill_at_work(pool, [])
    thread.join(60)
    assert [reply.content["status"] for reply in replies] == ["right"] * 3
    assert pool.pids not in ([], [victim])
    pool.close()


@pytest.mark.long
def test_an_item_whose_workers_are_killed_twice_is_an_error_and_costs_only_itself(tmp_path: Path):
    verifier = MathVerifier(timeout_s=60.0, num_workers=1)
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.extend(decide(verifier, [HANGS[0], "0.5"])))
    thread.start()
    first = kill_at_work(verifier.pool, [])
    second = kill_at_work(verifier.pool, [first])
    thread.join(60)
    assert [v.status for v in verdicts] == ["error", "right"]
    assert "exit status -9" in verdicts[0].reason and "the one before it" in verdicts[0].reason
    assert verifier.pool.pids not in ([], [first], [second])
    verifier.close()


@pytest.mark.long
@pytest.mark.parametrize("times", [1, MAX_FAILED_STARTS - 1])
def test_a_worker_killed_while_starting_is_replaced(one_worker: MathVerifier, times: int):
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.extend(decide(one_worker, ["0.5"])))
    thread.start()
    killed: list[int] = []
    for _ in range(times):
        assert wait_until(lambda last=killed[-1:]: one_worker.pool.pids not in ([], last))
        killed += one_worker.pool.pids
        assert one_worker.pool._workers[0].starting
        os.kill(killed[-1], signal.SIGKILL)
    thread.join(60)
    assert [v.status for v in verdicts] == ["right"]
    assert set(one_worker.pool.pids).isdisjoint(killed) and one_worker.pool._failed_starts == 0


@pytest.mark.long
def test_a_worker_killed_at_rest_costs_nothing(one_worker: MathVerifier):
    assert decide(one_worker, ["0.5"])[0].status == "right"
    (victim,) = one_worker.pool.pids
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: not alive(victim))
    assert decide(one_worker, ["0.5"])[0].status == "right"


@pytest.mark.long
def test_memory_is_bounded(one_worker: MathVerifier):
    assert decide(one_worker, ["0.5"])[0].status == "right"
    limits = Path(f"/proc/{one_worker.pool.pids[0]}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert line.split()[3] == str(2 * 1024**3)


@pytest.mark.long
def test_threads_get_the_same_verdicts(one_worker: MathVerifier):
    answers = ["0.5", "1/3", r"\frac{2}{4}", "x"]
    expected = [(v.status, v.canonical) for v in decide(one_worker, answers)]
    assert [status for status, _ in expected] == ["right", "wrong", "right", "wrong"]
    found: dict[int, list] = {}

    def work(name: int) -> None:
        found[name] = [(v.status, v.canonical) for v in decide(one_worker, answers)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == dict.fromkeys(range(4), expected)


@pytest.mark.long
def test_a_copy_has_processes_of_its_own(one_worker: MathVerifier):
    decide(one_worker, ["0.5"])
    for twin in (copy.deepcopy(one_worker), pickle.loads(pickle.dumps(one_worker))):
        assert (twin.timeout_s, twin.num_workers, twin.pool.pids) == (4.0, 1, [])
        assert decide(twin, ["0.5"])[0].status == "right"
        assert set(twin.pool.pids).isdisjoint(one_worker.pool.pids)
        twin.close()
    assert decide(one_worker, ["0.5"])[0].status == "right"


def _in_fork(verifier: MathVerifier, queue) -> None:
    queue.put([v.status for v in decide(verifier, ["0.5", "1/3"])])
    verifier.close()


@pytest.mark.long
def test_a_fork_leaves_its_parents_processes_alone(one_worker: MathVerifier):
    decide(one_worker, ["0.5"])
    before = one_worker.pool.pids
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_fork, args=(one_worker, queue))
    child.start()
    assert queue.get(timeout=60) == ["right", "wrong"]
    child.join(30)
    assert one_worker.pool.pids == before and alive(before[0])
    assert decide(one_worker, ["0.5"])[0].status == "right"


@pytest.mark.long
def test_processes_start_late_and_end_at_close(one_worker: MathVerifier):
    assert decide(one_worker, ["7"])[0].status == "wrong"
    (first,) = one_worker.pool.pids
    assert alive(first)
    one_worker.close()
    assert one_worker.pool.pids == [] and not alive(first)
    assert decide(one_worker, ["0.5"])[0].status == "right"


def test_whole_numbers_start_no_process(one_worker: MathVerifier):
    problem = Problem(uid="m", question="", answer="72", source="test")
    assert one_worker.verify("<answer>72</answer>", problem).status == "right"
    assert one_worker.pool.pids == []


@pytest.mark.long
def test_workers_do_not_import_torch(one_worker: MathVerifier):
    decide(one_worker, ["0.5"])
    loaded = Path(f"/proc/{one_worker.pool.pids[0]}/maps").read_text()
    assert "python" in loaded and "torch" not in loaded


SCRIPT = """
import threading, time
from r1lit.batches import Problem
from r1lit.verifiers import MathVerifier
verifier = MathVerifier(timeout_s=4.0, num_workers=1)
gold = Problem(uid="m", question="", answer="2^{-1}", source="test")
assert verifier.verify("<answer>1/2</answer>", gold).status == "right"
"""
AT_REST = "print(verifier.pool.pids[0])"
AT_WORK = f"""
slow = "<answer>{HANGS[0]}</answer>"
threading.Thread(target=lambda: verifier.verify(slow, gold)).start()
while verifier.pool._workers[0].idle:
    time.sleep(0.01)
print(verifier.pool.pids[0], flush=True)
"""


@pytest.mark.long
def test_no_process_outlives_its_parent():
    command = [sys.executable, "-c", SCRIPT + AT_REST]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert wait_until(lambda: not alive(int(done.stdout)))


@pytest.mark.long
def test_no_process_outlives_a_killed_parent_even_at_work():
    command = [sys.executable, "-c", SCRIPT + AT_WORK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    assert alive(worker)
    assert wait_until(lambda: not alive(worker))


def test_a_script_that_cannot_start_is_said_so(tmp_path: Path):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit(3)")
    pool = WorkerPool(script, num_workers=2, timeout_s=1.0)
    for _ in range(2):
        message = r"broken\.py: a worker died starting \(3\), 3 in a row"
        with pytest.raises(RuntimeError, match=message):
            pool.run([{}, {}])
