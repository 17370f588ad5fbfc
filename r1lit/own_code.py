"""Crashes in a user's own code: named, with their traceback kept."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager


class OwnCodeError(ValueError):
    """A reward function, a verifier or the like of the user's crashed; its cause is the crash."""


@contextmanager
def named(what: str, owner: object) -> Iterator[None]:
    """Turn a crash within into an error that names ``what`` and where it crashed.

    A ``ValueError`` of r1lit's own classes is meant for the user already, and passes.

    Raises:
        OwnCodeError: in the place of any exception within.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and type(owner).__module__.startswith("r1lit."):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        raise OwnCodeError(
            f"{what} crashed with {cause} ({place.filename}, line {place.lineno})"
        ) from error
