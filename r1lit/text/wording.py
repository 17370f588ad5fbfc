"""Wordings: texts in which ``{column}`` is replaced by a row's cell.

``{text|prompt}`` is the first of these columns that the table has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_ |]*)\}")


def squeezed(text: str) -> str:
    """Return ``text`` with every run of white space as one space, none at its ends."""
    return " ".join(text.split())


def columns_in(wording: str) -> list[str]:
    """Return the columns, or alternatives, that a wording names.

    >>> columns_in("{question} Tests: {test_list|test}")
    ['question', 'test_list|test']
    """
    return list(dict.fromkeys(_PLACE.findall(wording)))


def first_of(alternatives: str, columns: Collection[str]) -> str:
    """Return the first of ``a|b`` that is a column; the first if none is, for an error to name.

    >>> first_of("text|prompt", ["prompt", "test"])
    'prompt'
    """
    names = alternatives.split("|")
    return next((name for name in names if name in columns), names[0])


def put_in_words(wording: str, row: Mapping[str, Any]) -> str:
    r"""Return ``wording`` with the row's cells in their places; an empty cell leaves nothing.

    Lists stand one item a line, and examples (``input`` and ``output``) under these two words.

    >>> put_in_words("Sum: {q}{note}", {"q": "1 + 2", "note": None})
    'Sum: 1 + 2'
    >>> put_in_words("{t}", {"t": ["assert f(1)", "assert f(2)"]})
    'assert f(1)\nassert f(2)'
    """
    return filled(wording, row).strip()


def filled(wording: str, row: Mapping[str, Any]) -> str:
    """Return the same with the white space that the wording begins and ends with."""
    return _PLACE.sub(lambda match: _in_words(row.get(first_of(match[1], row))), wording)


def _in_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping) and {"input", "output"} <= value.keys():
        return f"Input:\n{str(value['input']).rstrip()}\nOutput:\n{str(value['output']).rstrip()}"
    if isinstance(value, list | tuple):
        return "\n".join(_in_words(item) for item in value)
    return str(value)
