"""Crashes in a user's own code, such as a reward function."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from r1lit.errors import in_one_line


class OwnCodeError(ValueError):
    """A reward function, a verifier or the like of the user's crashed; its cause is the crash."""


@contextmanager
def user_code(what: str, owner: object) -> Iterator[None]:
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
        raise crash_error(what, error, traceback.extract_tb(error.__traceback__)[-1]) from error


def crash_error(what: str, error: Exception, place: traceback.FrameSummary) -> OwnCodeError:
    """Return the error that names what crashed, with which error and where."""
    where = f"{place.filename}, line {place.lineno}"
    return OwnCodeError(f"{what} crashed with {in_one_line(error)} ({where})")
