"""An answer that is given as a JSON object."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_JSON = 2000
_JSON_KEYS = ("answer", "final_answer", "final answer", "correct_answer", "choice", "option")
_FENCED = re.compile(r"```(?:json)?\s*(\{.*\})\s*```", re.DOTALL | re.IGNORECASE)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys, also those given twice."""


def json_answer(text: str) -> str | None:
    """Return the answer that a text gives as a JSON object, or ``None`` if it is none.

    >>> json_answer('{"answer": "B", "reason": "so"}'), json_answer('{"answer": ["A", "B"]}')
    ('B', None)
    """
    text = text.strip()
    if len(text) > MAX_JSON or "{" not in text[:20]:
        return None
    fenced = _FENCED.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    pairs = found if isinstance(found, _Pairs) else []
    answers = [value for key, value in pairs if key.strip().lower() in _JSON_KEYS]
    return answers[0] if len(answers) == 1 and isinstance(answers[0], str) else None
