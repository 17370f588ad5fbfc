r"""The data files of R1 on real models, made from public data sets: ``experiments/r1/data.yaml``.

    python -m experiments.r1.data --list                      # files, sources, licences, rows
    python -m experiments.r1.data small_real data/r1_small    # make the files of a scale
    python -m experiments.r1.data full data/r1 --only math stem --local downloads

Each file is JSONL whose lines have the keys of its schema; rows that do not fit are left out and
counted. A file that is there and was not made here is yours: its lines are checked, and it stays.
``card.json`` says for each file how many lines it has from where, under which licence, and what did
not fit. With ``--local`` a source is read from a file of that folder, where there is one named
``<owner>__<name>[__<config>][__<split>]`` with a table's ending: no network is needed then.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from experiments.compose import check_keys, value_at
from experiments.launch import command_line, reported
from r1lit.data import ReasoningGym
from r1lit.data.tables import SUFFIXES, read_rows
from r1lit.errors import hint
from r1lit.files import replace_json, write_records
from r1lit.problems import LETTERS
from r1lit.seeding import permutation

SOURCES = Path(__file__).with_name("data.yaml")
SCALES = ("full", "small_real")
REPAIRS = "r1lit.environments.make_repair"
Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set that a file is made from; the keys are those of data.yaml.

    ``path`` is a name on the Hub, a table, "made" for puzzles of reasoning-gym's task ``name``, or
    ``REPAIRS`` for tasks that a step of the pipeline makes with that module. ``take``
    is how many lines the file gets from it, after ``skip``; ``rows`` how many its card states.
    ``columns`` maps a line's keys to columns: a name, ``a.b.-1`` for what a cell holds, or a list
    of columns. ``patterns`` are regular expressions whose group 1 is the value, ``remove`` is a
    text taken out of it, ``values`` maps it, and ``wordings`` hold it as ``{}``. ``where`` keeps
    rows whose columns hold these values, one or a list; ``before`` rows whose columns hold a
    smaller number, as a year; ``num_choices`` lines of so many choices, from and to. ``fetched``
    says that its rows were read once: names and columns of the others are unverified.
    """

    path: str
    licence: str
    rows: int
    take: int
    name: str | None = None
    split: str = "train"
    skip: int = 0
    columns: Mapping[str, Any] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    remove: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    wordings: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    num_choices: Sequence[int] = ()
    fetched: bool = False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is one of those that ``where`` and ``before`` keep."""
        for column, wanted in self.where.items():
            if value_at(row, column) not in (wanted if isinstance(wanted, list) else [wanted]):
                return False
        for column, limit in self.before.items():
            digits = re.search(r"\d+", str(value_at(row, column)))
            if digits is None or int(digits[0]) >= limit:
                return False
        return True


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file: what it is for, its lines' keys with their kinds, and its sources."""

    name: str
    holds: str
    schema: Mapping[str, str]
    constants: Mapping[str, Any]
    sources: Sequence[Source]

    @property
    def take(self) -> int:
        """The lines it gets in all."""
        return sum(source.take for source in self.sources)


def read_files(scale: str, path: Path = SOURCES) -> list[DataFile]:
    """Return the files of a scale that have sources in data.yaml.

    Raises:
        ValueError: for an unknown scale, or a key that is unknown or missing.
    """
    if scale not in SCALES:
        raise ValueError(f"scale: {scale!r} is none of {', '.join(SCALES)}")
    files = []
    for name, given in yaml.safe_load(path.read_text()).items():
        where = f"{path}: {name}"
        check_keys(where, given, {"holds": str, "schema": dict}, ("with", *SCALES))
        for kind in given["schema"].values():
            if kind not in KINDS:
                raise ValueError(f"{where}: schema: {kind!r} is none of {', '.join(KINDS)}")
        sources = [Source(**source) for source in given.get(scale, [])]
        if sources:
            files.append(
                DataFile(
                    name=name,
                    holds=given["holds"],
                    schema=given["schema"],
                    constants=given.get("with", {}),
                    sources=sources,
                )
            )
    return files


def _text(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value)) if value == int(value) else repr(value)
    return value if isinstance(value, str) and value.strip() else None


def _choices(value: Any) -> Any:
    fits = isinstance(value, list) and 2 <= len(value) <= len(LETTERS)
    while fits and len(value) > 2 and value[-1] in (None, ""):
        value = value[:-1]  # a column for each choice, of which the last ones are empty
    texts = [_text(choice) for choice in value] if fits else []
    return texts if texts and all(texts) else None


def _letter(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(LETTERS):
        return LETTERS[value]
    return value if isinstance(value, str) and len(value) == 1 and value in LETTERS else None


def _tests(value: Any) -> Any:
    """Return asserts as a list, and inputs with outputs as {inputs, outputs}."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    if isinstance(value, Mapping):
        if value.get("fn_name"):
            return None  # tests of a function's arguments, which stdin_code does not read
        inputs = value.get("inputs", value.get("input"))
        outputs = value.get("outputs", value.get("output"))
        both = isinstance(inputs, list) and isinstance(outputs, list)
        fits = both and inputs and len(inputs) == len(outputs)
        return {"inputs": inputs, "outputs": outputs} if fits else None
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        stdin = ("stdin", "stdin_stdout")
        if not all("input" in v and "output" in v for v in value):
            return None
        if not all(v.get("type", v.get("testtype", "stdin")) in stdin for v in value):
            return None
        return {"inputs": [v["input"] for v in value], "outputs": [v["output"] for v in value]}
    return value if isinstance(value, list) and value and all(map(_text, value)) else None


def _of_list(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    return value if isinstance(value, list) and value else None


def _mapping(value: Any) -> Any:
    return value if isinstance(value, Mapping) and value else None


def _label(value: Any) -> Any:
    if isinstance(value, bool):
        return "safe" if value else "unsafe"
    return value if value in ("safe", "unsafe") else None


KINDS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "choices": _choices,
    "letter": _letter,
    "tests": _tests,
    "list": _of_list,
    "label": _label,
    "mapping": _mapping,
}
"""Kinds of a line's keys: each reads a cell, and returns None for one that does not fit."""


def fits(file: DataFile, line: Mapping[str, Any]) -> str:
    """Return "" for a line of the file's schema, or the key that does not fit."""
    bad = (key for key, kind in file.schema.items() if KINDS[kind](line.get(key)) is None)
    return next(bad, "")


def _wrong_choices(source: Source, line: Mapping[str, Any]) -> str:
    """Return the key of choices that are too few or too many, or of a letter that none has."""
    choices = line.get("choices")
    if not isinstance(choices, list):
        return ""
    if source.num_choices and not source.num_choices[0] <= len(choices) <= source.num_choices[-1]:
        return "choices"
    return "" if line["answer"] in LETTERS[: len(choices)] else "answer"


def _line(file: DataFile, source: Source, row: Mapping[str, Any]) -> Line:
    line: Line = {}
    for key, kind in file.schema.items():
        column = source.columns.get(key, key)
        several = isinstance(column, list)
        value = [value_at(row, c) for c in column] if several else value_at(row, column)
        if key in source.values:
            value = source.values[key].get(value)
        if key in source.patterns and isinstance(value, str):
            match = re.search(source.patterns[key], value, re.DOTALL)
            value = match[1].strip() if match else None
        if key in source.remove and isinstance(value, str):
            value = value.replace(source.remove[key], "")
        if key in source.wordings and isinstance(value, str):
            value = source.wordings[key].replace("{}", value)
        line[key] = KINDS[kind](value)
    return {**line, **file.constants, **source.constants, "source": source.path}


def _made(source: Source) -> Iterator[Line]:
    """Yield puzzles of reasoning-gym's task ``name``, a few more than are taken.

    Raises:
        ValueError: if reasoning-gym is missing or has no such task.
    """
    assert source.name is not None
    spare = source.take // 5 if source.patterns else 0
    puzzles = ReasoningGym(source.name, source.take + spare, seed=source.skip).problems()
    for puzzle in puzzles:
        yield {"prompt": puzzle.question, **puzzle.meta}


def local_file(source: Source, folder: Path | None) -> str:
    """Return the table that a source is read from: one in ``folder``, or its own name."""
    if folder is None:
        return source.path
    stem = source.path.removeprefix("hf://datasets/").replace("/", "__")
    names = [stem]
    for part in (source.name, source.split):
        names += [f"{names[-1]}__{part}"] if part else []
    tried = [folder / f"{name}{end}" for name in reversed(names) for end in ("", *SUFFIXES)]
    return str(next((path for path in tried if path.is_file()), source.path))


def lines_of(file: DataFile, folder: Path | None) -> tuple[list[Line], list[Line]]:
    """Return the lines of a file, and for its card what each source gave.

    Rows of a data set come in an order shuffled by its name, so that ``skip`` parts it in the same
    way on every machine. Lines of several sources are mixed, so that the first ones are of all.

    Raises:
        ValueError: if a source cannot be read, or none of its rows fits.
    """
    lines: list[Line] = []
    card: list[Line] = []
    for source in file.sources:
        if source.path == "made":
            rows: Any = list(_made(source))
            order: Sequence[int] = range(len(rows))
        else:
            rows = read_rows(local_file(source, folder), source.name, source.split)
            order = permutation(len(rows), 0, "data", source.path)[source.skip :]
        taken, other, left_out = 0, 0, dict.fromkeys(file.schema, 0)
        for index in order:
            if taken == source.take:
                break
            if not source.holds(rows[index]):
                other += 1
                continue
            line = _line(file, source, rows[index])
            if key := fits(file, line) or _wrong_choices(source, line):
                left_out[key] += 1
                continue
            lines.append(line)
            taken += 1
        if not taken:
            there = ", ".join(rows[0]) if rows else "none"
            raise ValueError(
                f"{file.name}: none of the {len(rows)} rows of {source.path} has"
                f" {', '.join(file.schema)}; columns: {dict(source.columns)}; its columns: {there}"
            )
        entry = {"path": source.path, "licence": source.licence, "taken": taken}
        card.append(entry | {"wanted": source.take, "do_not_fit": left_out, "other_rows": other})
    mixed = permutation(len(lines), 0, "data", file.name)
    return [lines[index] for index in mixed] if len(file.sources) > 1 else lines, card


def check_yours(file: DataFile, path: Path) -> int:
    """Return the lines of a file that was not made here.

    Raises:
        ValueError: naming the line and the key that does not fit.
    """
    rows = read_rows(str(path))
    for number, line in enumerate(rows, start=1):
        if key := fits(file, line):
            raise ValueError(
                f"{path}: line {number}: {key}: {line.get(key)!r:.60} is no"
                f" {file.schema[key]}; a line has {dict(file.schema)}"
            )
    return len(rows)


def build(scale: str, folder: Path, only: Sequence[str], local: Path | None) -> Iterator[str]:
    """Make the files that are not there yet; yield a line about each.

    Raises:
        ValueError: if a file is unknown, or cannot be made.
    """
    files = read_files(scale)
    names = [file.name for file in files]
    for name in only:
        if name not in names:
            raise ValueError(f"--only: {name!r}{hint(name, names) or ' is none of'} {names}")
    folder.mkdir(parents=True, exist_ok=True)
    cards = folder / "card.json"
    card = json.loads(cards.read_text()) if cards.is_file() else {}
    for file in files:
        path = folder / f"{file.name}.jsonl"
        if only and file.name not in only:
            continue
        if file.sources[0].path == REPAIRS:
            yield f"{folder / file.name}/tasks.jsonl: python -m {REPAIRS} makes it"
            continue
        if path.is_file() and file.name not in card:
            yield f"{path}: yours, {check_yours(file, path):,} lines"
            continue
        declared = [[source.path, source.take] for source in file.sources]
        if path.is_file() and card[file.name]["declared"] == declared:
            yield f"{path}: {card[file.name]['lines']:,} lines, made before"
            continue
        lines, sources = lines_of(file, local)
        write_records(path, lines)
        card[file.name] = {"lines": len(lines), "declared": declared, "sources": sources}
        replace_json(cards, card)
        short = f" of {file.take:,}" if len(lines) < file.take else ""
        yield f"{path}: {len(lines):,}{short} lines, {path.stat().st_size / 1e6:.1f} MB"


def listing() -> Iterator[str]:
    """Yield a Markdown table of all files and sources."""
    yield "| scale | file | lines | source | rows there | licence | a line | names and columns |"
    yield "|---|---|---:|---|---:|---|---|---|"
    for scale in SCALES:
        for file in read_files(scale):
            for source in file.sources:
                what = "made here" if source.path in ("made", REPAIRS) else source.path
                what += f": {source.name}" if source.path == "made" else ""
                rows = f"{source.rows:,}" if source.rows else "–"
                yield (
                    f"| {scale} | {file.name} | {source.take:,} | {what} | {rows} |"
                    f" {source.licence} | {', '.join(file.schema)} |"
                    f" {'made here' if what.startswith('made here') else status(source)} |"
                )
    yield ""
    yield "*unverified*: no row was fetched; names, columns, rows and licences may be from memory."


def status(source: Source) -> str:
    """Return whether a source's names and columns were read in its rows."""
    return "read" if source.fetched else "*unverified*"


TARGETS = {
    "stem": {"chemistry": 10_230, "biology": 6_754, "physics": 3_410, "other": 1_606},
}
"""Prompts by subject, from the shares of 22,000 in the paper's B.3.1: 46.5, 30.7, 15.5, 7.3 %."""
PAPER = {"math": 26_000, "code": 17_000, "bugs": 8_000, "stem": 22_000, "logic": 15_000,
         "general": 78_000}  # fmt: skip
"""Prompts of RL by domain (Table 4 and B.3.1; 66K of general and 12K of harmlessness)."""


def composition(scale: str = "full") -> Iterator[str]:
    """Yield languages and subjects of the RL prompts, beside the paper's (B.3.1), as Markdown."""
    files = {file.name: file for file in read_files(scale)}
    yield "## What the RL prompts are of, beside B.3.1"
    yield ""
    yield "| file | prompts | the paper | English | Chinese | by subject | the paper | sources |"
    yield "|---|---:|---:|---:|---:|---|---|---|"
    for name, wanted in PAPER.items():
        file = files[name]
        languages, subjects = shares_of(file, "language"), shares_of(file, "subject")
        of_paper = TARGETS.get(name, {})
        unread = sum(not (s.fetched or s.path in ("made", REPAIRS)) for s in file.sources)
        yield (
            f"| {name} | {file.take:,} | {wanted:,} | {languages.get('en', 0):,} |"
            f" {languages.get('zh', 0):,} | {_listed(subjects)} | {_listed(of_paper)} |"
            f" {len(file.sources)}, {unread} *unverified* |"
        )
    yield ""
    yield "The paper's questions are Chinese and English, in shares that it does not print."
    yield (
        "Bugs: here mutants of libraries; the paper's are real GitHub issues with unit tests that"
        " fail, as SWE-Gym and SWE-rebench have them, whose tests need each repository's container."
    )
    yield (
        "Logic: the paper's are also multiple choice from the web; its shares are not printed, so"
        " those of the families are r1lit's."
    )


def shares_of(file: DataFile, key: str) -> dict[str, int]:
    """Return the lines of a file by a constant of its sources."""
    found: dict[str, int] = {}
    for source in file.sources:
        value = (dict(file.constants) | dict(source.constants)).get(key)
        if value is not None:
            found[str(value)] = found.get(str(value), 0) + source.take
    return found


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "–"


@reported("data")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.r1.data", __doc__)
    parser.add_argument("scale", nargs="?", choices=SCALES, help="whose files")
    parser.add_argument("folder", nargs="?", type=Path, help="where they go")
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="these files alone")
    parser.add_argument("--local", type=Path, help="a folder of downloaded tables")
    parser.add_argument("--list", action="store_true", help="print files, sources and licences")
    options = parser.parse_args(args)
    if options.list:
        print("\n".join(listing()))
        return 0
    if options.folder is None:
        parser.error("give a scale and a folder, or --list")
    for line in build(options.scale, options.folder, options.only, options.local):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
