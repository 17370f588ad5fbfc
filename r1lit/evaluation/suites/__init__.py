"""Suites: a benchmark's data, official prompt, grader and score, each declared in one YAML file.

    title          its name in the table
    num_samples    responses to each problem, as many as the paper takes
    problems       a problem source: class_path and init_args; ``path`` is its name on the Hub
    file           the name of its local file in ``data.folder``, with the same columns
    grader         a verifier of its own; without one, problems name one of the grader's
    environment    where responses take several turns: class_path and init_args
    score          the dotted path of a function, as in ``scores.py`` here; pass@1 if left out
    by             keys of the problems' meta to report by
    licence, prompt, grading     of the data; where prompt and grading were published
    deviations     all that differs from the paper's protocol
    sample         the rows that the tests run on
    labelled       the name in ``data.folder`` of answers with grades, to measure a judge on

`r1lit test -c r1lit:eval/paper.yaml` runs them; docs/EVALUATION.md lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from r1lit.data import ProblemSource
from r1lit.errors import hint, import_path
from r1lit.evaluation.suites.scores import Score, pass_at_1
from r1lit.files import Record
from r1lit.problems import Problem
from r1lit.verifiers import Verifier

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
"""The suites that r1lit ships."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One benchmark; the keys are those of its YAML."""

    name: str
    title: str
    num_samples: int
    problems: Mapping[str, Any]
    file: str
    licence: str
    prompt: str
    grading: str
    grader: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    score: str = ""
    by: Sequence[str] = ()
    deviations: Sequence[str] = ()
    sample: str = ""
    labelled: str = ""

    @property
    def responses(self) -> int:
        """The responses to each problem in the paper; orders of choices are a prompt each."""
        return self.num_samples * self.orders

    @property
    def orders(self) -> int:
        """Number of orders of its choices that each question comes in."""
        return int(self.problems["init_args"].get("orders", 1))

    @property
    def needs_judge(self) -> bool:
        """True where a language model grades the suite's responses."""
        return self.grader is not None and getattr(
            import_path(self.grader["class_path"]), "needs_judge", False
        )

    @cached_property
    def verifier(self) -> Verifier | None:
        """The verifier of its own, if it has one and needs no judge."""
        return None if self.grader is None or self.needs_judge else build(self.grader)

    def judged_by(self, judge: Any) -> Verifier:
        """Return its verifier, which lets ``judge`` decide."""
        assert self.grader is not None
        return build(self.grader, model=judge)

    def report(
        self, groups: Mapping[str, Sequence[Record]], seed: int, problems: Sequence[Problem]
    ) -> Score:
        """Return the number of its row in the table, from the lines of ``responses.jsonl``.

        A score that takes ``problems`` is given them, for what no line holds.
        """
        score: Callable[..., Score] = import_path(self.score) if self.score else pass_at_1
        if "problems" in inspect.signature(score).parameters:
            return score(groups, seed=seed, problems=problems)
        return score(groups, seed=seed)

    def source(self, **change: Any) -> ProblemSource:
        """Return the source of its problems, with other arguments where they are not None."""
        return build(self.problems, **{key: v for key, v in change.items() if v is not None})

    def left_out(self, path: str | None = None) -> list[str]:
        """Return which parts of the data cannot be taken here and why, a sentence each."""
        notes: Callable[[], list[str]] | None = getattr(self.source(path=path), "left_out", None)
        return [] if notes is None else notes()

    def read(
        self,
        path: str | None = None,
        limit: int | None = None,
        num_samples: int | None = None,
        folder_key: str | None = None,
    ) -> list[Problem]:
        """Return its problems, which name its verifier.

        Args:
            path: a local file in the place of its data.
            limit: rows read.
            num_samples: responses to each problem, in the place of the paper's.
            folder_key: the key that names the folder of local files; if left out those of
                `r1lit.modules.SuiteData`.

        Raises:
            ValueError: if the data cannot be loaded. It says where they are, under which licence,
                and how to place the file.
        """
        try:
            orders = num_samples if self.orders > 1 else None
            problems = self.source(path=path, limit=limit, orders=orders).problems()
        except (ValueError, OSError) as error:
            arguments = self.problems["init_args"]
            by_data = f"data.folder names, or --data.files.{self.name} FILE"
            named = by_data if folder_key is None else f"{folder_key} names"
            raise ValueError(
                f"suite {self.name}: {error}. Its data: {arguments.get('path', 'see the paper')}"
                f" ({self.licence}). A local copy goes to {self.file} in the folder that {named}"
            ) from error
        if self.environment is not None:
            problems = [replace(problem, environment=self.name) for problem in problems]
        if self.grader is None:
            return problems
        return [replace(problem, verifier=self.name) for problem in problems]


def build(node: Mapping[str, Any], **more: Any) -> Any:
    """Return the object of a ``class_path`` with its ``init_args``, nested ones included."""

    def value(argument: Any) -> Any:
        nested = isinstance(argument, Mapping) and "class_path" in argument
        return build(argument) if nested else argument

    arguments = {key: value(a) for key, a in node.get("init_args", {}).items()} | more
    return import_path(node["class_path"])(**arguments)


def load_suite(name: str) -> Suite:
    """Return a suite by its name, or from a YAML file of one's own.

    Raises:
        ValueError: if there is no such suite, or a key of its file is unknown or missing.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(
            f"suites: {name!r} is no suite{hint(name, NAMES) or ';'} there are {', '.join(NAMES)};"
            " one of your own is a YAML file"
        )
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = {field.name for field in fields(Suite)} - {"name"}
    required = {"title", "num_samples", "problems", "file", "licence", "prompt", "grading"}
    for key in sorted({*declared} - known):
        raise ValueError(
            f"suites: {path} has the key {key!r}; known are {', '.join(sorted(known))}"
        )
    for key in sorted(required - {*declared}):
        raise ValueError(f"suites: {path} lacks the key {key!r}")
    return Suite(name=path.stem, **declared)
