"""A table of reasoning-gym's tasks, with the wrong answers that their scorers pay.

    python -m r1lit.evaluation.gym_tasks docs/REASONING_GYM.md

Each task makes eight problems, and `r1lit.verifiers.reasoning_gym` probes them as training does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tqdm.auto import tqdm

from r1lit.console import run_script
from r1lit.data import ReasoningGym
from r1lit.files import replace_file
from r1lit.verifiers.reasoning_gym import (
    CONSTANTS,
    HEDGES,
    NUM_PROBED,
    PROBE_S,
    ReasoningGymVerifier,
    payment_of,
)

MANY_PARTS = frozenset({"composite"})
"""A task that is made of others, and needs options that say of which."""
HEAD = """# Tasks of reasoning-gym

`r1lit.data.ReasoningGym` makes problems of these tasks, and each task's own scorer decides. Some
scorers also pay a constant, or a hedge around the right answer.

At the start of training, up to {num} problems of each task get these answers:
{constants}, {hedges}.
A constant does not count where it is the gold answer. A task that pays one of them is refused for
training, with one line. Its scores in evaluation stay those of the package. Probing stops after
{seconds:g} s a task. The scorer of `game_of_life_halting` pays any text; there r1lit takes the gold
answer alone.

`python -m r1lit.evaluation.gym_tasks docs/REASONING_GYM.md` wrote this page, from {num} problems a
task. {paying} of {all} tasks pay; the table has the first answer found. In the last column `none`
says that the problems have no gold answer, so that hedges cannot be tried. With other options a
task can give another result. Training probes its own problems.

| task | training | pays | gold answer |
|---|---|---|---|
"""


def task_names() -> list[str]:
    """Return the names of all tasks that can be made without options.

    Raises:
        ImportError: if reasoning-gym is missing.
    """
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - MANY_PARTS)


def row_of(task: str) -> str:
    """Return a task's row of the table."""
    problems = ReasoningGym(task, NUM_PROBED).problems()
    payment, _, _ = payment_of(problems, ReasoningGymVerifier())
    gold = "yes" if all(problem.answer for problem in problems) else "none"
    if payment is None:
        return f"| `{task}` | yes | | {gold} |"
    return f"| `{task}` | refused | `{payment.form}` | {gold} |"


def page(rows: Sequence[str]) -> str:
    """Return the page with these rows."""
    head = HEAD.format(
        num=NUM_PROBED,
        constants=_listed(CONSTANTS),
        hedges=_listed(HEDGES),
        seconds=PROBE_S,
        paying=sum("refused" in row for row in rows),
        all=len(rows),
    )
    return head + "\n".join(rows) + "\n"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def main(args: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m r1lit.evaluation.gym_tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="the page to write")
    path = parser.parse_args(args).path
    rows = [row_of(task) for task in tqdm(task_names(), desc="probe", unit="task", disable=None)]
    replace_file(path, page(rows).encode())


if __name__ == "__main__":
    run_script("gym_tasks", main)
