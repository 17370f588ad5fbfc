"""The page of a study: a README filled in between two marks, with figure and raw results beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from r1lit.callbacks.figures import save_png_and_pdf
from r1lit.files import Record, read_records, replace_file, write_records

START, END = "<!-- results -->", "<!-- /results -->"
RAW = "results.jsonl"


def fill_in(readme: str, block: str, marks: tuple[str, str] = (START, END)) -> str:
    """Return the README with the block between its markers.

    Raises:
        ValueError: if the markers are not there, once each and in order.
    """
    first, last = marks
    before, start, rest = readme.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end) or any(readme.count(mark) > 1 for mark in marks):
        raise ValueError(
            f"README.md has not one {first} … {last} to fill in; put these two lines once where the"
            " tables belong"
        )
    return f"{before}{first}\n{block}\n{last}{after}"


def with_images(block: str, images: Iterable[str], page: str) -> str:
    r"""Return the block with the images below it that the page does not show elsewhere.

    >>> with_images("A table.", ["a.png", "b.png"], "See here: ![what b says](b.png)")
    'A table.\n\n![a](a.png)'
    """
    missing = [image for image in images if f"]({image})" not in page]
    return "\n\n".join([block, *(f"![{Path(image).stem}]({image})" for image in missing)])


def with_others(
    records: Sequence[Record], files: Sequence[Path], known_by: Sequence[str]
) -> list[Record]:
    """Return these records, and those that the files have of other runs.

    Args:
        records: of the runs that are here; they count where a file has the same run.
        files: results.jsonl of runs that were made elsewhere.
        known_by: the keys of a record that say of which run it is.

    Raises:
        ValueError: if a file is missing, or a record has none of these keys.
    """

    def run(record: Record) -> tuple[Any, ...]:
        return tuple(record.get(key) for key in known_by)

    found: dict[tuple[Any, ...], Record] = {}
    for path in files:
        if not path.exists():
            raise ValueError(f"--also: {path} is not there; it wants the {RAW} of a page")
        for line, record in enumerate(read_records(path), start=1):
            if not any(key in record for key in known_by):
                raise ValueError(f"{path}, line {line}: it has none of {', '.join(known_by)}")
            found[run(record)] = record
    found |= {run(record): record for record in records}
    return list(found.values())


def write_into(
    readme: Path,
    block: str,
    figures: Mapping[str, Figure] | None = None,
    raw: Sequence[Record] = (),
    text: str | None = None,
    *,
    marks: tuple[str, str] = (START, END),
    raw_name: str = RAW,
) -> None:
    """Put a block, and the figures that the README does not show elsewhere, between its markers.

    Figures, by the names of their images, lie beside it as PNG and PDF, and what they are made of,
    ``raw``, as ``raw_name``. ``text`` stands for what the README holds; one that is not there is
    made. A page's second table has ``marks`` and a ``raw_name`` of its own.

    Raises:
        ValueError: if the README has no place for them; nothing is written then.
    """
    if text is None:
        text = readme.read_text() if readme.exists() else "\n".join(marks) + "\n"
    figures = figures or {}
    text = fill_in(text, with_images(block, figures, fill_in(text, "", marks)), marks)
    for image, figure in figures.items():
        save_png_and_pdf(figure, readme.with_name(image))
    if raw:
        write_records(readme.with_name(raw_name), raw)
    replace_file(readme, text.encode())
