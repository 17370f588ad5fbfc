"""Code with tests by standard input and output, as CodeContests and LiveCodeBench have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from r1lit.problems import Problem
from r1lit.sandbox.base import Limits
from r1lit.sandbox.piston import PistonSandbox
from r1lit.text.code_block import CodeBlock
from r1lit.verifiers.code import GRACE_S, REMOTE_WORKER, CodeVerifier
from r1lit.verifiers.pool import WorkerPool


class StdinCodeVerifier(CodeVerifier):
    r"""Decides about programs that read standard input and write standard output.

    ``problem.meta["tests"]`` holds ``inputs`` and ``outputs``, lists of texts. Outputs are compared
    token by token; where a decimal fraction is expected, within ``tolerance`` (absolute or
    relative). With ``partial`` the value is the fraction of tests passed, and only all of them make
    it right. A block whose fence names no language is Python, or C++ if it includes a header.

    Programs run on this machine, or on the Piston server whose URL is ``piston``. ``limits`` hold
    for one test, ``timeout_s`` for all tests of a program together.

    Args:
        timeout_s: seconds that all tests of a program may take.
        num_workers: processes that work on responses side by side.
        limits: of time, memory and output of one test; `r1lit.sandbox.Limits`' own if left
            out.
        tolerance: how far a decimal fraction may be off, absolutely or relatively.
        partial: give the share of tests passed as the value.
        piston: URL of the Piston server that runs programs; this machine if left out.

    >>> meta = {"tests": {"inputs": ["1 2"], "outputs": ["3"]}}
    >>> problem = Problem(uid="", question="", answer="", source="", meta=meta)
    >>> fence = "`" * 3
    >>> response = f"{fence}python\nprint(sum(map(int, input().split())))\n{fence}"
    >>> verifier = StdinCodeVerifier(num_workers=1)
    >>> verifier.verify(response, problem).value
    1.0
    >>> verifier.close()
    """

    kind = "stdin"
    languages = ("python", "c++")

    def __init__(
        self,
        timeout_s: float = 60.0,
        num_workers: int = 2,
        limits: Limits | None = None,
        tolerance: float = 1e-6,
        partial: bool = False,
        piston: str | None = None,
    ) -> None:
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance: {tolerance} must be from 0 to 1, such as 1e-6")
        super().__init__(timeout_s, num_workers, limits or Limits(wall_s=min(10.0, timeout_s)))
        if piston is not None:
            PistonSandbox(piston)  # is it a URL?
            self.pool = WorkerPool(REMOTE_WORKER, num_workers, timeout_s, GRACE_S)
        self.piston = piston
        self.tolerance = tolerance
        self.partial = partial

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return what a worker needs to judge the program."""
        tests = problem.meta["tests"]
        return {
            "language": block.language or ("c++" if "#include" in block.code else "python"),
            "code": block.code,
            "inputs": list(tests["inputs"]),
            "outputs": list(tests["outputs"]),
            "tolerance": self.tolerance,
            "partial": self.partial,
            "total_s": self.timeout_s,
            "piston": self.piston,
        }

    def check_meta(self, problem: Problem) -> None:
        """Check that ``problem.meta`` has tests.

        Raises:
            ValueError: naming the problem and what is missing or malformed.
        """
        tests = problem.meta.get("tests")
        if not isinstance(tests, Mapping) or not {"inputs", "outputs"} <= tests.keys():
            raise self.complaint(problem, "tests", "{inputs: [...], outputs: [...]}")
        inputs, outputs = tests["inputs"], tests["outputs"]
        if len(inputs) != len(outputs) or not inputs:
            raise self.complaint(problem, "tests", "as many inputs as outputs, at least one")
        if not all(isinstance(text, str) for text in (*inputs, *outputs)):
            raise self.complaint(problem, "tests", "inputs and outputs that are texts")
