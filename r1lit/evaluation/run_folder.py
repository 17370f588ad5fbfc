"""The folder of one evaluation: its settings, responses and report.

settings.json     what the responses depend on; other settings are refused
responses.jsonl   one line a response, in the order in which they finished
report.json       every number
report.md         the same as a table
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from r1lit.evaluation.records import by_problem
from r1lit.files import JSONLFile, Record, replace_file
from r1lit.problems import Problem


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
            self._go_on(json.loads(json.dumps(settings)))
        except BaseException:
            self.close()
            raise

    def _go_on(self, settings: dict[str, Any]) -> None:
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
                " are kept, and the same command goes on from there"
            ) from error
