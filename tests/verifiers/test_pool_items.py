"""Items that hang, crash, recurse or eat memory, beside good ones; callers of every kind."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from r1lit.batches import Problem
from r1lit.verifiers import MathVerifier
from r1lit.verifiers import pool as pool_module
from r1lit.verifiers.pool import WorkerPool

SCRIPT = """
import os, resource, runpy, signal, sys, time
class TimeoutException(BaseException): pass
def interrupt(number, frame): raise TimeoutError("interrupted")
def nest(n): return nest(n + 1) + 1
def decide(request):
    kind = request["kind"]
    if kind == "hang": time.sleep(1000)
    if kind == "wait": time.sleep(0.02)
    if kind == "crash": os.abort()
    if kind == "leave": os._exit(0)
    if kind == "recurse": nest(0)
    if kind == "memory":
        # a quarter of what workers may have, which is sooner full
        resource.setrlimit(resource.RLIMIT_AS, (512 * 1024 ** 2, 2 * 1024 ** 3))
        held = []
        while True: held.append(bytearray(64 * 1024 ** 2))
    if kind == "raise": raise OSError("disk")
    if kind == "exit": sys.exit("from a library")
    if kind == "late": raise TimeoutException("its own limit")
    if kind == "alarm": signal.alarm(1); time.sleep(1000)
    if kind == "handler":
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(1000)
    if kind == "processor": signal.raise_signal(signal.SIGXCPU)
    return {"status": "right", "kind": kind}
runpy.run_path(SERVING)["serve"](lambda: None, decide)
"""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    script = tmp_path / "items.py"
    serving = Path(pool_module.__file__).with_name("worker.py")
    script.write_text(SCRIPT.replace("SERVING", repr(str(serving))))
    pool = WorkerPool(script, num_workers=2, timeout_s=8.0)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("hang", "timeout", "no decision in 3 s"),
        ("crash", "error", "exit status -6"),
        ("leave", "error", "exit status 0"),
        ("recurse", "error", "RecursionError"),
        ("memory", "error", "MemoryError"),
        ("raise", "error", "OSError while deciding: disk"),
        ("exit", "error", "SystemExit while deciding: from a library"),
        ("late", "timeout", "TimeoutException while deciding: its own limit"),
        ("handler", "timeout", "TimeoutError while deciding: interrupted"),
        ("alarm", "timeout", "ended by SIGALRM"),
        ("processor", "timeout", "ended by SIGXCPU"),
    ],
)
def test_a_bad_item_costs_only_itself(pool: WorkerPool, kind: str, status: str, reason: str):
    kinds = ["a", "b", kind, "c", "d", kind, "e"]
    if kind == "hang":
        pool.timeout_s = 3.0
    replies = pool.run([{"kind": k} for k in kinds])
    found = [reply.content["status"] for reply in replies]
    assert found == ["right", "right", status, "right", "right", status, "right"]
    assert [r.content.get("kind") for r in replies if r.content["status"] == "right"] == list(
        "abcde"
    )
    assert reason in replies[2].content["reason"] and len(pool.pids) <= 2


def run_in_thread(
    pool: WorkerPool, kinds: list[str], done: dict[str, list[str]]
) -> threading.Thread:
    """Run items in a thread, which writes their statuses under the first one's kind."""

    def work() -> None:
        replies = pool.run([{"kind": kind} for kind in kinds])
        done[kinds[0]] = [reply.content["status"] for reply in replies]

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.long
def test_a_callers_hung_item_does_not_hold_up_another_caller(pool: WorkerPool):
    done: dict[str, list[str]] = {}
    hung = run_in_thread(pool, ["hang"], done)
    others = [run_in_thread(pool, [name] * 20, done) for name in "abc"]
    for thread in others:
        thread.join(60)
    assert done == {name: ["right"] * 20 for name in "abc"} and hung.is_alive()
    hung.join(60)
    assert done["hang"] == ["timeout"]


def test_a_long_list_and_a_short_one_take_turns(pool: WorkerPool):
    pool.num_workers = 1
    done: dict[str, list[str]] = {}
    long = run_in_thread(pool, ["wait"] * 100, done)
    short = run_in_thread(pool, ["a", "b"], done)
    short.join(60)
    assert done == {"a": ["right", "right"]}
    long.join(60)
    assert done["wait"] == ["right"] * 100


def test_a_caller_that_is_interrupted_leaves_the_others_their_replies(pool: WorkerPool):
    pool.timeout_s = 1000.0
    main = threading.main_thread().ident
    assert main is not None
    done: dict[str, list[str]] = {}

    def interrupt_main_thread() -> None:
        while len(pool.pids) < 2 or any(worker.idle for worker in pool._workers):
            time.sleep(0.01)
        other = run_in_thread(pool, ["a", "b"], done)
        while len(pool._calls) < 2:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)
        other.join(60)

    # a process in the background of a shell ignores the signal, and so would wait for ever
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt_main_thread)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run([{"kind": "hang"}, {"kind": "hang"}])
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(60)
    assert done == {"a": ["right", "right"]}


def test_async_callers_get_their_own_verdicts():
    verifier = MathVerifier(timeout_s=60.0, num_workers=2)
    problem = Problem(uid="m", question="", answer=r"\frac{1}{2}", source="test")

    async def ask(answer: str) -> str:
        verdict = await asyncio.to_thread(verifier.verify, f"<answer>{answer}</answer>", problem)
        return verdict.status

    async def ask_all() -> list[str]:
        return await asyncio.gather(*(ask(f"{n}/6") for n in range(1, 8)))

    statuses = asyncio.run(ask_all())
    verifier.close()
    assert statuses == ["wrong", "wrong", "right", "wrong", "wrong", "wrong", "wrong"]
