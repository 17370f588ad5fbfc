"""Judges every attack as whoever runs this file; prints what protects, then a verdict a line.

It needs the standard library and this package's sandbox only, so that any Python can run it.
``python as_another_user.py LIMIT`` tries at most LIMIT attacks of either kind, and all on process 1
(it has the same user); PYTHONPATH names the repository and its tests.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from typing import Any

from sandbox import attacks, stdin_attacks

from r1lit.sandbox import Limits, LocalSandbox, grading

LIMITS = Limits(wall_s=1.0, cpu_s=1.0, memory_bytes=256 << 20, scratch_bytes=16 << 20)


def call(sandbox: LocalSandbox, code: str) -> dict[str, Any]:
    request = {"files": {"main.py": code}, "given": "", "tests": attacks.TESTS}
    return grading.grade_functions(sandbox, request, LIMITS)


def read(sandbox: LocalSandbox, code: str) -> dict[str, Any]:
    request = {
        "language": "python", "code": code, "inputs": stdin_attacks.INPUTS,
        "outputs": stdin_attacks.OUTPUTS, "tolerance": 1e-6, "total_s": 60.0, "partial": True,
    }  # fmt: skip
    return grading.grade_output(sandbox, request, LIMITS)


def main(limit: int) -> None:
    with LocalSandbox() as sandbox:
        print(json.dumps({"user": os.geteuid(), "protections": sandbox.protections()}))
        for judge, honest, programs in (
            (call, attacks.HONEST, attacks.CALLED),
            (read, stdin_attacks.HONEST, stdin_attacks.PRINTED),
        ):
            some = dict(islice(programs.items(), limit))
            some |= {name: code for name, code in programs.items() if "process 1" in name}
            for name, code in {**some, "honest": honest}.items():
                print(json.dumps({"name": name, **judge(sandbox, code)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
