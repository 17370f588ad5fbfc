"""The data of suites: problems, prompts and numbers of responses, a loader for each benchmark."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from r1lit.data.datamodule import EvaluationOptions, PromptOptions, R1DataModule
from r1lit.data.loaders import FixedSampler, PromptLoader
from r1lit.data.packing import show_first
from r1lit.environments import TurnLimits
from r1lit.errors import check_at_least, hint
from r1lit.evaluation.run_folder import RunFolder
from r1lit.evaluation.suites import Suite, build, load_suite
from r1lit.files import absent
from r1lit.problems import Problem
from r1lit.protocols import RunsSuites

LIMITS = TurnLimits(max_turns=12, max_observation_tokens=16_384, max_invalid=12, seconds=900.0)
"""Limits of suites of several turns: wide, as each environment ends its own episodes."""


@dataclass(kw_only=True)
class Part:
    """One suite of an evaluation, or all of one that names no suites."""

    name: str
    problems: list[Problem]
    prompts: list[tuple[int, ...]]
    num_samples: int
    by: list[str]
    rating: str | None = None
    suite: Suite | None = None
    folder: RunFolder
    done: dict[str, set[int]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The keys of the problems' meta that the responses' lines hold."""
        return [*self.by, *([self.rating] if self.rating else [])]


class SuiteData(R1DataModule):
    """The problems of suites, for ``r1lit test`` with ``EvaluationModule``.

    A suite whose data cannot be loaded, or whose prompts do not fit, is left out: ``absent`` has
    the reason, and the table shows it. ``notes`` says which parts of a suite are left out.

    Args:
        suites: names of suites, or YAML files of one's own, in the order of the table.
        folder: where local files lie, each by the name that its suite gives; the Hub's if left out
            or where there is no such file.
        files: a local file by suite's name.
        limit: problems of each suite; null takes all.
        num_samples: k, responses to each problem; each suite's own, the paper's, if left out.
        prompts: how a question becomes a prompt; by default in the policy's chat template.
        prompts_per_batch: the most problems of a suite that are rolled out together.
        seed: unused; the command line links it to ``seed_everything``.
    """

    def __init__(
        self,
        suites: list[str],
        folder: str | None = None,
        files: dict[str, str] | None = None,
        limit: int | None = None,
        num_samples: int | None = None,
        prompts: PromptOptions = PromptOptions(template="chat"),
        prompts_per_batch: int = 100_000,
        seed: int = 0,
    ) -> None:
        for key, count in (("limit", limit), ("num_samples", num_samples)):
            check_at_least(f"data.{key}", count, 1)
        if not suites:
            raise ValueError("data.suites: none is named; configs/eval/paper.yaml names all")
        super().__init__(
            prompts=prompts,
            evaluation=EvaluationOptions(prompts_per_batch=prompts_per_batch),
            limits=LIMITS,
            seed=seed,
        )
        self.suites = [load_suite(name) for name in suites]
        self.folder = None if folder is None else Path(folder).expanduser()
        self.files = dict(files or {})
        self.limit = limit
        self.num_samples = num_samples
        self.parts: list[Part] = []
        self.absent: dict[str, str] = {}
        self.notes: dict[str, list[str]] = {}
        names = [suite.name for suite in self.suites]
        for name in [*{n for n in names if names.count(n) > 1}]:
            raise ValueError(f"data.suites: {name!r} is named twice")
        for name in {*self.files} - {*names}:
            raise ValueError(
                f"data.files: {name!r} is not among data.suites{hint(name, names) or '; there are'}"
                f" {', '.join(names)}"
            )
        if self.folder is not None and not self.folder.is_dir():
            raise ValueError(f"data.folder: {absent(str(folder), 'folder')}")
        for name, file in self.files.items():
            if not Path(file).expanduser().is_file():
                raise ValueError(f"data.files.{name}: {absent(file)}")

    def setup(self, stage: str) -> None:
        """Read and tokenise the problems of every suite that can be had."""
        stage = str(getattr(stage, "value", stage))
        if stage != "test":
            raise ValueError(f"data: suites are for r1lit test, not {stage}")
        self.parts, self.absent = [], {}
        for suite in self.suites:
            try:
                self.parts.append(self._part(suite))
            except (ValueError, ImportError) as error:
                self.skip_suite(suite.name, str(error))
        self.check_some_left()
        show_first(self._tokenizer(), self.parts[0].prompts[:1], [])

    def skip_suite(self, name: str, reason: str) -> None:
        """Leave a suite out, for a reason that the table shows."""
        self.absent[name] = " ".join(reason.split())
        self.parts = [part for part in self.parts if part.name != name]
        rank_zero_warn(f"suite {name} is left out: {self.absent[name]}")

    def check_some_left(self) -> None:
        """Check that some suite can run.

        Raises:
            ValueError: with the reasons why none can.
        """
        if not self.parts:
            reasons = "; ".join(self.absent.values())
            raise ValueError(f"data.suites: none of {len(self.suites)} can run: {reasons}")

    def _part(self, suite: Suite) -> Part:
        assert self.trainer is not None
        module = self.trainer.lightning_module
        judge, given = None, None
        if isinstance(module, RunsSuites):
            judge, given = module.judge, module.dirpath
        if suite.needs_judge and judge is None:
            raise ValueError(f"suite {suite.name}: a language model grades it; name model.judge")
        local = self._local(suite)
        problems = suite.read(local, self.limit, self.num_samples)
        self.notes[suite.name] = suite.left_out(local)
        if suite.environment is not None:
            environment = build(suite.environment)
            self.turns.check(self._tokenizer(), self.prompts.template, environment.tools)
            self.environments[suite.name] = environment
        openings = [self.opening(problem, self.literal) for problem in problems]
        prompts = self.encode(openings, f"suites.{suite.name}")
        base = given or self.trainer.default_root_dir
        if Path(base).resolve() != Path.cwd():  # else the folder's own error names the key
            base = str(Path(base) / suite.name)
        return Part(
            name=suite.name,
            problems=problems,
            prompts=prompts,
            num_samples=1 if suite.orders > 1 else self.num_samples or suite.num_samples,
            by=list(suite.by),
            suite=suite,
            folder=RunFolder(None, base),
        )

    def _local(self, suite: Suite) -> str | None:
        if suite.name in self.files:
            return self.files[suite.name]
        here = None if self.folder is None else self.folder / suite.file
        return str(here) if here is not None and here.is_file() else None

    def labelled(self, suite: Suite) -> Path | None:
        """Return the file of answers with grades that the suite's judge is measured on, if any."""
        here = self.folder / suite.labelled if self.folder and suite.labelled else None
        return here if here is not None and here.is_file() else None

    def test_dataloader(self) -> list[PromptLoader]:  # type: ignore[override]
        """Return a loader for each suite, in their order."""
        world_size = self._process()["world_size"]
        return [
            PromptLoader(
                part.problems,
                part.prompts,
                FixedSampler(len(part.problems), self.evaluation.prompts_per_batch, world_size),
                group_size=part.num_samples,
                **self._process(),
            )
            for part in self.parts
        ]

    def describe(self) -> dict[str, Any]:
        """Return the plan: problems and responses of each suite."""
        return {
            **asdict(self.prompts),
            "suites": {part.name: [len(part.problems), part.num_samples] for part in self.parts},
            "left_out": self.absent,
        }
