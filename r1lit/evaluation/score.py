"""``r1lit-score``: grades responses that some other system wrote.

    r1lit-score IN.jsonl --verifier math --output OUT.jsonl
    r1lit-score IN.jsonl --verifier math --output OUT.jsonl --group-by question

Each input line is a JSON object with ``response`` and what its verifier needs (see
``--help``). Each output line, in the same order, has

uid        the input line's own, or its number
value      0 to 1; null if the line cannot be used
status     right, wrong, unparsed, timeout, error; or skipped: the line cannot be used
canonical  the answer under which majority vote counts it, or null
reason     why it is not right
seconds    how long the verdict took
input      a digest of the line, the verifier and its options

A line that cannot be used is skipped and counted, or ends the command (``--on-error fail``).
Lines are written as they are graded. Run again, the command checks by their digests that the lines
in OUT belong to the first lines of IN, skips those, and continues. Blank lines are ignored.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, get_args

from tqdm.auto import tqdm

from r1lit.console import run_script
from r1lit.errors import check_one_of, import_path
from r1lit.evaluation.records import accuracy_rows
from r1lit.files import JSONLFile, Record, absent, defined, parse_object, replace_json
from r1lit.metrics import Graded, accuracy, mean, standard_error
from r1lit.problems import LETTERS, Problem, Status, Verdict
from r1lit.text.stdin_tests import inputs_and_outputs
from r1lit.verifiers import DefaultVerifiers, Grader
from r1lit.verifiers.base import DEFAULTS

Needs = Sequence[tuple[str, ...]]
"""``Verifier.needs``: the keys that a line must have; of several in one tuple, any one."""

_DEFINES_CHECK = re.compile(r"^def +check\b", re.MULTILINE)
_CALLS_CHECK = re.compile(r"^check *\(", re.MULTILINE)


def problem_of(
    record: Mapping[str, Any], verifier: str, needs: Needs, uid: str, source: str
) -> Problem:
    """Return the problem a line describes; ``meta`` holds all its keys but ``response``.

    ``answer`` may be a text or a number (72.0 is "72"); with ``choices`` also the index of one.

    Raises:
        ValueError: naming the key that is missing or holds what the verifier cannot use.
    """
    for keys in needs:
        if not any(record.get(key) is not None for key in keys):
            raise ValueError(
                f"key {' or '.join(map(repr, keys))} is missing, which {verifier} needs"
            )
    question = record.get("question", record.get("prompt"))
    meta = {key: value for key, value in record.items() if key != "response"}
    if verifier == "functional_code":
        meta = _functional(meta)
    if verifier == "stdin_code":
        meta["tests"] = inputs_and_outputs(meta["tests"])
    if verifier == "choice" and isinstance(record.get("answer"), int):
        meta["answer_form"] = "letter"
    return Problem(
        uid=str(record.get("uid", uid)),
        question=question if isinstance(question, str) else "",
        answer=_answer(record, verifier, needs),
        source=source,
        verifier=verifier,
        meta=meta,
    )


def _functional(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the meta of functional tests under the verifier's keys.

    A list or text of asserts becomes ``tests``, whichever of the two keys it had. Source that
    defines ``check`` without calling it becomes ``test`` and needs ``entry_point``; without
    ``prompt``, the beginning of the program, the response must hold all of it.
    """
    given = meta.get("tests") if meta.get("test") is None else meta["test"]
    source = "\n".join(map(str, given)) if isinstance(given, list) else str(given)
    if not _DEFINES_CHECK.search(source) or _CALLS_CHECK.search(source):
        tests = [given] if isinstance(given, str) else given
        return {**{key: value for key, value in meta.items() if key != "test"}, "tests": tests}
    entry_point = meta.get("entry_point")
    if not isinstance(entry_point, str):
        raise ValueError("key 'entry_point' is missing, which a test that defines check needs")
    if not isinstance(meta.get("prompt"), str):
        meta["prompt"] = f"def {entry_point}(*args, **kwargs):\n"
    return {**meta, "test": source}


def response_of(record: Mapping[str, Any]) -> str:
    """Return the response of a line.

    Raises:
        ValueError: if it is missing or no text.
    """
    if "response" not in record:
        raise ValueError("key 'response' is missing")
    response = record["response"]
    if not isinstance(response, str):
        raise ValueError(f"key 'response' holds {type(response).__name__}, where text is needed")
    return response


def _answer(record: Mapping[str, Any], verifier: str, needs: Needs) -> str:
    answer = record.get("answer")
    needed = any("answer" in keys for keys in needs)
    if verifier == "choice" and isinstance(answer, int) and not isinstance(answer, bool):
        choices = record.get("choices")
        count = len(choices) if isinstance(choices, list) else len(LETTERS)
        if not 0 <= answer < min(count, len(LETTERS)):
            raise ValueError(f"key 'answer' is {answer}, which is no index into {count} choices")
        return LETTERS[answer]
    if isinstance(answer, str) and (answer.strip() or not needed):
        return answer
    if isinstance(answer, int) and not isinstance(answer, bool):
        return str(answer)
    if isinstance(answer, float) and math.isfinite(answer):
        return str(int(answer)) if answer == int(answer) else repr(answer)
    if needed:
        raise ValueError(f"key 'answer' holds {answer!r}, where a text or a number is needed")
    return ""


SKIPPED = "skipped"
OF_THE_LINE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of a verifier about a problem that it cannot use; any other ends the command."""


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
        uid, needs = str(number), self.grader.verifiers[self.verifier].needs
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
                problem=problem_of(record, self.verifier, needs, uid=uid, source=self.path.stem),
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


FEWEST, MOST = 8, 1024  # lines graded at a time; more while they are quick
QUICK_S, SLOW_S = 0.5, 4.0


@dataclass(kw_only=True)
class Totals:
    """Totals of the output's lines; ``groups`` are responses by problem."""

    values: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    groups: dict[str, list[Graded]] | None = None
    first_skipped: str = ""

    def add(self, item: Item, record: Record) -> None:
        """Count one line."""
        self.statuses[record["status"]] += 1
        if record["status"] == SKIPPED:
            self.first_skipped = self.first_skipped or f"line {item.number}: {record['reason']}"
            return
        self.values.append(float(record["value"]))
        if self.groups is not None:
            self.groups.setdefault(item.group, []).append(Graded.read(record))

    def report(self) -> dict[str, Any] | None:
        """Return `r1lit.metrics.accuracy` over problems; None without groups or responses."""
        return defined(accuracy(list(self.groups.values()))) if self.groups else None

    def __str__(self) -> str:
        num_skipped = self.statuses[SKIPPED]
        if not self.values and not num_skipped:
            return "no lines"
        counts = [f"{self.statuses[status]} {status}" for status in get_args(Status)]
        if num_skipped:
            counts.append(f"{num_skipped} skipped (the first: {self.first_skipped})")
        parts = [f"{len(self.values) + num_skipped} lines: {', '.join(counts)}"]
        if self.values:
            error = math.nan if self.groups is not None else standard_error(self.values)
            shown = "" if math.isnan(error) else f", standard error {error:.4f}"
            parts.append(f"mean value {mean(self.values):.4f}{shown}")
        report = self.report()
        if self.groups and report is not None:
            sizes = sorted(map(len, self.groups.values()))
            each = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
            parts += [f"{len(sizes)} problems, {each} responses each; per cent, errors and 95 %"
                      " intervals over problems", *accuracy_rows(report)]  # fmt: skip
        return "\n".join(parts)


def score_file(
    path: Path,
    verifier: str,
    output: Path,
    grader: Grader | None = None,
    *,
    on_error: Literal["skip", "fail"] = "skip",
    group_by: str | None = None,
    last_expression: bool = False,
    progress: bool = True,
) -> Totals:
    """Grade every line of ``path``, append the verdicts to ``output`` and return the totals.

    Args:
        path: the input, plain or gzip.
        verifier: decides about every line.
        output: the verdicts, a line each.
        grader: has the verifier; the default ones if left out.
        on_error: whether a line that cannot be used is skipped or ends it all; what stands before
            it is written.
        group_by: the key of the input's lines that identifies the problem.
        last_expression: whether ``math`` reads the end of responses that have neither
            ``<answer>`` nor a box.
        progress: whether a bar is shown on stderr.

    Raises:
        ValueError: naming the verifier, the file, the line of ``output`` that belongs to another
            input, or the line and its key that cannot be used: with ``fail`` the first, with
            ``skip`` if no line can be used, and then nothing is written.
    """
    owned = grader is None
    grader = grader or Grader(DefaultVerifiers(last_expression=last_expression))
    try:
        _check(grader, verifier, path, output)
        scoring = Scoring(
            path=path,
            verifier=verifier,
            grader=grader,
            last_expression=last_expression,
            group_by=group_by,
        )
        return _score(scoring, JSONLFile(output, "output"), on_error, progress)
    finally:
        if owned:
            grader.close()


def _check(grader: Grader, verifier: str, path: Path, output: Path) -> None:
    known = sorted({*DEFAULTS, *grader.verifiers})
    check_one_of("verifier", verifier, known)
    grader.verifier_of(Problem(uid="", question="", answer="", source="", verifier=verifier))
    if not path.is_file():
        raise ValueError(f"input: {absent(path)}")
    if output.is_dir():
        raise ValueError(f"output: {str(output)!r} is a folder")
    if output.exists() and output.samefile(path):
        raise ValueError(f"output: {str(output)!r} is the input itself")


def _score(scoring: Scoring, lines: JSONLFile, on_error: str, progress: bool) -> Totals:
    totals = Totals(groups=None if scoring.group_by is None else {})
    lines.cut_torn_line()
    with _open(scoring.path) as file:
        num_lines = sum(bool(line.strip()) for line in file)
    with (
        _open(scoring.path) as file,
        tqdm(total=num_lines, desc=scoring.verifier, unit="line", disable=not progress) as bar,
    ):
        items = scoring.items(file)
        bar.update(_pass_over_done(scoring, lines, items, on_error, totals))
        size, held_back = FEWEST, []
        while chunk := list(islice(items, size)):
            if on_error == "fail":
                chunk = chunk[: next((i + 1 for i, x in enumerate(chunk) if x.error), None)]
            started = time.perf_counter()
            records = scoring.records(chunk)
            size = _next_size(size, time.perf_counter() - started)
            for place, (item, record) in enumerate(zip(chunk, records, strict=True)):
                if record["status"] == SKIPPED and on_error == "fail":
                    lines.append(records[:place])
                    raise ValueError(f"{scoring.path}, line {item.number}: {record['reason']}")
                totals.add(item, record)
            held_back += records
            if totals.values:  # until a line was of use, the fault may be the verifier's name
                lines.append(held_back)
                held_back = []
            bar.update(len(chunk))
    if held_back:
        raise ValueError(
            f"{scoring.path}: none of {len(held_back)} lines can be used by verifier"
            f" {scoring.verifier!r}; the first: {totals.first_skipped}"
        )
    lines.append([])
    return totals


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _pass_over_done(
    scoring: Scoring, lines: JSONLFile, items: Iterator[Item], on_error: str, totals: Totals
) -> int:
    """Pass over the input lines whose verdicts are in the output; return how many."""
    done = 0
    for done, record in enumerate(lines.read(), start=1):
        item = next(items, None)
        if item is None or record.get("input") != item.digest or "canonical" not in record:
            raise ValueError(
                f"output: line {done} of {lines.path} was not written for"
                f" {f'line {item.number}' if item else 'a line'} of {scoring.path}, verifier"
                f" {scoring.verifier!r} and these options; name another --output, or remove it"
            )
        error = record["reason"] if record["status"] == SKIPPED else item.error
        if error is not None and on_error == "fail":
            raise ValueError(f"{scoring.path}, line {item.number}: {error}")
        if error is not None:  # it may be of this run's --group-by
            record = as_record(item, str(error))
        totals.add(item, record)
    return done


def _next_size(size: int, seconds: float) -> int:
    if seconds < QUICK_S:
        return min(MOST, size * 2)
    return max(FEWEST, size // 2) if seconds > SLOW_S else size


def _verifiers_and_keys() -> str:
    """Return a line a verifier: its name and the keys that its lines need."""
    needs: dict[str, Needs] = {name: import_path(DEFAULTS[name]).needs for name in sorted(DEFAULTS)}
    lines = [
        f"  {name:<16} {', '.join(' or '.join(keys) for keys in of_one) or 'nothing more'}"
        for name, of_one in needs.items()
    ]
    return "verifiers, and the keys that a line needs in addition to response:\n" + "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """Imports the verifiers for ``--help`` alone."""

    def format_help(self) -> str:
        """Return the help, with the verifiers and their keys at the end."""
        self.epilog = _verifiers_and_keys()
        return super().format_help()


def main(args: Sequence[str] | None = None) -> Totals:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = _Parser(
        prog="r1lit-score",
        description="Grade responses that some other system wrote.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", type=Path, metavar="IN.jsonl", help="plain or .gz")
    parser.add_argument("--verifier", required=True, help="decides about every line; see below")
    parser.add_argument("--output", required=True, type=Path, metavar="OUT.jsonl")
    parser.add_argument(
        "--on-error",
        choices=("skip", "fail"),
        default="skip",
        help="a line that cannot be used is skipped and counted (default), or ends the command",
    )
    parser.add_argument(
        "--group-by",
        metavar="KEY",
        help="lines with the same value under KEY answer the same problem: pass@k and cons@k, with"
        " errors over problems",
    )
    parser.add_argument(
        "--report", type=Path, metavar="OUT.json", help="write the numbers of --group-by as JSON"
    )
    parser.add_argument(
        "--last-expression",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="math reads the end of responses that have neither <answer> nor a box",
    )
    given = parser.parse_args(args)
    if given.report is not None and given.group_by is None:
        raise ValueError("report: it needs --group-by, which is not set")
    started = time.perf_counter()
    totals = score_file(
        given.input,
        given.verifier,
        given.output,
        on_error=given.on_error,
        group_by=given.group_by,
        last_expression=given.last_expression,
    )
    print(f"{given.verifier}: {totals}\n{given.output}, {time.perf_counter() - started:.1f} s")
    if given.report is not None:
        replace_json(given.report, totals.report())
    return totals


def run() -> None:
    """Run the console script."""
    run_script("r1lit-score", main)


if __name__ == "__main__":
    run()
