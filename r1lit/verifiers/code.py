"""What the two verifiers of code share: finding the program and judging it in worker processes."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import r1lit.sandbox
from r1lit.problems import Problem, Verdict
from r1lit.sandbox.base import Limits
from r1lit.text.code_block import CodeBlock, find_code
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.pool import WorkerPool

MAX_CHARACTERS = 200_000
GRACE_S = 2.0
CPU_S = 10.0  # a reference of MBPP takes 5; wall-clock time has to do on crowded cores too
_WORKER = Path(r1lit.sandbox.__file__).with_name("worker.py")
REMOTE_WORKER = _WORKER.with_name("remote_worker.py")


class CodeVerifier(Verifier):
    """Judges the program of a response in a sandbox, in at most ``num_workers`` at once.

    ``timeout_s`` is the time for one program with all its tests; one that takes longer has status
    ``timeout``. Unless ``limits`` say otherwise, half of it may be CPU time, and 10 s in any case:
    the rest is for waiting where others use the cores. Nothing starts before the first program.
    ``canonical`` is ``None``: programs cast no votes.
    """

    needs_answer = False
    in_background = True
    kind: str
    languages: tuple[str, ...]

    def __init__(
        self, timeout_s: float = 20.0, num_workers: int = 2, limits: Limits | None = None
    ) -> None:
        self.pool = WorkerPool(_WORKER, num_workers, timeout_s, GRACE_S)
        self.timeout_s = timeout_s
        self.num_workers = num_workers
        cpu_s = min(timeout_s, max(CPU_S, timeout_s / 2))
        self.limits = limits or Limits(wall_s=timeout_s, cpu_s=cpu_s)

    @abstractmethod
    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return what a worker needs to judge the program."""

    @abstractmethod
    def check_meta(self, problem: Problem) -> None:
        """Check that ``problem.meta`` has tests, or raise ``ValueError``."""

    def names(self, problem: Problem) -> Sequence[str]:
        """Return the names that the program should define; none where that is not known."""
        return ()

    def complaint(self, problem: Problem, key: str, right: str) -> ValueError:
        """Return the error about a malformed ``meta[key]``."""
        found = repr(problem.meta.get(key))
        return ValueError(
            f"meta.{key}: problem {problem.uid!r} has {found[:60]}; {type(self).__name__} needs"
            f" {right}"
        )

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order.

        Raises:
            ValueError: if a problem has no tests, or malformed ones.
            RuntimeError: if the worker processes cannot start, as where there is no sandbox.
        """
        for problem in problems:
            self.check_meta(problem)
        verdicts: dict[int, Verdict] = {}
        requests: dict[int, Mapping[str, Any]] = {}
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            start = time.perf_counter()
            block = find_code(response, self.names(problem))
            refusal = self._refusal(block)
            if block is None or refusal:
                verdicts[row] = conclude("unparsed", None, refusal, start)
            else:
                request = self.request(block, problem)
                requests[row] = {**request, "kind": self.kind, "limits": asdict(self.limits)}
        replies = self.pool.run(list(requests.values())) if requests else []
        for row, reply in zip(requests, replies, strict=True):
            content = {"value": 0.0, "canonical": None, **reply.content}
            verdicts[row] = Verdict(seconds=reply.seconds, **content)
        return [verdicts[row] for row in range(len(responses))]

    def _refusal(self, block: CodeBlock | None) -> str:
        """Say why a block cannot be judged; empty when it can."""
        if block is None:
            return "no fenced block outside thinking"
        if not block.code.strip():
            return "an empty block"
        if len(block.code) > MAX_CHARACTERS:
            return f"a program longer than {MAX_CHARACTERS} characters"
        if block.language and block.language not in self.languages:
            return f"a program in {block.language}, not {' or '.join(self.languages)}"
        return ""

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()
