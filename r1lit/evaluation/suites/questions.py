"""The questions of all suites, to keep them out of training data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from r1lit.data import ProblemSource
from r1lit.evaluation.suites import NAMES, load_suite
from r1lit.problems import Problem

MADE_HERE = ("needle", "multi_hop")
FOLDER_KEY = "SuiteQuestions.folder"


class SuiteQuestions(ProblemSource):
    """The problems of suites, for `r1lit.curation.Decontaminate`: no 10-gram of them is trained on.

    A suite whose data cannot be loaded is left out with a warning that names it, since what it asks
    stays unknown; ``needed`` are suites without which there is an error.

    Args:
        suites: names of suites; all that r1lit ships if left out, but those made here.
        folder: where local files lie, by the names that docs/EVALUATION.md gives.
        needed: suites that may not be absent.
    """

    def __init__(
        self,
        suites: Sequence[str] | None = None,
        folder: str | None = None,
        needed: Sequence[str] = (),
    ) -> None:
        names = [name for name in NAMES if name not in MADE_HERE] if suites is None else suites
        self.suites = [load_suite(name) for name in names]
        self.folder = None if folder is None else Path(folder).expanduser()
        self.needed = tuple(needed)

    def problems(self) -> list[Problem]:
        """Return the problems of every suite that can be had.

        Raises:
            ValueError: if none can be had, or a needed one cannot.
        """
        found: list[Problem] = []
        absent: list[str] = []
        for suite in self.suites:
            here = None if self.folder is None else self.folder / suite.file
            try:
                file = str(here) if here and here.is_file() else None
                # a suite's wording is no content of its own, so each is a source of its own
                found += [
                    replace(problem, source=suite.name)
                    for problem in suite.read(file, num_samples=1, folder_key=FOLDER_KEY)
                ]
            except (ValueError, ImportError):
                if suite.name in self.needed:
                    raise
                absent.append(suite.name)
        if absent:
            warnings.warn(
                f"decontamination: the data of {', '.join(absent)} cannot be loaded, so their"
                f" questions are not kept out; put the files into {FOLDER_KEY}"
                " (docs/EVALUATION.md)",
                stacklevel=2,
            )
        if not found:
            raise ValueError(
                "evaluations: the data of no suite can be loaded; put their files into a folder,"
                f" and name it by {FOLDER_KEY} (docs/EVALUATION.md)"
            )
        return found
