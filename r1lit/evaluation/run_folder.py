"""The folder of one evaluation, and the thread that grades and writes its responses.

settings.json     everything that the responses depend on; other settings are refused
responses.jsonl   one line per response, in the order in which they finished
report.json       every number
report.md         the same as a table
"""

from __future__ import annotations

import json
import math
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from filelock import FileLock, Timeout
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

import r1lit
from r1lit.evaluation.records import by_problem, response_record
from r1lit.files import JSONLFile, Record, replace_file
from r1lit.problems import Problem, Response
from r1lit.rewards import RewardFunction, score
from r1lit.rollout import Completion
from r1lit.rollout.grading import graded
from r1lit.verifiers import Grader


class RunFolder:
    """Reads and writes the folder at ``dirpath``, or the run folder ``run`` if that is None.

    Raises:
        ValueError: if that is none either: the working directory stands for it.
    """

    def __init__(self, dirpath: str | None, run: str = ".") -> None:
        if dirpath is None and Path(run).resolve() == Path.cwd():
            raise ValueError(
                "run: null, but an evaluation writes to the run folder; name one, as runs/mine"
            )
        self.path = Path(dirpath or run)
        self.responses = JSONLFile(self.path / "responses.jsonl", "dirpath")
        self._lock: FileLock | None = None

    def open(self, settings: Mapping[str, Any]) -> None:
        """Begin or continue: check the settings on disk and drop a torn last line.

        The folder is locked for this process until ``close``, or until the process ends.

        Raises:
            ValueError: naming the settings that differ from those on disk, or if another process
                has locked the folder.
        """
        self._take()
        try:
            self._check_settings(json.loads(json.dumps(settings)))
        except BaseException:
            self.close()
            raise

    def _check_settings(self, settings: dict[str, Any]) -> None:
        path = self.path / "settings.json"
        if path.is_file() and self.responses.path.is_file() and self.responses.path.stat().st_size:
            saved = json.loads(path.read_text())
            differ = sorted(k for k in {*saved, *settings} if saved.get(k) != settings.get(k))
            if differ:
                raise ValueError(
                    f"dirpath: {self.path} holds responses of another evaluation: "
                    + ", ".join(f"{k} was {saved.get(k)} and is {settings.get(k)}" for k in differ)
                    + "; name another dirpath, or remove it"
                )
        self.responses.cut_torn_line()
        self._replace("settings.json", json.dumps(settings, indent=1) + "\n")

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0, is_singleton=True)
            lock.acquire()
        except Timeout:
            raise ValueError(
                f"dirpath: another evaluation is writing to {self.path}; wait for it to end, or"
                " name another dirpath"
            ) from None
        except OSError as error:
            raise ValueError(
                f"dirpath: {self.path} cannot be written ({error.strerror})"
            ) from error
        self._lock = lock

    def done(self, prompts: Mapping[str, str]) -> dict[str, set[int]]:
        """Return the samples on disk, by uid of their problem.

        Args:
            prompts: the digest of each problem's prompt, by uid.

        Raises:
            ValueError: if a response answers another prompt than its problem has now.
        """
        found: dict[str, set[int]] = {}
        for record in self.responses.read():
            uid = record["uid"]
            if uid in prompts:
                if record["prompt"] != prompts[uid]:
                    raise ValueError(
                        f"dirpath: {self.path} holds responses to another prompt of problem"
                        f" {uid!r}, so its question, the template or the tokenizer has changed;"
                        " name another dirpath, or remove it"
                    )
                found.setdefault(uid, set()).add(record["sample"])
        return found

    def groups(self, problems: Sequence[Problem], num_samples: int) -> dict[str, list[Record]]:
        """Return the first ``num_samples`` responses to each problem, in the problems' order.

        Raises:
            ValueError: if one is missing.
        """
        wanted = {problem.uid for problem in problems}
        found = by_problem((r for r in self.responses.read() if r["uid"] in wanted), num_samples)
        missing = len(wanted) * num_samples - sum(map(len, found.values()))
        if missing:
            raise ValueError(f"dirpath: {self.responses.path} lacks {missing} responses; run again")
        return {problem.uid: found[problem.uid] for problem in problems}

    def write_report(self, report: Mapping[str, Any], markdown: str) -> None:
        """Write report.json and report.md."""
        self._replace("report.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        self._replace("report.md", markdown)

    def _replace(self, name: str, content: str) -> None:
        """Write a file atomically."""
        try:
            replace_file(self.path / name, content.encode())
        except OSError as error:
            raise ValueError(
                f"dirpath: {self.path / name} cannot be written ({error.strerror}); the responses"
                " are kept, and the same command continues from there"
            ) from error


def eval_metrics_of(
    functions: Sequence[RewardFunction], responses: Sequence[Response]
) -> list[dict[str, float]]:
    """Return the value of each function for each response, by the function's name.

    A function is called with the responses that it ``applies`` to. NaN means undefined (following
    instructions where there are none) and is left out, so that no mean counts it.

    Raises:
        ValueError: as `r1lit.rewards.score`, if a function does not return a number a response.
    """
    values: list[dict[str, float]] = [{} for _ in responses]
    for function in functions:
        rows = [row for row, response in enumerate(responses) if function.applies(response)]
        masked = _NaNMasked(function)
        if rows:
            found = score([masked], [responses[row] for row in rows])[0][function.name]
            for row, value, is_defined in zip(rows, found, masked.defined, strict=True):
                if is_defined:
                    values[row][function.name] = value
    return values


class _NaNMasked(RewardFunction):
    """Wraps a function: NaN becomes 0, and ``defined`` is false there."""

    def __init__(self, function: RewardFunction) -> None:
        super().__init__(function.weight)
        self.name = function.name
        self.function = function
        self.defined: list[bool] = []

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        values = self.function(responses)
        try:
            self.defined = [not math.isnan(value) for value in values]
        except (TypeError, ValueError, OverflowError, RuntimeError):
            return values  # no list of numbers: `score` raises
        return [
            v if is_defined else 0.0 for v, is_defined in zip(values, self.defined, strict=True)
        ]


GRADED_TOGETHER = 256  # responses graded at a time


@dataclass(frozen=True, kw_only=True)
class Ungraded:
    """A completion that waits for its verdict; ``sample`` counts from 0 within its problem.

    ``search`` are the numbers of the search that made it, if one did.
    """

    problem: Problem
    sample: int
    prompt: str
    completion: Completion
    groups: Mapping[str, Any]
    search: Mapping[str, float] | None = None


class ResponseWriter:
    """Takes completions from any thread, grades them in order of arrival and appends lines.

    An error in its thread (a verifier that fails, a full disk) is raised by the next ``add`` and
    on leaving the context. Leaving it waits until every completion added is written, even after an
    error elsewhere.
    """

    def __init__(
        self,
        responses: JSONLFile,
        grader: Grader,
        eval_metrics: Sequence[RewardFunction],
        tokenizer: PreTrainedTokenizerBase,
        bar: tqdm,
    ) -> None:
        self._responses = responses
        self._grader = grader
        self._eval_metrics = eval_metrics
        self._tokenizer = tokenizer
        self._bar = bar
        self._waiting: queue.SimpleQueue[Ungraded | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="response-writer", daemon=True)

    def __enter__(self) -> ResponseWriter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._failure is not None and (error is None or isinstance(error, Exception)):
            raise self._failure

    def add(self, ungraded: Sequence[Ungraded]) -> None:
        """Queue completions."""
        if self._failure is not None:
            raise self._failure
        for one in ungraded:
            self._waiting.put(one)

    def _work(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            if not batch or self._failure is not None:
                continue
            try:
                self._responses.append(self._records(batch))
            except BaseException as error:  # carried to the thread that generates, and raised there
                self._failure = error
            else:
                self._bar.update(len(batch))

    def _take(self) -> tuple[list[Ungraded], bool]:
        """Wait for a completion; return all that are queued, and whether the queue has ended."""
        batch: list[Ungraded] = []
        item = self._waiting.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= GRADED_TOGETHER:
                return batch, False
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _records(self, batch: list[Ungraded]) -> list[Record]:
        completions = [one.completion for one in batch]
        problems = [one.problem for one in batch]
        responses = graded(completions, problems, self._grader, self._tokenizer)
        scores = eval_metrics_of(self._eval_metrics, responses)
        return [
            {
                **response_record(response, one.sample),
                "groups": dict(one.groups),
                "prompt": one.prompt,
                "grade_seconds": round(response.verdict.seconds, 6),
                "eval_metrics": own,
                **({} if one.search is None else {"search": dict(one.search)}),
            }
            for one, response, own in zip(batch, responses, scores, strict=True)
        ]


def commit() -> str | None:
    """Return the commit of this code, with "-dirty" appended if changed; None outside git."""
    here = Path(r1lit.__file__).parent
    try:
        git(here, "ls-files", "--error-unmatch", "__init__.py")  # not some other repository's
        return git(here, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def git(folder: Path, *words: str) -> str:
    """Return a git command's output in a folder; an OSError or SubprocessError if it fails."""
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def versions() -> str:
    """Return the versions of the libraries that decide what is generated and graded."""
    names = ("torch", "transformers", "math-verify")
    return ", ".join(f"{name} {version(name)}" for name in names)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or of the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
