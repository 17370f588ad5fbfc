"""``r1lit view``: one static HTML page of a run, or of two side by side.

    r1lit view runs/aha
    r1lit view runs/aha runs/dapo --output both.html

A run is a folder of `r1lit fit` or `r1lit test`, or a ``responses.jsonl``. The page holds its data
and loads nothing; a browser of 2023 or later opens it. Responses lie in it compressed, in blocks
that are read when they are looked at, so that 100,000 of them stay usable.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import html
import json
import math
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from r1lit.files import JSONLFile, Record, absent, beside, defined

BLOCK_BYTES = 1 << 20  # of JSON; a block is what one click decompresses
SCRIPTS = ("data.js", "curves.js", "list.js", "response.js", "page.js")


def write_page(runs: Sequence[Path], output: Path) -> list[Record]:
    """Write the page of one or two runs; return what it holds of each.

    Returns:
        For each run its ``name`` and ``path``, and the numbers of ``iterations``, ``evaluations``
        and ``responses``.

    Raises:
        ValueError: if a run has nothing to show, a line of it is no record, or the page cannot be
            written.
    """
    for run in runs:
        _check(run)
    names = _names(runs)
    part = beside(output)
    try:
        with part.open("wb") as file:
            held = _write(file, runs, names)
        os.replace(part, output)
    except OSError as error:
        raise ValueError(f"output: {output} cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
    return held


def _write(file: BinaryIO, runs: Sequence[Path], names: Sequence[str]) -> list[Record]:
    title = html.escape("r1lit view: " + " and ".join(names))
    skeleton = _asset("page.html").replace("TITLE", title)
    file.write(skeleton.replace("/* css */", _asset("page.css")).encode())
    held = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        index = ResponseIndex()
        for place, records in enumerate(_blocks(_responses(run))):
            for record in records:
                index.add(record)
            index.end_block()
            _write_data(file, f"block-{number}-{place}", records)
        _write_data(file, f"index-{number}", index.columns())
        curves = {"name": name, "metrics": _metrics(run), "evaluations": _evaluations(run)}
        _write_data(file, f"curves-{number}", curves)
        held.append(
            {
                "name": name,
                "path": str(run),
                "iterations": len(curves["metrics"]),
                "evaluations": len(curves["evaluations"]),
                "responses": index.num_responses,
            }
        )
    scripts = "\n".join(_asset(name) for name in SCRIPTS)
    file.write(f"<script>\n'use strict';\n{scripts}\n</script>\n</body>\n</html>\n".encode())
    return held


def _write_data(file: BinaryIO, name: str, data: Any) -> None:
    """Write JSON, compressed, as an element that no browser runs or shows."""
    try:  # as ASCII, so that lone surrogates survive
        content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        content = json.dumps(defined(data), separators=(",", ":")).encode()
    packed = base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0))
    file.write(b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), packed))


def _blocks(records: Iterator[Record]) -> Iterator[list[Record]]:
    block: list[Record] = []
    size = 0
    for record in records:
        block.append(record)
        tokens = record.get("tokens") or {}
        size += 300 + len(record.get("response") or "") + 40 * len(tokens.get("text") or ())
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _asset(name: str) -> str:
    return resources.files("r1lit.view").joinpath(name).read_text(encoding="utf-8")


def _check(run: Path) -> None:
    if run.is_file() and run.suffix == ".jsonl":
        return
    if not run.is_dir():
        raise ValueError(f"run: {absent(run, 'folder')}; name a run folder, as runs/aha")
    if not any((run / name).is_file() for name in ("metrics.jsonl", "responses.jsonl")):
        raise ValueError(
            f"run: {run} has no metrics.jsonl and no responses.jsonl; the callbacks CurveWriter"
            " and ResponseTable write them, and so does `r1lit test`"
        )


def _names(runs: Sequence[Path]) -> list[str]:
    """Return short names that tell the runs apart."""
    parts = [run.resolve().parts for run in runs]
    depth = 1
    while len({part[-depth:] for part in parts}) < len({tuple(part) for part in parts}):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def _responses(run: Path) -> Iterator[Record]:
    path = run if run.is_file() else run / "responses.jsonl"
    return JSONLFile(path, "run").read()


def _metrics(run: Path) -> list[Record]:
    return list(JSONLFile(run / "metrics.jsonl", "run").read()) if run.is_dir() else []


def _evaluations(run: Path) -> list[Record]:
    path = run / "summary.json"
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"run: {path} is not JSON ({error})") from error
    return [record for record in found if isinstance(record, dict)]


def main(args: Sequence[str] | None = None) -> list[Record]:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out. Returns what the page holds."""
    parser = argparse.ArgumentParser(
        prog="r1lit view", description="Write one static HTML page of a run, or of two."
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--output", type=Path, metavar="PAGE.html", help="the page; view.html in the first run"
    )
    given = parser.parse_args(args)
    if len(given.runs) > 2:
        raise ValueError(f"run: {len(given.runs)} are named; a page shows one, or two side by side")
    first = given.runs[0]
    output = given.output or (first if first.is_dir() else first.parent) / "view.html"
    held = write_page(given.runs, output)
    for run in held:
        print(
            f"{run['name']}: {run['responses']:,} responses, {run['iterations']:,} iterations,"
            f" {run['evaluations']:,} evaluations"
        )
    print(f"{output} ({output.stat().st_size / 1e6:.1f} MB): open it in a browser")
    return held


TEXTS = ("split", "source", "status", "uid")
NUMBERS = ("iteration", "sample", "value", "reward", "advantage", "num_tokens")


class ResponseIndex:
    """Gathers columns, record by record.

    Text columns hold numbers of the texts in ``names``; number columns hold None for what is not
    known, and are left out if none is.
    """

    def __init__(self) -> None:
        self.num_responses = 0
        self._texts: dict[str, list[int]] = {name: [] for name in TEXTS}
        self._names: dict[str, dict[str, int]] = {name: {} for name in TEXTS}
        self._numbers: dict[str, list[float | None]] = {name: [] for name in NUMBERS}
        self._ended: list[int] = []
        self._block_ends: list[int] = []
        self._has_tokens = False

    def add(self, record: Record) -> None:
        """Add one response."""
        defaults = {"split": "test", "source": "", "status": "", "uid": ""}
        for name, default in defaults.items():
            known = self._names[name]
            text = str(record.get(name, default))
            self._texts[name].append(known.setdefault(text, len(known)))
        values = {name: record.get(name) for name in NUMBERS}
        rewards = record.get("rewards")
        values |= {f"reward: {k}": v for k, v in rewards.items()} if rewards else {}
        for name, value in values.items():
            if name not in self._numbers:  # a reward that earlier responses did not have
                self._numbers[name] = [None] * self.num_responses
            self._numbers[name].append(_number(value))
        self.num_responses += 1
        for column in self._numbers.values():
            if len(column) < self.num_responses:
                column.append(None)
        self._ended.append(int(record.get("finished") is not False))
        self._has_tokens |= "tokens" in record

    def end_block(self) -> None:
        """End a block: what was added since the last one lies in one element of the page."""
        self._block_ends.append(self.num_responses)

    def columns(self) -> dict[str, Any]:
        """Return the index as the page reads it."""
        return {
            "length": self.num_responses,
            "texts": self._texts,
            "names": {name: list(known) for name, known in self._names.items()},
            "numbers": {
                name: column
                for name, column in self._numbers.items()
                if any(value is not None for value in column)
            },
            "finished": self._ended,
            "block_ends": self._block_ends,
            "has_tokens": self._has_tokens,
        }


def _number(value: object) -> float | None:
    """Return a number as JSON has it, with the digits that a list shows."""
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 4)
    return None
