"""Reads responses from disk by problem, without holding them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tqdm.auto import tqdm

from r1lit.batches import Problem
from r1lit.files import Record, parse_line


class ResponseFile:
    """The responses of an evaluation's ``responses.jsonl``, problem by problem.

    Lines stand in the order in which responses finished, which differs from run to run. One pass
    notes where each line begins (a few numbers a response); a problem's lines are read from there.

    Args:
        path: the file.
        problems: whose responses to read.
        num_samples: how many of each, from sample 0.
        show_progress: whether a bar is shown on stderr.

    Raises:
        ValueError: if a line is no record, or a response is missing.
    """

    def __init__(
        self,
        path: Path,
        problems: Sequence[Problem],
        num_samples: int,
        show_progress: bool = False,
    ) -> None:
        self.path = path
        if not path.is_file():
            raise ValueError(f"dirpath: there is no {path}; generate responses first")
        self._starts: dict[str, dict[int, int]] = {problem.uid: {} for problem in problems}
        start = 0
        with path.open("rb") as file:
            bar = tqdm(file, desc="reading", unit="response", disable=not show_progress)
            for number, line in enumerate(bar, start=1):
                if not line.endswith(b"\n"):
                    break
                record = parse_line(line, number, f"dirpath: {path}")
                samples = self._starts.get(record["uid"])
                if samples is not None and record["sample"] < num_samples:
                    samples.setdefault(record["sample"], start)
                start += len(line)
        missing = sum(num_samples - len(found) for found in self._starts.values())
        if missing:
            raise ValueError(f"dirpath: {path} lacks {missing} responses; run again")
        self._file = path.open("rb")

    def __len__(self) -> int:
        return sum(map(len, self._starts.values()))

    def __enter__(self) -> ResponseFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def of(self, problem: Problem) -> Iterator[Record]:
        """Yield the responses to one problem by sample."""
        for _, start in sorted(self._starts[problem.uid].items()):
            self._file.seek(start)
            yield parse_line(self._file.readline(), 0, f"dirpath: {self.path}")
