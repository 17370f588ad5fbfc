"""Ends of commands: bad input, or a disk that refuses, in one line; and their help."""

from __future__ import annotations

import errno
import os
import signal
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from r1lit.errors import message_of
from r1lit.user_code import OwnCodeError, crash_error

_GO_ON = (
    "then the same command with --ckpt_path last continues, or begins again without a checkpoint"
)


_RIGHTS = "name a folder that you may write to, such as --run runs/mine"


_IN_THE_WAY = "a file stands where a folder is to be; move it away"


REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some, {_GO_ON}"),
    errno.EFBIG: f"raise the limit (ulimit -f), {_GO_ON}",
    errno.EIO: "the disk failed; continue elsewhere, from a copy of the last checkpoint, if any",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _RIGHTS),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), _IN_THE_WAY),
    errno.EISDIR: "a folder stands where a file is to be; move it away",
}
"""Remedies by the number of the system's error."""


def as_help(docstring: str | None) -> str | None:
    """Return a module's docstring as its command's help has it: without the marks of code.

    >>> as_help("``r1lit chat``: talk to a run.")
    'r1lit chat: talk to a run.'
    """
    return docstring and docstring.replace("``", "")


@contextmanager
def tracing_user_code() -> Iterator[None]:
    """Name a crash in a user's own class, such as a callback, that something else has called.

    Raises:
        OwnCodeError: in the place of an error that no code of r1lit or of a library has raised.
    """
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:
        for place in reversed(traceback.extract_tb(error.__traceback__)):
            if _is_of("r1lit", place.filename) or _is_of("lightning", place.filename):
                break
            if not _is_of_a_library(place.filename):
                raise crash_error(place.name, error, place) from error
        raise


def _is_of(package: str, file: str) -> bool:
    """Return whether a file is of a package that was imported; any folder may have its name."""
    folders = getattr(sys.modules.get(package), "__path__", ())
    return any(file.startswith(folder + os.sep) for folder in folders)


def _is_of_a_library(file: str) -> bool:
    """Return whether a file is of Python itself or of an installed package."""
    installed = {"site-packages", "dist-packages"} & {*Path(file).parts}
    return bool(installed) or file.startswith((sysconfig.get_path("stdlib") + os.sep, "<frozen "))


def run_script(name: str, main: Callable[[], object]) -> None:
    """Run ``main``: bad input, or a disk that refuses, ends in one line and exit status 2.

    Ctrl-C ends in one line, or in a run's message about its folder, and 130; SIGTERM in 143.
    A reader of the output that has gone, such as ``head``, ends it without a word and with 141.
    Below the line about a crash in the user's own code stands its traceback. With
    ``R1LIT_TRACEBACK`` in the environment every error ends in the whole traceback. A warning is one
    line too.
    """
    shown = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{name}: warning: {message}\n"
    try:
        with tracing_user_code():
            run_and_flush(main)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as stop:  # Lightning takes Ctrl-C, and exits with 1; with 0 on SIGTERM
        if isinstance(stop.__context__, KeyboardInterrupt):
            sys.exit(130)
        if type(stop).__name__ == "SIGTERMException":
            sys.exit(128 + signal.SIGTERM)
        raise
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError) and nobody_reads():
            sys.exit(141)  # as of SIGPIPE, which Windows has not
        message = str(error)
        if isinstance(error, OSError):
            if error.errno not in REMEDIES:
                raise
            where = f"{error.filename}: " if error.filename else ""
            message = f"{where}{error.strerror}; {REMEDIES[error.errno]}"
        if os.environ.get("R1LIT_TRACEBACK"):
            raise
        print(f"{name}: error: {message}", file=sys.stderr)
        if isinstance(error, OwnCodeError):
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                print(f"  {line}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = shown
        end_output()


def run_and_flush(main: Callable[[], object]) -> None:
    """Run ``main``, and write the rest of its output: if that fails, it is an error like another.

    After an error of its own nothing is written, since that error is the one to report.
    """
    try:
        main()
    except SystemExit:
        print(end="", flush=True)
        raise
    print(end="", flush=True)


def end_output() -> None:
    """Write the rest of the output; where that fails, Python shall not say so as it ends."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def nobody_reads() -> bool:
    """Return whether standard output's reader has gone; writes an empty line to find out."""
    try:
        print(flush=True)
    except BrokenPipeError:
        return True
    return False


def _of_other_types(error: BaseException) -> list[ValueError]:
    """Return the errors of a union's types but the first, the only one that the parser chains."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    tried = frames[-1].f_locals.get("exceptions", []) if frames else []
    return [each for each in tried[1:] if isinstance(each, ValueError) and each.__traceback__]


def root_fault(error: BaseException) -> ValueError:
    """Return the ValueError of r1lit's or the user's own code that a library's error wraps.

    Without such an error, its text is the parser's about the innermost class that cannot be made.
    """
    inner = error
    wrapped: BaseException | None = error
    while wrapped is not None:
        places = traceback.extract_tb(wrapped.__traceback__)
        file = places[-1].filename if places else ""
        is_own = _is_of("r1lit", file) or not _is_of_a_library(file)
        if isinstance(wrapped, ValueError) and is_own:
            return wrapped
        if _is_of("jsonargparse", file):
            inner = wrapped
            for other in _of_other_types(wrapped):
                if _is_of("r1lit", traceback.extract_tb(other.__traceback__)[-1].filename):
                    return root_fault(other)
        wrapped = wrapped.__cause__ or wrapped.__context__
    return ValueError(message_of(inner))
