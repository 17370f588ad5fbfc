"""``r1lit-score``: verdicts about responses that some other system wrote.

    r1lit-score IN.jsonl --verifier math --output OUT.jsonl

Each input line is a JSON object with ``response`` and what its verifier needs (`r1lit.evaluation
.needs`). Each output line, in the same order, has ``value`` (0 to 1), ``status`` (right, wrong,
unparsed, timeout, error) and ``reason``; ``input`` is a digest of the line and the verifier.

Lines are written as they are judged. A line that cannot be judged ends the command with an error
that names it; everything before it is written. Run again, the command checks by their digests that
the lines in OUT belong to the first lines of IN, skips those, and goes on behind them. Blank lines
are passed over.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, get_args

from tqdm.auto import tqdm

from r1lit import console
from r1lit.batches import Problem, Status, Verdict
from r1lit.evaluation.needs import NEEDS, problem_of, response_of
from r1lit.jsonl import Lines, parse_line
from r1lit.metrics import standard_error
from r1lit.verifiers import Grader, default_verifiers

FEWEST, MOST = 8, 1024  # lines judged at a time; more while they are quick
QUICK_S, SLOW_S = 0.5, 4.0


@dataclass(frozen=True, kw_only=True)
class Item:
    """A line of the input: its number, its digest and what is to be judged."""

    number: int
    digest: str
    response: str
    problem: Problem


@dataclass(kw_only=True)
class Totals:
    """What all lines of the output add up to."""

    values: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, value: float, status: str) -> None:
        """Count one line."""
        self.values.append(value)
        self.statuses[status] += 1

    def __str__(self) -> str:
        if not self.values:
            return "no lines"
        counts = ", ".join(f"{self.statuses[s]} {s}" for s in get_args(Status))
        mean = sum(self.values) / len(self.values)
        return (
            f"{len(self.values)} lines: {counts}\n"
            f"mean value {mean:.4f}, standard error {standard_error(self.values):.4f}"
        )


def score_file(
    path: Path, verifier: str, output: Path, grader: Grader | None = None, progress: bool = True
) -> Totals:
    """Grader every line of ``path``, append the verdicts to ``output`` and return the totals.

    Raises:
        ValueError: naming the verifier, the file, or the line and its key that cannot be used, or
            the line of ``output`` that belongs to another input.
    """
    owned = grader is None
    grader = grader or Grader(default_verifiers(last_expression=True))
    try:
        _check(grader, verifier, path, output)
        return _score(grader, path, verifier, output, progress)
    finally:
        if owned:
            grader.close()


def _check(grader: Grader, verifier: str, path: Path, output: Path) -> None:
    known = sorted({*NEEDS, *grader.verifiers})
    if verifier not in known:
        raise ValueError(f"verifier: {verifier!r} is none of {', '.join(known)}")
    grader.verifier_of(Problem(uid="", question="", answer="", source="", verifier=verifier))
    if not path.is_file():
        raise ValueError(f"input: there is no file {str(path)!r}")
    if output.is_dir():
        raise ValueError(f"output: {str(output)!r} is a folder")
    if output.exists() and output.samefile(path):
        raise ValueError(f"output: {str(output)!r} is the input itself")


def _score(grader: Grader, path: Path, verifier: str, output: Path, progress: bool) -> Totals:
    totals = Totals()
    lines = Lines(output, "output")
    lines.cut_torn_line()
    with _open(path) as file:
        num_lines = sum(bool(line.strip()) for line in file)
    with (
        _open(path) as file,
        tqdm(total=num_lines, desc=verifier, unit="line", disable=not progress) as bar,
    ):
        numbered = _numbered(file)
        bar.update(_skip_done(lines, numbered, verifier, path, totals))
        size = FEWEST
        while True:
            items, error = _take(numbered, size, verifier, path)
            if items:
                started = time.perf_counter()
                verdicts, judging_error = _judge(grader, items, path)
                error = judging_error or error
                done = list(zip(items, verdicts, strict=False))
                lines.append(
                    {
                        "value": verdict.value,
                        "status": verdict.status,
                        "reason": verdict.reason,
                        "input": item.digest,
                    }
                    for item, verdict in done
                )
                for _, verdict in done:
                    totals.add(verdict.value, verdict.status)
                bar.update(len(done))
                size = _next_size(size, time.perf_counter() - started)
            if error is not None:
                raise error
            if not items:
                break
    if not output.exists():
        lines.append([])
    return totals


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield number, line.strip()


def _digest(line: bytes, verifier: str) -> str:
    return hashlib.blake2b(verifier.encode() + b"\0" + line, digest_size=8).hexdigest()


def _skip_done(
    lines: Lines, numbered: Iterator[tuple[int, bytes]], verifier: str, path: Path, totals: Totals
) -> int:
    """Pass over the input lines whose verdicts are in the output; return how many."""
    done = 0
    for done, record in enumerate(lines.read(), start=1):
        number, line = next(numbered, (None, b""))
        if number is None or record.get("input") != _digest(line, verifier):
            raise ValueError(
                f"output: line {done} of {lines.path} was not written for"
                f" {f'line {number} of {path}' if number else f'a line of {path}'} and verifier"
                f" {verifier!r}; name another --output, or remove it"
            )
        totals.add(float(record["value"]), str(record["status"]))
    return done


def _take(
    numbered: Iterator[tuple[int, bytes]], size: int, verifier: str, path: Path
) -> tuple[list[Item], ValueError | None]:
    """Return the next items, and the error of the line that ended them early."""
    items: list[Item] = []
    for number, line in numbered:
        try:
            record = parse_line(line, number, str(path))
        except ValueError as error:
            return items, error
        try:
            item = Item(
                number=number,
                digest=_digest(line, verifier),
                response=response_of(record),
                problem=problem_of(record, verifier, uid=str(number), source=path.stem),
            )
        except ValueError as error:
            return items, ValueError(f"{path}, line {number}: {error}")
        items.append(item)
        if len(items) >= size:
            break
    return items, None


def _judge(
    grader: Grader, items: Sequence[Item], path: Path
) -> tuple[list[Verdict], ValueError | None]:
    """Return verdicts, and the error of the item whose problem the verifier cannot use."""
    try:
        return grader.verdicts([i.response for i in items], [i.problem for i in items]), None
    except (KeyError, TypeError, ValueError) as error:
        if len(items) == 1:
            what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
            return [], ValueError(f"{path}, line {items[0].number}: {what}")
    verdicts: list[Verdict] = []
    for item in items:
        one, found = _judge(grader, [item], path)
        verdicts += one
        if found is not None:
            return verdicts, found
    return verdicts, None


def _next_size(size: int, seconds: float) -> int:
    if seconds < QUICK_S:
        return min(MOST, size * 2)
    return max(FEWEST, size // 2) if seconds > SLOW_S else size


def main(args: Sequence[str] | None = None) -> Totals:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = argparse.ArgumentParser(
        prog="r1lit-score", description="Grader responses that some other system wrote."
    )
    parser.add_argument("input", type=Path, metavar="IN.jsonl")
    parser.add_argument("--verifier", required=True, help=", ".join(NEEDS))
    parser.add_argument("--output", required=True, type=Path, metavar="OUT.jsonl")
    given = parser.parse_args(args)
    started = time.perf_counter()
    totals = score_file(given.input, given.verifier, given.output)
    print(f"{given.verifier}: {totals}\n{given.output}, {time.perf_counter() - started:.1f} s")
    return totals


def run() -> None:
    """Run the console script."""
    console.run("r1lit-score", main)


if __name__ == "__main__":
    run()
