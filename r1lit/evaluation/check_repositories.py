"""Check repository tasks: each fix is right and each patch without it is wrong, every time.

    python -m r1lit.evaluation.check_repositories runs/repair/tasks.jsonl

The verifier ``repository`` decides ``--times`` times about two patches of every task: its fix, and
a comment at the end of the file that is to be mended. ``checks.jsonl`` beside the table gets a row
a verdict; the same command continues from it. Then it counts tasks whose verdicts are not as they
should be or differ between times, changes that stand there twice, and functions that two splits
share. The exit status is 1 if there are any of these.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from r1lit.console import run_script
from r1lit.data import RepositoryTasks
from r1lit.data.tables import read_rows
from r1lit.environments.libraries import library_of
from r1lit.files import Record, append_records, keep_records
from r1lit.problems import Problem
from r1lit.text.patches import read_patch, write_diff
from r1lit.verifiers import RepositoryVerifier
from r1lit.verifiers.repository import files_of

EXPECTED = {"fix": "right", "comment": "wrong"}
_CHUNK = 8


def patches_of(problem: Problem, verifier: RepositoryVerifier) -> dict[str, str]:
    """Return a task's patches by name: one that mends it, and one that does not."""
    files = files_of(problem)
    path = _mended(problem, files)
    noted = write_diff(
        {path: files[path]}, {path: files[path].rstrip("\n") + "\n\n# Nothing is changed.\n"}
    )
    return {"fix": verifier.gold_text(problem), "comment": f"\n{noted.rstrip()}\n```\n"}


def _mended(problem: Problem, files: Mapping[str, str]) -> str:
    """Return the first file that a task's fix changes."""
    paths = [edit.path for edit in read_patch(problem.answer) if edit.path in files]
    if not paths:
        raise ValueError(f"patch: that of {problem.uid!r} changes no file of its repository")
    return paths[0]


def judge(
    problems: Sequence[Problem], verifier: RepositoryVerifier, times: int, path: Path
) -> list[Record]:
    """Return a row a verdict, of which those that ``path`` holds are not decided again."""
    rows = keep_records(path, lambda row: True)
    there = {(row["uid"], row["patch"], row["time"]) for row in rows}
    waiting = [
        (problem, name, time)
        for problem in problems
        for name in EXPECTED
        for time in range(times)
        if (problem.uid, name, time) not in there
    ]
    with tqdm(total=len(waiting), desc="check", unit="patch", disable=None) as bar:
        for start in range(0, len(waiting), _CHUNK):
            chunk = waiting[start : start + _CHUNK]
            responses = [patches_of(problem, verifier)[name] for problem, name, _ in chunk]
            verdicts = verifier.verify_batch(responses, [problem for problem, _, _ in chunk])
            made = [
                {
                    "uid": problem.uid,
                    "patch": name,
                    "time": time,
                    "status": verdict.status,
                    "reason": verdict.reason,
                    "seconds": round(verdict.seconds, 2),
                }
                for (problem, name, time), verdict in zip(chunk, verdicts, strict=True)
            ]
            append_records(path, made)
            rows += made
            bar.update(len(chunk))
    uids = {problem.uid for problem in problems}
    return [row for row in rows if row["uid"] in uids and row["time"] < times]


def same_changes(problems: Sequence[Problem]) -> list[list[str]]:
    """Return groups of tasks whose files with the bug are the same program."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for problem in problems:
        files = files_of(problem)
        path = _mended(problem, files)
        tree = ast.dump(ast.parse(files[path]))
        groups[str(problem.meta["repository"]), f"{path} {tree}"].append(problem.uid)
    return [uids for uids in groups.values() if len(uids) > 1]


def shared_between_splits(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Return the functions in several splits, by name or by their code, and such libraries.

    The code is that of the library, without the bug. Of libraries only those of ``test`` count: it
    is a split by library.
    """
    places: dict[str, set[str]] = defaultdict(set)
    libraries: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        split = str(row.get("split"))
        libraries[library_of(str(row["repo"]))].add(split)
        places[f"{row['repo']} {row.get('function')}"].add(split)
        for path, first, last in row.get("context") or []:
            lines = (folder / str(row["repo"]) / path).read_text().splitlines()[first - 1 : last]
            places["code of " + textwrap.dedent("\n".join(lines))].add(split)
    both = [name for name, splits in libraries.items() if "test" in splits and len(splits) > 1]
    return [*both, *(place for place, splits in places.items() if len(splits) > 1)]


def report(rows: Sequence[Record], num_tasks: int) -> tuple[list[str], list[str]]:
    """Return the lines of a report, and the tasks whose verdicts are not as they should be."""
    lines: list[str] = []
    wrong: dict[str, str] = {}
    statuses: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        statuses[row["uid"], row["patch"]].append(row["status"])
        if row["status"] != EXPECTED[row["patch"]]:
            why = f"{row['uid']}: {row['patch']}: {row['status']}: {row['reason']}"
            wrong.setdefault(row["uid"], why)
    for name, expected in EXPECTED.items():
        counts = Counter(row["status"] for row in rows if row["patch"] == name)
        seen = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        lines.append(f"{name}, to be {expected}: {seen} ({num_tasks} tasks)")
    unsteady = {uid for (uid, _), seen in statuses.items() if len(set(seen)) > 1}
    lines.append(f"verdicts that differ between times: {len(unsteady)} tasks")
    return lines, list(wrong.values())


def main() -> None:
    """Check the tasks of the command line's table."""
    parser = argparse.ArgumentParser(prog="python -m r1lit.evaluation.check_repositories")
    parser.add_argument("table", type=Path, help="tasks.jsonl")
    parser.add_argument("--repositories", type=Path, help="their folder, if not beside the table")
    parser.add_argument("--times", type=int, default=2, help="verdicts a patch")
    parser.add_argument("--num-workers", type=int, default=2, help="sandboxes at once")
    parser.add_argument("--timeout-s", type=float, default=60, help="seconds a verdict")
    parser.add_argument(
        "--tests-alone", action="store_true", help="take tasks whose verdicts can be forged"
    )
    given = parser.parse_args()
    folder = given.repositories or given.table.parent / "repositories"
    problems = RepositoryTasks(str(given.table), str(folder)).problems()
    verifier = RepositoryVerifier(
        timeout_s=given.timeout_s, num_workers=given.num_workers, tests_alone=given.tests_alone
    )
    verifier.check()
    try:
        rows = judge(problems, verifier, given.times, given.table.parent / "checks.jsonl")
    finally:
        verifier.close()
    lines, wrong = report(rows, len(problems))
    same = same_changes(problems)
    shared = shared_between_splits(list(read_rows(str(given.table))), folder)
    lines += [f"not as it should be: {why}" for why in wrong]
    lines.append(f"changes that stand there twice: {len(same)}")
    lines += [f"the same: {', '.join(uids)}" for uids in same]
    lines.append(f"functions or libraries in several splits: {len(shared)}")
    lines += [f"shared: {' '.join(place.split())[:200]}" for place in shared]
    print("\n".join(lines))
    if wrong or same or shared:
        raise SystemExit(1)


if __name__ == "__main__":
    run_script("check_repositories", main)
