"""Checks of settings that a user writes."""

from __future__ import annotations


def check_at_least(key: str, value: float, least: float) -> None:
    """Check the least value of a setting.

    Raises:
        ValueError: naming key, value and what would be right.
    """
    if not value >= least:
        raise ValueError(f"{key}: {value} is not at least {least}")
