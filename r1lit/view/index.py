"""The columns of the page's list of responses, stored without their texts."""

from __future__ import annotations

import math
from typing import Any

from r1lit.files import Record

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
