"""Record the calls of a changed function that its tests cause, for the hidden part of a verdict.

The tests run once with the right code. Of the changed function, and of the functions that led to
it, the nearest one is taken whose arguments and results are plain data and of which fresh calls,
drawn three times, tell the right code from the changed one. Results are those of a process of its
own, without tests.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from r1lit.sandbox import Limits, LocalSandbox, SandboxError
from r1lit.sandbox.hidden_calls import (
    Call,
    Sources,
    draw,
    is_sure,
    of_trusted,
    opened,
)
from r1lit.sandbox.repository import function_of, is_test, run_suite
from r1lit.sandbox.same_outcomes import same

MOST_FUNCTIONS = 8
MOST_CALLS = 40
DRAWS, LEAST_TELLING = 4, 2


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A library's files with the right code and with a change, and how its tests run."""

    right: Mapping[str, str]
    changed: Mapping[str, str]
    roots: Sequence[str]
    limits: Limits

    def sources(self, packages: Sequence[str] | None = None) -> tuple[Sources, Sources]:
        """Return both without tests, as processes import them."""
        both = [
            {path: text for path, text in files.items() if not is_test(path)}
            for files in (self.right, self.changed)
        ]
        first, second = (Sources(files=f, roots=self.roots, packages=packages) for f in both)
        return first, second


def recorded_calls(
    sandbox: LocalSandbox,
    repaired: Repaired,
    place: tuple[str, int, int],
    tests: Sequence[str],
    seed: int,
) -> dict[str, Any] | None:
    """Return the calls of the code at ``place`` (path, first and last line) that tests cause.

    They are what ``meta.calls`` of a problem holds: ``packages``, and ``functions`` with
    ``module``, ``name`` and ``calls``. None if there are no calls of plain data that tell the
    change.
    """
    report = run_suite(
        sandbox,
        repaired.right,
        sorted({test.partition("::")[0] for test in tests}),
        repaired.limits,
        roots=repaired.roots,
        keep={function_of(test) for test in tests},
        recorded=place,
    )
    for module, name, _, texts in [row for row in report.recorded if row[3]][:MOST_FUNCTIONS]:
        calls = [Call(module, name, text) for text in texts]
        try:
            found = _kept(sandbox, repaired, calls, random.Random(seed))
        except SandboxError:  # the library does not come up without its tests
            continue
        if found is not None:
            return found
    return None


def _kept(
    sandbox: LocalSandbox, repaired: Repaired, calls: Sequence[Call], rng: random.Random
) -> dict[str, Any] | None:
    """Return the recorded calls of one function, if fresh ones tell the change."""
    roots, limits = repaired.roots, repaired.limits
    with opened(sandbox, *repaired.sources()) as container:
        right, used = of_trusted(container, 0, roots, calls, limits)
        unpatched, _ = of_trusted(container, 1, roots, calls, limits)
    packages = sorted({*used} - {top for root in roots for top in _top_level(repaired.right, root)})
    raised = [outcome for outcome in right if outcome[0] == "raised"]
    sure = [n for n in range(len(calls)) if is_sure(right[n], raised)]
    rng.shuffle(sure)
    sure.sort(key=lambda n: same(right[n], unpatched[n]))  # those that tell the change first
    kept = [
        replace(calls[n], recorded=right[n], tells=not same(right[n], unpatched[n]))
        for n in sorted(sure[:MOST_CALLS])
    ]
    if not kept:
        return None
    with opened(sandbox, *repaired.sources(packages)) as container:
        again, _ = of_trusted(container, 0, roots, kept, limits)
        kept = [c for c, outcome in zip(kept, again, strict=True) if same(c.recorded, outcome)]
        for _ in range(DRAWS if kept else 0):
            if len(draw(container, roots, kept, limits, rng).telling) < LEAST_TELLING:
                return None
    rows = [[call.arguments, json.dumps(call.recorded), call.tells] for call in kept]
    function = {"module": calls[0].module, "name": calls[0].name, "calls": rows}
    return {"packages": packages, "functions": [function]} if kept else None


def _top_level(files: Mapping[str, str], root: str) -> set[str]:
    """Return the names that a library's own packages and modules would have as installed ones."""
    start = f"{root}/" if root else ""
    inside = (path.removeprefix(start) for path in files if path.startswith(start))
    return {path.partition("/")[0] for path in inside}
