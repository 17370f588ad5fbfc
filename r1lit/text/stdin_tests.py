"""Tests of a program by standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def inputs_and_outputs(tests: Any) -> Any:
    """Return tests by standard input as ``{inputs, outputs}``, two lists; others as they are.

    A list of ``{"input": …, "output": …}`` is read, and a mapping with those two keys.

    >>> inputs_and_outputs([{"input": "1", "output": "2"}])
    {'inputs': ['1'], 'outputs': ['2']}
    """
    single = {"input", "output"}
    if isinstance(tests, list) and all(
        isinstance(t, Mapping) and single <= t.keys() for t in tests
    ):
        return {f"{key}s": [test[key] for test in tests] for key in ("input", "output")}
    if isinstance(tests, Mapping) and single <= tests.keys():
        return {"inputs": tests["input"], "outputs": tests["output"], **tests}
    return tests
