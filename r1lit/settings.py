"""Checks of settings that a user writes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager


def check_at_least(key: str, value: float, least: float) -> None:
    """Check the least value of a setting.

    Raises:
        ValueError: naming key, value and what would be right.
    """
    if not value >= least:
        raise ValueError(f"{key}: {value} is not at least {least}")
    if math.isinf(value):
        raise ValueError(f"{key}: {value} is not a finite number from {least} on")


@contextmanager
def named(key: str) -> Iterator[None]:
    """Name another key than ``policy`` in the ValueErrors of what loads a model."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"^policy:", f"{key}:", str(error))) from error
