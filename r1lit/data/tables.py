"""Tables of text: local JSONL, JSON, CSV and Parquet files, and Hugging Face data sets, as rows.

Local files are read afresh on every call and value by value. (``datasets`` would infer one type a
column: in a JSONL file with the answers "007" and 2 it turns the first into 7, and in a CSV file
"0.50" into 0.5.) Hugging Face names go through ``datasets.load_dataset`` and its cache.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any, TextIO

from r1lit.errors import check_at_least, check_one_of
from r1lit.files import absent
from r1lit.text.prompts import Conversation

Row = dict[str, Any]
HUB = "hf://datasets/"
MAX_CHARACTERS = 5_000_000
"""Of a text in a table: over a million tokens, and still read in seconds."""
SHOWN = Repr()
SHOWN.maxstring = SHOWN.maxother = SHOWN.maxlong = 80
"""Shortens cells in messages."""
SHAREGPT_ROLES = {
    **{name: name for name in ("system", "user", "assistant")}, "human": "user", "gpt": "assistant",
}  # fmt: skip
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz")


def read_rows(path: str, name: str | None = None, split: str = "train") -> list[Row]:
    """Return every row of the table at ``path``, in its order.

    ``path`` is a local file if it ends like one of ``SUFFIXES``, such a file of a data set on the
    Hub if it begins with ``hf://datasets/<owner>/<name>/``, and otherwise what
    ``datasets.load_dataset`` takes: a name on the Hub or a folder, with its ``name`` and ``split``.
    A folder that ``save_to_disk`` wrote is one too.

    Raises:
        ValueError: if there is no such table, or if it cannot be read.
    """
    file = _downloaded(path) if path.startswith(HUB) else Path(path).expanduser()
    if (file / "state.json").is_file() or (file / "dataset_dict.json").is_file():
        return _read_saved(file, split)
    if not file.name.endswith(SUFFIXES):
        return _read_data_set(path, name, split)
    if not file.is_file():
        raise ValueError(f"path: {absent(path)}")
    if file.suffix == ".parquet":
        return _read_parquet(file)
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
        assert not isinstance(stream, bytes)
        read = _read_csv
        if ".jsonl" in file.suffixes:
            read = _read_json_lines
        elif ".json" in file.suffixes:
            read = _read_json
        try:
            return read(stream, path)
        except UnicodeDecodeError as error:
            raise ValueError(f"path: {path} is not UTF-8 text ({error}); convert it") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"path: {path} is not a whole gzip file ({error})") from error


def _downloaded(path: str) -> Path:
    """Return the local copy of a file of a data set on the Hub."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    parts = path.removeprefix(HUB).split("/", 2)
    if len(parts) < 3 or not parts[2].endswith(SUFFIXES):
        raise ValueError(f"path: {path!r} is not {HUB}<owner>/<name>/<file> with a table's ending")
    try:
        return Path(hf_hub_download("/".join(parts[:2]), parts[2], repo_type="dataset"))
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ValueError(
            f"path: {path!r} could not be loaded ({str(error).splitlines()[0]}); a local copy of"
            " the file will do"
        ) from error


def _read_json_lines(stream: TextIO, path: str) -> list[Row]:
    rows = []
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"path: line {number} of {path} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"path: line {number} of {path} is not a JSON object")
        rows.append(row)
    return rows


def _read_json(stream: TextIO, path: str) -> list[Row]:
    try:
        rows = json.load(stream)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"path: {path} is not JSON (one object a line is named .jsonl): {error}"
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"path: {path} is not a JSON array of objects")
    return rows


def _read_csv(stream: TextIO, path: str) -> list[Row]:
    rows = []
    for n, row in enumerate(csv.DictReader(stream), start=1):
        if None in row or None in row.values():
            raise ValueError(f"path: row {n} of {path} has not as many cells as there are columns")
        rows.append(dict(row))
    return rows


def _read_parquet(file: Path) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(file).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"path: {file} is not a Parquet file: {error}") from error


def _read_saved(folder: Path, split: str) -> list[Row]:
    """Return the rows of a data set, or of a split of several, that ``save_to_disk`` wrote."""
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"path: {folder} is not a whole data set of save_to_disk: {error}"
        ) from error
    splits = found if isinstance(found, dict) else {str(found.split or "train"): found}
    if split not in splits:
        raise ValueError(f"split: {folder} has no split {split!r}; there are {', '.join(splits)}")
    return splits[split].to_list()


def _read_data_set(path: str, name: str | None, split: str) -> list[Row]:
    import datasets
    from datasets.exceptions import DatasetGenerationError

    try:
        return datasets.load_dataset(path, name, split=split).to_list()
    except (FileNotFoundError, ConnectionError, ValueError, DatasetGenerationError) as error:
        raise ValueError(
            f"path: {path!r} (name: {name}, split: {split}) is neither a local file that ends in"
            f" one of {', '.join(SUFFIXES)} nor a data set that could be loaded: {error}"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Table:
    """The part of a table that a source reads: ``limit`` rows after the first ``skip``.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, a folder of
            ``save_to_disk``, or the name of a Hugging Face data set.
        name: the configuration of that data set.
        split: its split.
        skip: rows left out at the beginning.
        limit: rows read after those; null reads all.
    """

    path: str
    name: str | None = None
    split: str = "train"
    skip: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        check_at_least("skip", self.skip, 0)
        check_at_least("limit", self.limit, 1, "null means every row")

    @property
    def stem(self) -> str:
        """The table's own name: the file's without its endings, or the last part of a Hub name."""
        return Path(self.path).name.split(".")[0]

    def rows(self, columns: Mapping[str, str]) -> list[tuple[int, Row]]:
        """Return the rows with their places in the whole table, which count from 0.

        ``row`` names a row to a reader; a uid has the place.

        ``columns`` maps the configuration key to the column it names.

        Raises:
            ValueError: if nothing is left to read or a column does not exist.
        """
        return self.find({key: (column,) for key, column in columns.items()})[0]

    def find(
        self, columns: Mapping[str, Sequence[str]]
    ) -> tuple[list[tuple[int, Row]], dict[str, str]]:
        """Return the rows as ``rows`` does, and for each key the first of its columns there is.

        Raises:
            ValueError: if nothing is left to read, or there is none of a key's columns.
        """
        everything = read_rows(self.path, self.name, self.split)
        stop = None if self.limit is None else self.skip + self.limit
        rows = list(enumerate(everything))[self.skip : stop]
        if not rows:
            raise ValueError(
                f"path: {self.path} has {len(everything)} rows, of which skip: {self.skip} leaves"
                " none"
            )
        there = columns_of(rows)
        found = {key: next((n for n in names if n in there), names[0])
                 for key, names in columns.items()}  # fmt: skip
        self.check_columns(found, there)
        return rows, found

    def row(self, n: int) -> str:
        """Name the row at place ``n`` to a reader, who counts from 1."""
        return f"row {n + 1} of {self.path}"

    def check_columns(self, columns: Mapping[str, str], there: Sequence[str]) -> None:
        """Check that every named column is among those that are ``there``.

        Raises:
            ValueError: naming the key and the column that is not.
        """
        for key, column in columns.items():
            if column not in there:
                raise ValueError(
                    f"{key}: {self.path} has no column {column!r}; it has {', '.join(there)}"
                )

    def conversation(self, row: Row, n: int, key: str, column: str) -> Conversation:
        """Return a cell that must hold a list of messages; the row's ``tools`` go along.

        Raises:
            ValueError: if it holds something else.
        """
        try:
            return Conversation.of(as_messages(row.get(column)), as_tools(row.get("tools")))
        except ValueError as error:
            raise ValueError(f"{key}: {self.row(n)}, column {column!r}: {error}") from None

    def text(self, row: Row, n: int, key: str, column: str) -> str:
        """Return a cell that must hold text.

        Raises:
            ValueError: if it holds something else, or nothing.
        """
        value = row.get(column)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{key}: {self.row(n)} holds {SHOWN.repr(value)} in column {column!r}, where a"
                " text that is not empty is needed"
            )
        if len(value) > MAX_CHARACTERS:
            raise ValueError(
                f"{key}: {self.row(n)} holds a text of {len(value):,} characters in column"
                f" {column!r}; at most {MAX_CHARACTERS:,} are read, more than any model's context"
            )
        return value

    def text_or_number(self, row: Row, n: int, key: str, column: str) -> str:
        """Return a cell that must hold text or a finite number; a whole number has no point."""
        value = row.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return str(int(value)) if value == int(value) else repr(value)
        return self.text(row, n, key, column)


def as_messages(cell: Any) -> Any:
    """Return ShareGPT's turns as messages; any other cell as it is.

    >>> as_messages([{"from": "human", "value": "Hi"}])
    [{'role': 'user', 'content': 'Hi'}]

    Raises:
        ValueError: naming a turn of somebody who is not known.
    """
    if not isinstance(cell, list) or not all(
        isinstance(turn, dict) and {"from", "value"} <= turn.keys() for turn in cell
    ):
        return cell
    for turn in cell:
        check_one_of("from", turn["from"], SHAREGPT_ROLES)
    return [{"role": SHAREGPT_ROLES[turn["from"]], "content": turn["value"]} for turn in cell]


def as_tools(cell: Any) -> Any:
    """Return a row's tools; a text is read as JSON, since tables of one type a column hold that.

    >>> as_tools('[{"name": "add"}]')
    [{'name': 'add'}]

    Raises:
        ValueError: if a template could not list them.
    """
    tools = cell
    if isinstance(cell, str):
        try:
            tools = json.loads(cell) if cell.strip() else None
        except ValueError:
            tools = cell
    if tools is not None and not isinstance(tools, list):
        raise ValueError(f"tools: {SHOWN.repr(cell)} is neither a list nor the JSON of one")
    return tools


def is_empty(cell: Any) -> bool:
    """Return whether a cell holds nothing: null, or a text of white space alone."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def columns_of(rows: Sequence[tuple[int, Row]]) -> list[str]:
    """Return the columns of numbered rows, in the order in which they first appear."""
    return list(dict.fromkeys(column for _, row in rows for column in row))
