"""Console scripts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

NOISE = (
    "Does not validate against any of the Union",
    "Subtypes:",
    "Errors:",
    "Expected a <class 'NoneType'>",
    "Given value",
)
"""Lines of the parser's report that name neither a key nor a fault."""


def run(name: str, main: Callable[[], object]) -> None:
    """Run ``main``: bad input ends in one line and exit status 2.

    With ``R1LIT_TRACEBACK`` in the environment it ends in the whole traceback.
    """
    try:
        main()
    except ValueError as error:
        if os.environ.get("R1LIT_TRACEBACK"):
            raise
        print(f"{name}: error: {error}", file=sys.stderr)
        sys.exit(2)


def one_line(message: str) -> str:
    r"""Shorten the parser's nested report to the keys on the way and what is wrong there.

    >>> one_line('Parser key "model":\n  Errors:\n    - Option "rate" is not accepted')
    'model: Option "rate" is not accepted'
    """
    parts: list[str] = []
    for line in message.splitlines():
        text = line.strip().removeprefix("- ")
        if not text or text.startswith(NOISE):
            continue
        text = re.sub(
            r"^(?:Parser key|Problem with given class_path) ['\"](.*?)['\"]:", r"\1:", text
        )
        if text not in parts:
            parts.append(text)
    return " ".join(parts)
