"""SWE-bench Verified: patches by localise → repair → validate, after Agentless (arXiv 2407.01489).

    files of the tree -> places in their skeletons -> edits of the shown code -> tests that passed

Each of the k responses to an instance is one pass, `Agentless`; `selected` chooses one patch of the
k without the tests that decide. The chosen patches as SWE-bench's own harness takes them, which
decides where docker is:

    python -m r1lit.evaluation.suites.swe_bench runs/eval/paper/swe_bench_verified --model NAME
"""

from __future__ import annotations

import argparse
import ast
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from r1lit.environments import Environment, Episode, Reply, StepResult
from r1lit.evaluation.suites.scores import Groups, Score
from r1lit.files import JSONLFile, Record, write_records
from r1lit.metrics import mean, with_error
from r1lit.problems import Problem, Verdict
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.sandbox.repository import function_of, is_test, run_suite
from r1lit.text.patches import PatchError, apply_edits, read_patch, write_diff
from r1lit.text.prompts import Conversation, extended, question_of
from r1lit.verifiers.base import conclude, timed
from r1lit.verifiers.ifeval import judged_text
from r1lit.verifiers.repository import RepositoryVerifier, files_of

FENCE = "`" * 3
FILES = """These are the files of the repository:

{tree}

Which of them have to be edited to resolve this? Name at most {most}, a path a line."""
PLACES = """These are the classes and functions of the files, with the numbers of their lines:

{skeletons}

Where do they have to be edited? Answer with a place a line: the path, a colon, and a name such as
Class.method, or the first and last line such as 10-20."""
EDITS = """This is the code there:

{code}

Resolve the issue with one or more blocks of this form, whose SEARCH lines stand in the file exactly once:

path/of/the/file.py
<<<<<<< SEARCH
lines as they are
=======
lines as they should be
>>>>>>> REPLACE"""  # noqa: E501
MAX_INVALID = 2


def skeleton(source: str) -> list[tuple[str, int, int]]:
    r"""Return the classes and functions of a file: dotted name, first and last line.

    >>> skeleton("class A:\n    def f(self):\n        pass\n")
    [('A', 1, 3), ('A.f', 2, 3)]
    """
    found: list[tuple[str, int, int]] = []

    def walk(body: Sequence[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{above}{node.name}"
                found.append((name, node.lineno, node.end_lineno or node.lineno))
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{name}.")

    try:
        walk(ast.parse(source).body, "")
    except (SyntaxError, ValueError, RecursionError):
        return []
    return found


class AgentlessEpisode(Episode):
    """One pass over an instance: files, places, edits; each step is shown only what was chosen."""

    def __init__(self, problem: Problem, owner: Agentless) -> None:
        self.problem = problem
        self.owner = owner
        self.before = files_of(problem)
        self.chosen: list[str] = []
        self.code = ""
        self.invalid = 0
        self.start = time.perf_counter()

    def step(self, reply: Reply) -> StepResult:
        """Take the files, the places, or the patch, whichever comes next."""
        text = judged_text(reply.text)
        if not self.chosen:
            return self._files(text)
        if not self.code:
            return self._places(text)
        return self._patch(reply.text)

    def _again(self, why: str) -> StepResult:
        self.invalid += 1
        if self.invalid > MAX_INVALID:
            return StepResult(verdict=timed(conclude("unparsed", None, why), self.start))
        return StepResult(
            messages=({"role": "user", "content": f"{why}. Try again."},), invalid=True
        )

    def _files(self, text: str) -> StepResult:
        known = set(sources_in(self.before))
        named = re.findall(r"[\w./-]+\.py\b", text)
        self.chosen = [path for path in dict.fromkeys(named) if path in known]
        self.chosen = self.chosen[: self.owner.most_files]
        if not self.chosen:
            return self._again("That names no file of the repository")
        shown = "\n\n".join(
            f"{path}\n" + "\n".join(f"{a}-{b} {name}" for name, a, b in skeleton(self.before[path]))
            for path in self.chosen
        )
        content = PLACES.replace("{skeletons}", shown)
        return StepResult(messages=({"role": "user", "content": content},))

    def _places(self, text: str) -> StepResult:
        spans: dict[str, list[tuple[int, int]]] = {}
        for path, place in re.findall(r"^[\s*`-]*([\w./-]+\.py)`?\s*:\s*`?([\w.-]+)", text, re.M):
            if path not in self.chosen:
                continue
            numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", place)
            names = {name: (first, last) for name, first, last in skeleton(self.before[path])}
            if numbers:
                spans.setdefault(path, []).append((int(numbers[1]), int(numbers[2] or numbers[1])))
            elif place in names:
                spans.setdefault(path, []).append(names[place])
        if not spans:
            return self._again("That names no place of these files")
        self.code = "\n\n".join(self._window(path, own) for path, own in spans.items())
        return StepResult(
            messages=({"role": "user", "content": EDITS.replace("{code}", self.code)},)
        )

    def _window(self, path: str, spans: Sequence[tuple[int, int]]) -> str:
        """Return the lines of some spans of a file with ``context`` lines around them."""
        lines = self.before[path].splitlines()
        wide = self.owner.context
        shown = sorted(
            {n for a, b in spans for n in range(a - wide, b + wide + 1) if 0 < n <= len(lines)}
        )
        text = ""
        for place, n in enumerate(shown):
            text += "" if not place or shown[place - 1] == n - 1 else "...\n"
            text += lines[n - 1] + "\n"
        return f"{path}\n{FENCE}python\n{text}{FENCE}"

    def _patch(self, text: str) -> StepResult:
        try:
            edits = read_patch(text)
            if not edits:
                raise PatchError("neither search/replace blocks nor a diff outside thinking")
            changed = apply_edits(self.before, edits)
        except PatchError as error:
            return self._again(str(error))
        verdict = self.owner.decide(write_diff(self.before, changed), self.problem)
        regressions = self.owner.regressions(changed, self.before, self.problem)
        details = {"patch": write_diff(self.before, changed), "regressions": regressions}
        return StepResult(verdict=replace(verdict, details={**verdict.details, **details}))


def sources_in(files: Mapping[str, str]) -> list[str]:
    """Return the paths of a repository's Python files that are no tests, which a model may edit."""
    return sorted(path for path in files if path.endswith(".py") and not is_test(path))


class Agentless(Environment):
    """One pass of localise → repair → validate, in three turns.

    The verifier ``repository`` decides; ``details`` hold the ``patch`` and how many tests that
    passed before fail now, ``regressions``, by which `selected` chooses.

    Args:
        most_files: that localisation may name; Agentless's 3.
        context: lines shown around each place; Agentless's 10.
        timeout_s: of one run of the tests.
        num_workers: sandboxes at once.
    """

    in_background = True

    def __init__(
        self,
        most_files: int = 3,
        context: int = 10,
        timeout_s: float = 300.0,
        num_workers: int = 2,
    ) -> None:
        self.most_files = most_files
        self.context = context
        self.limits = Limits(wall_s=timeout_s, cpu_s=timeout_s / 2, processes=64)
        self.free = threading.BoundedSemaphore(num_workers)
        self.sandbox = LocalSandbox()
        self.verifier = RepositoryVerifier(timeout_s, num_workers, tests_alone=True)

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the issue, the tree, and the question for files."""
        tree = "\n".join(sources_in(files_of(problem)))
        asked = FILES.replace("{tree}", tree).replace("{most}", str(self.most_files))
        return extended(question_of(problem), asked)

    def begin(self, problem: Problem, seed: int) -> AgentlessEpisode:
        """Return an episode with the files as the instance has them."""
        return AgentlessEpisode(problem, self)

    def decide(self, patch: str, problem: Problem) -> Verdict:
        """Return the verdict on a patch."""
        return self.verifier.verify(f"\n{patch}", problem)

    def regressions(
        self, changed: Mapping[str, str], before: Mapping[str, str], problem: Problem
    ) -> int:
        """Return how many tests that passed before the patch fail with it."""
        passed = list(problem.meta["pass_to_pass"])
        if not passed:
            return 0
        with self.free:
            report = run_suite(
                self.sandbox,
                {**before, **changed},
                sorted({test.partition("::")[0] for test in passed}),
                self.limits,
                roots=list(problem.meta.get("roots") or ("src", "")),
                keep={function_of(test) for test in passed},
            )
        outcomes = report.outcomes or {}
        return sum(outcomes.get(test) != "passed" for test in passed)

    def close(self) -> None:
        """Release the sandboxes."""
        self.sandbox.close()
        self.verifier.close()


def chosen(group: Sequence[Record]) -> Record | None:
    """Return the response whose patch is taken: fewest regressions, the majority's, the first.

    Patches are compared by their changed lines without white space.
    """
    patched = [r for r in group if (r.get("details") or {}).get("patch")]
    if not patched:
        return None
    fewest = min(r["details"]["regressions"] for r in patched)
    left = [r for r in patched if r["details"]["regressions"] == fewest]
    left.sort(key=lambda r: r["sample"])
    votes = Counter(normalised(r["details"]["patch"]) for r in left)
    most = max(votes.values())
    return next(r for r in left if votes[normalised(r["details"]["patch"])] == most)


def normalised(patch: str) -> str:
    r"""Return the changed lines of a patch, without white space and the numbers of lines.

    >>> normalised("--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-x = 1\n+x =  2\n")
    '---a/f.py+++b/f.py-x=1+x=2'
    """
    return "".join("".join(line.split()) for line in patch.splitlines() if line[:1] in "+-")


def selected(groups: Groups, *, seed: int = 0) -> Score:
    """Return the share of instances that the chosen patch of each resolves.

    ``pass_at_1`` is the mean of all patches, ``any`` the share that some patch resolves.
    """
    picks = [chosen(group) for group in groups.values()]
    values = [float(pick is not None and pick["value"] == 1.0) for pick in picks]
    right = [[r["value"] == 1.0 for r in group] for group in groups.values()]
    return {
        "name": "resolved",
        **with_error(values, seed=seed),
        "pass_at_1": mean([mean(own) for own in right]),
        "any": mean([any(own) for own in right]),
        "without_patch": mean([pick is None for pick in picks]),
    }


def predictions(folder: Path, model: str) -> list[Record]:
    """Return the chosen patches of an evaluation as SWE-bench's harness takes them.

    Raises:
        ValueError: if the folder holds no responses.
    """
    groups: dict[str, list[Record]] = {}
    for record in JSONLFile(folder / "responses.jsonl", "run").read():
        groups.setdefault(str(record["uid"]), []).append(record)
    if not groups:
        raise ValueError(f"run: {folder} holds no responses; name the suite's own folder")
    picks = {uid: chosen(group) for uid, group in groups.items()}
    return [
        {
            "instance_id": uid,
            "model_name_or_path": model,
            "model_patch": "" if pick is None else pick["details"]["patch"],
        }
        for uid, pick in sorted(picks.items())
    ]


def main(args: Sequence[str] | None = None) -> None:
    """Write the predictions of an evaluation."""
    parser = argparse.ArgumentParser(description="Write predictions for SWE-bench's harness.")
    parser.add_argument("run", type=Path, help="the folder of the suite in an evaluation")
    parser.add_argument("--model", required=True, help="its name in the predictions")
    parser.add_argument("--output", type=Path, help="predictions.jsonl of the run if left out")
    given = parser.parse_args(args)
    output = given.output or given.run / "predictions.jsonl"
    try:
        rows = predictions(given.run, given.model)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    write_records(output, rows)
    empty = sum(not row["model_patch"] for row in rows)
    print(f"{output}: {len(rows)} instances, {empty} without a patch")
    print(
        "python -m swebench.harness.run_evaluation --dataset_name princeton-nlp/SWE-bench_Verified"
        f" --predictions_path {output} --run_id {given.model}"
    )


if __name__ == "__main__":
    main()
