"""Items that hang, crash, recurse or eat memory, beside good ones; callers of every kind."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from r1lit.batches import Problem
from r1lit.verifiers import MathVerifier
from r1lit.verifiers import pool as pool_module
from r1lit.verifiers.pool import WorkerPool

SCRIPT = """
import os, runpy, time
def nest(n): return nest(n + 1) + 1
def decide(request):
    kind = request["kind"]
    if kind == "hang": time.sleep(1000)
    if kind == "crash": os.abort()
    if kind == "leave": os._exit(0)
    if kind == "recurse": nest(0)
    if kind == "memory":
        held = []
        while True: held.append(bytearray(64 * 1024 ** 2))
    if kind == "raise": raise OSError("disk")
    return {"status": "right", "kind": kind}
runpy.run_path(SERVING)["serve"](lambda: None, decide)
"""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    script = tmp_path / "items.py"
    serving = Path(pool_module.__file__).with_name("serving.py")
    script.write_text(SCRIPT.replace("SERVING", repr(str(serving))))
    pool = WorkerPool(script, num_workers=2, timeout_s=8.0)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("hang", "timeout", "no decision in 8 s"),
        ("crash", "error", "exit status -6"),
        ("leave", "error", "exit status 0"),
        ("recurse", "error", "RecursionError"),
        ("memory", "error", "MemoryError"),
        ("raise", "error", "OSError while deciding: disk"),
    ],
)
def test_a_bad_item_costs_only_itself(pool: WorkerPool, kind: str, status: str, reason: str):
    kinds = ["a", "b", kind, "c", "d", kind, "e"]
    replies = pool.run([{"kind": k} for k in kinds])
    found = [reply.content["status"] for reply in replies]
    assert found == ["right", "right", status, "right", "right", status, "right"]
    assert [r.content.get("kind") for r in replies if r.content["status"] == "right"] == list(
        "abcde"
    )
    assert reason in replies[2].content["reason"] and len(pool.pids) <= 2


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
