"""Grades the lines that another system wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from r1lit.evaluation.scoring_input import problem_of, response_of
from r1lit.files import Record, parse_object
from r1lit.problems import Problem, Verdict
from r1lit.verifiers import Grader

SKIPPED = "skipped"
OF_THE_LINE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a verifier raises about a problem that it cannot use; anything else ends the command."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A line of the input. ``error`` says why it cannot be used; then it has no ``problem``."""

    number: int
    digest: str
    uid: str
    group: str = ""
    response: str = ""
    problem: Problem | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Reads the lines of ``path`` and grades them; the options are ``score_file``'s."""

    path: Path
    verifier: str
    grader: Grader
    last_expression: bool
    group_by: str | None

    def items(self, file: IO[bytes]) -> Iterator[Item]:
        """Yield the lines that are not blank."""
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield self._item(number, line.strip())

    def _item(self, number: int, line: bytes) -> Item:
        options = self.verifier if self.last_expression else f"{self.verifier} no-last-expression"
        digest = hashlib.blake2b(options.encode() + b"\0" + line, digest_size=8).hexdigest()
        uid = str(number)
        try:
            record = parse_object(line)
            uid = str(record.get("uid", uid))
            if self.group_by is not None and self.group_by not in record:
                raise ValueError(f"key {self.group_by!r} is missing, which --group-by names")
            return Item(
                number=number,
                digest=digest,
                uid=uid,
                group=json.dumps(record[self.group_by]) if self.group_by is not None else "",
                response=response_of(record),
                problem=problem_of(record, self.verifier, uid=uid, source=self.path.stem),
            )
        except ValueError as error:
            return Item(number=number, digest=digest, uid=uid, error=str(error))

    def records(self, items: Sequence[Item]) -> list[Record]:
        """Return the output's lines for these of the input, in order."""
        usable = [item for item in items if item.error is None]
        numbers = (item.number for item in usable)
        verdicts = dict(zip(numbers, self._verdicts(usable), strict=True))
        return [as_record(item, verdicts.get(item.number, item.error or "")) for item in items]

    def _verdicts(self, items: Sequence[Item]) -> list[Verdict | str]:
        """Return the verdict of each item, or what its verifier cannot use in it."""
        problems = [item.problem for item in items if item.problem is not None]
        try:
            return [*self.grader.verdicts([item.response for item in items], problems)]
        except OF_THE_LINE as error:
            if len(items) == 1:
                missing = isinstance(error, KeyError)
                return [f"key {error} is missing" if missing else str(error) or repr(error)]
        except ImportError as error:
            raise ValueError(f"verifier: {error}") from error
        half = len(items) // 2
        return self._verdicts(items[:half]) + self._verdicts(items[half:])


def as_record(item: Item, verdict: Verdict | str) -> Record:
    """Return the output's line of an item: its verdict, or what cannot be used in it."""
    if isinstance(verdict, str):
        skipped = {"value": None, "status": SKIPPED, "canonical": None, "reason": verdict}
        return {"uid": item.uid, **skipped, "seconds": 0.0, "input": item.digest}
    return {
        "uid": item.uid,
        "value": verdict.value,
        "status": verdict.status,
        "canonical": verdict.canonical,
        "reason": verdict.reason,
        "seconds": round(verdict.seconds, 6),
        "input": item.digest,
    }
