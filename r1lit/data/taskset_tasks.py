"""Tasks of a task set of the package verifiers 0.4."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource


class TasksetTasks(ProblemSource):
    """Tasks for the environment `r1lit.environments.Taskset`, in their order.

    Args:
        taskset: its id, the name of an installed package that exports a ``verifiers.v1.Taskset``.
        config: of the task set.
        num_problems: the first so many; all if left out.
        environment: its name in ``data.environments``.
    """

    def __init__(
        self,
        taskset: str,
        config: Mapping[str, Any] | None = None,
        num_problems: int | None = None,
        environment: str = "taskset",
    ) -> None:
        self.taskset, self.config = taskset, dict(config or {})
        self.num_problems, self.environment = num_problems, environment

    def problems(self) -> list[Problem]:
        """Return the problems.

        Raises:
            ValueError: if the package or the task set is not there, or it needs a runtime.
        """
        try:
            from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

            kind = taskset_config_type(self.taskset)
            loaded = load_taskset(kind.model_validate({**self.config, "id": self.taskset}))
        except ImportError as error:
            raise ValueError(
                f"taskset: {self.taskset!r} cannot be had ({error}); pip install"
                " 'verifiers>=0.4,<0.5' and the package of the task set"
            ) from error
        if self.num_problems is None and not loaded.bounded:
            raise ValueError(f"num_problems: task set {self.taskset!r} has no end; say how many")
        tasks = list(itertools.islice(iter(loaded), self.num_problems))
        needs = {"tools in a server"} if type(loaded).toolsets(loaded.config) else set()
        if needs := needs.union(*map(needs_of, tasks)):
            raise ValueError(
                f"taskset: {self.taskset!r} needs {', '.join(sorted(needs))}, which a runtime of"
                " verifiers has; take one that is scored by its trace alone"
            )
        return [
            Problem(
                uid=f"{self.taskset}-{task.key[:16]}",
                question=task.data.prompt_text,
                answer="",
                source=self.taskset,
                verifier="none",
                environment=self.environment,
                meta={"task": task},
            )
            for task in tasks
        ]


def needs_of(task: Any) -> set[str]:
    """Return the needs of a task besides a trace, by name."""
    from verifiers.v1 import Task

    needs = {n for n in ("setup", "finalize") if getattr(type(task), n) is not getattr(Task, n)}
    scores = [*task.hooks("reward"), *task.hooks("metric")]
    needs |= {f.__name__ for f in scores if "runtime" in inspect.signature(f).parameters}
    found = {"a container": task.NEEDS_CONTAINER, "@stop": task.hooks("stop")}
    found |= {"a judge": task.plugged_judges(), "a user": task.data.prompt is None}
    return needs | {name for name, needed in found.items() if needed}
