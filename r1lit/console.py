"""Console scripts."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

from r1lit.own_code import OwnCodeError

_GO_ON = "then the same command with --ckpt_path last goes on, or begins again without a checkpoint"
_ROOM = f"free some, {_GO_ON}"
_RIGHTS = "name a folder that you may write to, such as --run runs/mine"
_IN_THE_WAY = "a file stands where a folder is to be; move it away"
REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: f"raise the limit (ulimit -f), {_GO_ON}",
    errno.EIO: "the disk failed; go on elsewhere, from a copy of the last checkpoint, if any",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: "a folder stands where a file is to be; move it away",
}
"""What to do about an error of the system."""


def run(name: str, main: Callable[[], object]) -> None:
    """Run ``main``: bad input, or a disk that refuses, ends in one line and exit status 2.

    Ctrl-C ends in one line, or in a run's message about its folder, and 130; SIGTERM in 143.
    Below the line about a crash in the user's own code stands its traceback. With
    ``R1LIT_TRACEBACK`` in the environment every error ends in the whole traceback. A warning is one
    line too.
    """
    shown = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{name}: warning: {message}\n"
    try:
        main()
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
        if isinstance(error, OSError) and error.errno not in REMEDIES:
            raise
        if os.environ.get("R1LIT_TRACEBACK"):
            raise
        message = of_the_disk(error) if isinstance(error, OSError) else str(error)
        print(f"{name}: error: {message}", file=sys.stderr)
        if isinstance(error, OwnCodeError):
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                print(f"  {line}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = shown


def of_the_disk(error: OSError) -> str:
    """Say which file it is about, what the system says, and what to do.

    >>> of_the_disk(OSError(errno.EACCES, "Permission denied", "/a"))
    '/a: Permission denied; name a folder that you may write to, such as --run runs/mine'
    """
    assert error.errno is not None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {REMEDIES[error.errno]}"
