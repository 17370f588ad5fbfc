"""Repositories with one bug: four modules of one function each, with tests that find it.

    app/tax.py           def tax(x): return x * 3 + 4
    tests/test_tax.py    test_tax, which is shown, and test_tax_more, which is hidden

A function is a program of `r1lit.worlds.programs`, of one or two operations, and its split is that
of its expression: a held-out repository consists of held-out functions. The bug is a change of
`r1lit.environments.make_repair`. Verdicts and the tests that a model runs are pytest's, in the
sandbox. Modules do not import each other, so the tests of a module run once for each of its texts.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.environments.code_changes import changes
from r1lit.environments.repository import Repository, RepositoryEpisode
from r1lit.errors import check_at_least
from r1lit.files import Record, append_records, read_records
from r1lit.sandbox import Limits
from r1lit.sandbox.packing import pack_arguments, pack_outcome
from r1lit.sandbox.repository import SuiteReport
from r1lit.seeding import generator
from r1lit.text.patches import write_diff
from r1lit.text.prompts import Conversation, question_of
from r1lit.verifiers import RepositoryVerifier
from r1lit.worlds.programs import TESTED, LineProgram, calculation, draw_part
from r1lit.worlds.splits import SPLIT_SEED, Split, check_split, draw_distinct, hashed_split

NAMES = (
    "tax", "fee", "rent", "toll", "fare", "wage", "bill", "debt", "gift", "loan", "cost", "gain",
    "loss", "sale", "fine", "tip", "cut", "rate", "sum", "half", "area", "edge", "side", "depth",
    "width", "speed", "time", "year", "week", "day", "hour", "age", "size", "mass", "load", "heat",
    "cold", "wind", "rain", "tide",
)  # fmt: skip
"""Names of functions, the same in every split."""
MODULES = 4
"""Functions of a repository, each in a module of its own."""
POOL = 32
"""Functions that the repositories of RL are made of, and as many of the held-out ones."""
PACKAGE = "app"
INIT = f"{PACKAGE}/__init__.py"


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function with its tests: ``shown`` is the input of the test that a model sees."""

    name: str
    expression: str
    shown: int

    @property
    def path(self) -> str:
        """The file that it stands in."""
        return f"{PACKAGE}/{self.name}.py"

    @property
    def tests(self) -> str:
        """The file of its tests."""
        return f"tests/test_{self.name}.py"

    @property
    def ids(self) -> tuple[str, str]:
        """The shown test and the hidden one, as pytest names them."""
        return f"{self.tests}::test_{self.name}", f"{self.tests}::test_{self.name}_more"

    def source(self, expression: str = "") -> str:
        """Return its module, with another expression if one is given."""
        return f"def {self.name}(x):\n    return {expression or self.expression}\n"

    @property
    def asserted(self) -> str:
        """The shown test's assertion: a call, and the calculation that it should do."""
        return f"{self.name}({self.shown}) == {self.expression.replace('x', str(self.shown))}"

    @property
    def test_source(self) -> str:
        """Its tests: the calculation for one input, and the results for thirteen."""
        name, (shown, more) = self.name, (i.rpartition("::")[2] for i in self.ids)
        every = [value(self.expression, x) for x in TESTED]
        return (
            f"from {PACKAGE}.{name} import {name}\n\n\n"
            f"def {shown}():\n    assert {self.asserted}\n\n\n"
            f"def {more}():\n    assert [{name}(x) for x in range({len(TESTED)})] == {every}\n"
        )

    @property
    def calls(self) -> dict[str, Any]:
        """Its calls with the inputs of the tests, for the hidden part of a verdict."""

        def outcome(x: int) -> str:
            return pack_outcome(("returned", value(self.expression, x), [x], {}))

        rows = [[pack_arguments([x], {}), outcome(x), False] for x in TESTED]
        return {"module": f"{PACKAGE}.{self.name}", "name": self.name, "calls": rows}

    def bugs(self) -> list[str]:
        """Return the expressions that one change makes of its own and that the shown test finds."""
        right = value(self.expression, self.shown)
        return [text for text in broken(self.expression) if value(text, self.shown) != right]


@lru_cache(maxsize=10_000)
def broken(expression: str) -> tuple[str, ...]:
    """Return the results of one change of an expression, by `r1lit.environments.code_changes`.

    >>> broken("x * 3 + 4")
    ('x * 3 - 4', 'x + 3 + 4', 'x * 4 + 4', 'x * 3 + 5')
    """
    source = f"def f(x):\n    return {expression}\n"
    found = [change.applied(source) for change in changes("f.py", source)]
    return tuple(dict.fromkeys(text.split("return ", 1)[1].strip() for text in found))


@lru_cache(maxsize=100_000)
def value(expression: str, x: int) -> int:
    """Return the value of an expression of this file."""
    return int(eval(expression, {"__builtins__": {}}, {"x": x}))


def draw_function(split: Split, name: str, rng: np.random.Generator) -> Function:
    """Return a function of ``split``, whose results for the shown input are 1 to 99."""
    while True:
        parts = tuple(draw_part(rng) for _ in range(1 if rng.random() < 0.4 else 2))
        expression = LineProgram(form="steps", parts=parts).drafts[-1]
        shown = int(rng.integers(2, 10))
        if split_of(expression) == split and calculation(shown, parts):
            return Function(name=name, expression=expression, shown=shown)


@lru_cache(maxsize=100_000)
def split_of(expression: str) -> Split:
    """Return the split that a function belongs to, by its expression, whatever its name."""
    return hashed_split("repair", expression)


@lru_cache(maxsize=8)
def functions_of(split: Split) -> tuple[Function, ...]:
    """Return the functions that repositories of ``split`` are made of, each name once."""
    rng = generator(SPLIT_SEED, "repair functions", split)
    order = rng.permutation(len(NAMES))[:POOL]
    found: dict[str, Function] = {}
    for place in order:
        while (made := draw_function(split, NAMES[place], rng)).expression in found:
            pass
        found[made.expression] = made
    return tuple(found.values())


def files_of_functions(functions: Sequence[Function]) -> dict[str, str]:
    """Return the files of a repository of some functions."""
    files = {INIT: ""}
    for function in functions:
        files |= {function.path: function.source(), function.tests: function.test_source}
    return files


def statement(functions: Sequence[Function]) -> str:
    """Return the question, which names the functions and not the bug."""
    *names, last = (function.name for function in functions)
    return f"The package {PACKAGE} has {', '.join(names)} and {last}. A test fails."


class WorldRepairs(ProblemSource):
    """Small repositories, each with one bug in one of its functions.

    Args:
        split: train or held_out, whose functions are fixed (`functions_of`).
        num_problems: how many repositories.
        seed: of the sample.
        name: of the source.
        environment: its name in ``data.environments``.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        seed: int = 0,
        name: str = "repair",
        environment: str = "repository",
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        self.split: Split = split
        self.num_problems = num_problems
        self.seed = seed
        self.name = name
        self.environment = environment

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition."""
        rng = generator(self.seed, "repairs", self.split)
        found = draw_distinct(
            lambda: self._problem(rng),
            lambda problem: problem.uid,
            self.num_problems,
            f"split {self.split!r}",
        )
        return list(found.values())

    def _problem(self, rng: np.random.Generator) -> Problem:
        pool = functions_of(self.split)
        functions = [pool[i] for i in rng.permutation(len(pool))[:MODULES]]
        broken = functions[int(rng.integers(MODULES))]
        bugs = broken.bugs()
        chosen = bugs[int(rng.integers(len(bugs)))]
        bug = {broken.path: broken.source(chosen)}
        files = files_of_functions(functions)
        names = "-".join(function.name for function in functions)
        return Problem(
            uid=f"{self.name}-{names}-{broken.name}-{chosen.replace(' ', '')}",
            question=statement(functions),
            answer=write_diff({**files, **bug}, {broken.path: broken.source()}),
            source=self.name,
            verifier="repository",
            environment=self.environment,
            meta={
                "repository": files,
                "bug": write_diff(files, bug),
                "roots": [""],
                "fail_to_pass": list(broken.ids),
                "pass_to_pass": [i for f in functions if f is not broken for i in f.ids],
                "hidden": [f.ids[1] for f in functions],
                "calls": {"packages": [], "functions": [f.calls for f in functions]},
                "kind": "reasoning",
            },
        )


def parts_of(files: Mapping[str, str], tests: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return by each test file of some test ids the files that it needs: its module and itself."""
    parts = {}
    for path in dict.fromkeys(test.partition("::")[0] for test in tests):
        module = f"{PACKAGE}/{path.removeprefix('tests/test_')}"
        parts[path] = {p: files[p] for p in (INIT, module, path) if p in files}
    return parts


class Outcomes:
    """Records by the texts that they were made of, kept in a file if there is one."""

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self.lock = threading.Lock()
        known = read_records(self.path) if self.path and self.path.exists() else []
        self.known: dict[str, Record] = {record["key"]: record for record in known}

    def of(
        self, wanted: Mapping[str, Any], make: Callable[[list[str]], list[Record | None]]
    ) -> dict[str, Record]:
        """Return the record of each key, of which ``make`` returns those that are not known.

        What it returns as None is for this call alone and left out.
        """
        keys = {name: _hash(content) for name, content in wanted.items()}
        with self.lock:
            new = {key: name for name, key in keys.items() if key not in self.known}
            if new:
                made = zip(new, make(list(new.values())), strict=True)
                records = [{"key": key, **record} for key, record in made if record is not None]
                self.known |= {record["key"]: record for record in records}
                if self.path:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    append_records(self.path, records)
            return {name: self.known[key] for name, key in keys.items() if key in self.known}


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


class WorldRepositoryEpisode(RepositoryEpisode):
    """An episode whose tests run once for each text of a module."""

    def _suite(self, shown: Sequence[str]) -> SuiteReport:
        parts = parts_of(self._now(), shown)
        ids = {path: [i for i in shown if i.partition("::")[0] == path] for path in parts}
        owner: Any = self._owner

        def make(paths: list[str]) -> list[Record | None]:
            files = {p: text for path in paths for p, text in parts[path].items()}
            report = self._run(files, [i for path in paths for i in ids[path]])
            if report.outcomes is None:
                return [None] * len(paths)
            both = {"outcomes": report.outcomes, "details": report.details}
            return [
                {key: {i: v for i, v in found.items() if i.startswith(path)}
                 for key, found in both.items()}
                for path in paths
            ]  # fmt: skip

        found = owner.outcomes.of({p: [parts[p], ids[p]] for p in parts}, make)
        if len(found) < len(parts):
            return SuiteReport(outcomes=None, details={}, ended="the tests gave no report")
        return SuiteReport(
            outcomes={i: how for r in found.values() for i, how in r["outcomes"].items()},
            details={i: text for r in found.values() for i, text in r["details"].items()},
        )


class WorldRepository(Repository):
    """The environment of repositories, for the small world's.

    Args:
        cache: a file that keeps the outcomes of tests for other runs.
        **options: of `r1lit.environments.Repository`.
    """

    def __init__(self, cache: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.outcomes = Outcomes(cache)

    def begin(self, problem: Problem, seed: int) -> WorldRepositoryEpisode:
        """Return an episode with the files as the problem has them."""
        return WorldRepositoryEpisode(problem, self)

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the statement alone: what is to be done is the same in every problem."""
        return question_of(problem)


class WorldRepositoryVerifier(RepositoryVerifier):
    """The verifier of repositories, for the small world's: all tests of all modules must pass.

    Args:
        cache: a file that keeps verdicts for other runs.
        delay_s: seconds that each call takes more: for studies of slow evaluation.
        num_calls: calls at once.
        timeout_s: of the tests of a module.
        limits: see `r1lit.verifiers.RepositoryVerifier`.
    """

    def __init__(
        self,
        cache: str | None = None,
        delay_s: float = 0.0,
        num_calls: int = 1,
        timeout_s: float = 60.0,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(timeout_s, num_workers=1, limits=limits)
        self.outcomes = Outcomes(cache)
        self.wait_s = delay_s
        self.num_workers = num_calls

    def decided(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the results of the tests of each request's modules."""
        start = time.perf_counter()
        time.sleep(self.wait_s)
        split = [self._by_module(request) for request in requests]
        wanted = {_key(part): part for own in split for part in own}
        failed: dict[str, dict[str, Any]] = {}

        def make(names: list[str]) -> list[Record | None]:
            made = self._judged(split, wanted, names)
            failed.update({n: r for n, r in made.items() if r["status"] in self.excused_statuses})
            return [None if n in failed else made[n] for n in names]

        known = {**self.outcomes.of({key: key for key in wanted}, make), **failed}
        seconds = time.perf_counter() - start
        found = []
        for own in split:
            replies = [known[_key(part)] for part in own]
            reply = next((r for r in replies if r["status"] != "right"), replies[0])
            content = {key: reply[key] for key in ("status", "value", "canonical", "reason")}
            found.append({**content, "seconds": seconds})
        return found

    def _judged(
        self,
        split: Sequence[Sequence[Mapping[str, Any]]],
        wanted: Mapping[str, Mapping[str, Any]],
        names: Sequence[str],
    ) -> dict[str, dict[str, Any]]:
        """Return the verdict on each part of these names.

        Modules beside the one with the bug are tested in one run, and again alone if it fails.
        """
        left = set(names)
        groups = []
        for first, *others in split:
            for parts in ([first], others):
                group = [name for name in map(_key, parts) if name in left]
                left -= set(group)
                groups += [group] if group else []
        together = super().decided([_merged([wanted[n] for n in group]) for group in groups])
        made: dict[str, dict[str, Any]] = {}
        for group, reply in zip(groups, together, strict=True):
            if len(group) == 1 or reply["status"] == "right":
                made |= dict.fromkeys(group, reply)
        alone = [name for name in names if name not in made]
        replies = super().decided([wanted[n] for n in alone]) if alone else []
        return made | dict(zip(alone, replies, strict=True))

    def _by_module(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a request for each module, all of whose tests decide; first the bug's."""
        wanted = [*request["fail_to_pass"], *request["pass_to_pass"]]
        return [
            {
                **request,
                "files": files,
                "fail_to_pass": [i for i in wanted if i.partition("::")[0] == path],
                "pass_to_pass": [],
                "unpatched": _within(request["unpatched"], files),
                "hidden": _hidden_of(request["hidden"], files),
            }
            for path, files in parts_of(request["files"], wanted).items()
        ]


def _within(texts: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    return {path: text for path, text in texts.items() if path in files}


def _hidden_of(hidden: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Return the hidden part about the functions of some files."""
    modules = {path.removesuffix(".py").replace("/", ".") for path in files}
    functions = [f for f in hidden["functions"] if f["module"] in modules]
    return {**hidden, "functions": functions, "right": _within(hidden["right"], files)}


def _key(part: Mapping[str, Any]) -> str:
    """Return the key of a verdict: files, tests and calls, not limits or delays."""
    return _hash([part["files"], part["fail_to_pass"], part["hidden"]["functions"]])


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one request for the tests of several."""

    def both(key: str, within: Sequence[Mapping[str, Any]] = parts) -> dict[str, Any]:
        return {path: text for part in within for path, text in part[key].items()}

    hidden = [part["hidden"] for part in parts]
    functions = [f for h in hidden for f in h["functions"]]
    return {
        **parts[0],
        "files": both("files"),
        "unpatched": both("unpatched"),
        "hidden": {**hidden[0], "functions": functions, "right": both("right", hidden)},
        "fail_to_pass": [i for p in parts for i in p["fail_to_pass"]],
    }
