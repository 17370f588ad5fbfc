"""The hidden part of a verdict: what a patched function returns for arguments, nothing else.

Three processes, each in a sandbox of its own or in one that no patch enters:

    tested     the patched files without tests, and arguments     returns outcomes, as JSON
    right      the mended files                                   returns outcomes, as JSON
    unpatched  the files with the bug                             returns outcomes, as JSON

The tested process can do anything within its sandbox. It has nothing to find there: no expected
outcome, no test, no right source, no key. Its reply is parsed as JSON, compared with that of the
right code part by part, and never turned into objects. Some of the calls were recorded when the
task was made; the others are drawn for this verdict (`r1lit.sandbox.variations`), a part of them
such that the bug shows. So a table of recorded calls, or of what tests show, is not enough.

An outcome is compared only where the right code is sure of it: the same before and after the
tested process ran, and the same as recorded.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1lit.sandbox.base import Limits, Outcome, SandboxError
from r1lit.sandbox.grading import describe_exit
from r1lit.sandbox.local import START_SECONDS, Container, LocalSandbox, packages
from r1lit.sandbox.same_outcomes import Tree, same
from r1lit.sandbox.variations import contracts_of, variation

CALL_S, TOTAL_S = 0.2, 10.0
CANDIDATES = 300
MOST_FRESH = 24
ROUNDS = 3
_ROOM = Path(__file__).parent
_PACKING = ("packing.py", "plain.py")


@dataclass(frozen=True)
class Call:
    """A call: the function by module and name, its packed arguments, and what was recorded.

    ``tells`` is whether the bug shows in it.
    """

    module: str
    name: str
    arguments: str
    recorded: Tree = None
    tells: bool = False

    @property
    def question(self) -> list[str]:
        """The part of it that a process is sent."""
        return [self.module, self.name, self.arguments]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files of a repository that a process imports, from ``roots``, and installed packages."""

    files: Mapping[str, str]
    roots: Sequence[str]
    packages: Sequence[str] | None = None

    def shown(self) -> list[str]:
        """Return the folders of the packages that a process sees; all where it is not known."""
        if self.packages is None:
            return packages()
        found = [f"{folder}/{name}" for folder in packages() for name in self.packages]
        return [path for path in found if Path(path).exists()]


def packing_files() -> dict[str, str]:
    """Return the files by which a program in a sandbox packs arguments, under their own names."""
    files = {f"r1lit/sandbox/{name}": (_ROOM / name).read_text() for name in _PACKING}
    return {"r1lit/__init__.py": "", "r1lit/sandbox/__init__.py": "", **files}


def opened(sandbox: LocalSandbox, sources: Sources, *more: Sources) -> Container:
    """Return a sandbox with the files of some sources, in folders named by numbers."""
    size = sum(len(text) for own in (sources, *more) for text in own.files.values())
    container = sandbox.open(max(64 << 20, 4 * size), packages=sources.shown())
    container.put("main.py", (_ROOM / "call_main.py").read_text())
    for name, content in packing_files().items():
        container.put(name, content)
    for number, own in enumerate((sources, *more)):
        for path, content in own.files.items():
            container.put(f"{number}/{path}", content)
    return container


def ask(
    container: Container,
    number: int,
    roots: Sequence[str],
    calls: Sequence[Call],
    limits: Limits,
    *,
    trusted: bool,
) -> Outcome:
    """Return how the process that makes some calls with the files ``number`` ended."""
    request = {
        "folder": f"/program/{number}",
        "roots": list(roots),
        "calls": [call.question for call in calls],
        "seconds": CALL_S * trusted,
        "total_s": TOTAL_S * trusted,
    }
    container.start({"mode": "main", "files": ["main.py"]}, limits, json.dumps(request).encode())
    return container.outcome(limits.wall_s + START_SECONDS)


def replies(outcome: Outcome, number: int) -> list[Tree] | None:
    """Return the outcomes of so many calls that a process printed; ``None`` if it did not."""
    content = _parsed(outcome)
    found = content.get("outcomes") if isinstance(content, dict) else None
    return found if isinstance(found, list) and len(found) == number else None


def _parsed(outcome: Outcome) -> Any:
    try:
        return json.loads(outcome.stdout) if outcome.ok else None
    except (ValueError, RecursionError, MemoryError):
        return None


def of_trusted(
    container: Container, number: int, roots: Sequence[str], calls: Sequence[Call], limits: Limits
) -> tuple[list[Tree], list[str]]:
    """Return the outcomes of calls with code that is no patch, and the packages that it imports.

    Raises:
        SandboxError: if there are none.
    """
    outcome = ask(container, number, roots, calls, limits, trusted=True)
    found = replies(outcome, len(calls))
    if found is None:
        raise SandboxError(f"the right code gave no outcomes: {describe_exit(outcome)}")
    return found, _parsed(outcome)["packages"]


def is_sure(outcome: Tree, raised: Sequence[Tree]) -> bool:
    """Return whether an outcome of the right code decides: data, or an exception that tests know.

    A path in the sandbox, or a place in memory, is another one elsewhere.
    """
    if outcome[0] == "none" or (outcome[0] == "raised" and outcome not in raised):
        return False
    text = json.dumps(outcome)
    return "/program/" not in text and " at 0x" not in text


def recorded_calls(hidden: Mapping[str, Any]) -> list[Call]:
    """Return the calls of a task that were recorded with the right code."""
    return [
        Call(function["module"], function["name"], arguments, json.loads(outcome), bool(tells))
        for function in hidden["functions"]
        for arguments, outcome, tells in function["calls"]
    ]


def fresh_calls(calls: Sequence[Call], most: int, rng: random.Random) -> list[Call]:
    """Return new calls of the functions of some that were recorded, none of which is one.

    Half of them are variations of calls in which the bug shows, where there are any.
    """
    by_function: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        by_function.setdefault((call.module, call.name), []).append(call)
    known = {(call.module, call.name, json.dumps(json.loads(call.arguments))) for call in calls}
    found: dict[tuple[str, str, str], Call] = {}
    functions = sorted(by_function.items())
    contracts = {key: contracts_of([call.arguments for call in own]) for key, own in functions}
    for number in range(2 * most):
        (module, name), own = functions[number % len(functions)]
        texts = [call.arguments for call in own]
        telling = [call.arguments for call in own if call.tells] or texts
        start = rng.choice(telling if rng.random() < 0.5 else texts)
        text = variation(start, texts, contracts[module, name], rng)
        if (module, name, text) not in known:
            found[module, name, text] = Call(module, name, text)
        if len(found) == most:
            break
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Calls to make, with the outcomes of the right code; ``telling`` ones show the bug."""

    calls: Sequence[Call]
    outcomes: Sequence[Tree]
    telling: frozenset[int]


def draw(
    container: Container,
    roots: Sequence[str],
    calls: Sequence[Call],
    limits: Limits,
    rng: random.Random,
    most: int = MOST_FRESH,
) -> Drawn:
    """Return recorded and fresh calls in a random order, with the outcomes of the right code.

    ``container`` holds the right files (0) and the unpatched ones (1).
    """
    fresh = fresh_calls(calls, CANDIDATES, rng)
    both = [*calls, *fresh]
    right, _ = of_trusted(container, 0, roots, both, limits)
    unpatched, _ = of_trusted(container, 1, roots, both, limits)
    raised = [call.recorded for call in calls if call.recorded and call.recorded[0] == "raised"]
    sure = [n for n in range(len(both)) if is_sure(right[n], raised)]
    old = [n for n in sure if n < len(calls) and same(both[n].recorded, right[n])]
    new = [n for n in sure if n >= len(calls)]
    rng.shuffle(new)
    telling = [n for n in new if not same(right[n], unpatched[n])][: most // 2]
    others = _varied([n for n in new if same(right[n], unpatched[n])], right)
    chosen = [*old, *telling, *others[: most - len(telling)]]
    rng.shuffle(chosen)
    return Drawn(
        calls=[both[n] for n in chosen],
        outcomes=[right[n] for n in chosen],
        telling=frozenset(place for place, n in enumerate(chosen) if n in set(telling)),
    )


def _varied(numbers: Sequence[int], outcomes: Sequence[Tree]) -> list[int]:
    """Return numbers with those of an outcome that none before has first."""
    seen: set[str] = set()
    first: list[int] = []
    others: list[int] = []
    for number in numbers:
        text = json.dumps(outcomes[number])
        (others if text in seen else first).append(number)
        seen.add(text)
    return first + others


def refused(
    sandbox: LocalSandbox, patched: Mapping[str, str], request: Mapping[str, Any], limits: Limits
) -> str:
    """Say which call of the hidden part went wrong; empty if none did.

    ``patched`` are the files without tests. ``request`` holds ``roots``, ``unpatched`` (what the
    files that the patch or the mending changes are without either; None for none) and ``hidden``:
    ``right`` (what they are once mended), ``functions`` with their recorded calls, and the
    ``packages`` that they import.

    Raises:
        SandboxError: if the right code gives no outcomes, or no fresh call shows the bug.
    """
    hidden, roots = request["hidden"], request["roots"]
    changed_paths, mended = request["unpatched"].keys(), {*hidden["right"].values()}

    def sources(changed: Mapping[str, str | None]) -> Sources:
        files = {**patched, **changed}
        kept = {
            path: text
            for path, text in files.items()
            if text is not None and (path in changed_paths or text not in mended)
        }
        return Sources(files=kept, roots=roots, packages=hidden["packages"])

    right, unpatched = sources(hidden["right"]), sources(request["unpatched"])
    must_tell = right.files != unpatched.files
    calls = recorded_calls(hidden)
    rng = random.Random(secrets.randbits(64))
    with opened(sandbox, right, unpatched) as trusted:
        for _ in range(ROUNDS):
            drawn = draw(trusted, roots, calls, limits, rng)
            if drawn.telling or not must_tell:
                break
        with opened(sandbox, sources({})) as tested:
            outcome = ask(tested, 0, roots, drawn.calls, limits, trusted=False)
        again, _ = of_trusted(trusted, 0, roots, drawn.calls, limits)
    stable = [same(first, second) for first, second in zip(drawn.outcomes, again, strict=True)]
    if not any(stable) or (must_tell and not any(stable[n] for n in drawn.telling)):
        raise SandboxError("no freshly drawn call tells the bug from the right code")
    found = replies(outcome, len(drawn.calls))
    if found is None:
        return f"the hidden part gave no outcomes: {describe_exit(outcome)}"
    for call, expected, is_stable, got in zip(
        drawn.calls, drawn.outcomes, stable, found, strict=True
    ):
        if is_stable and not same(expected, got):
            how = "freshly drawn" if call.recorded is None else "recorded"
            return f"hidden part: a {how} call of {call.module}.{call.name} has another outcome"
    return ""
