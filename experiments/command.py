"""How an experiment's command ends: bad input and Ctrl-C are a line each, and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def reported(name: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Return a decorator of what returns an exit status: 2 for bad input, 130 for Ctrl-C.

    Args:
        name: begins the line on stderr. With ``R1LIT_TRACEBACK`` in the environment an error ends
            in its traceback.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                return main(*args, **kwargs)
            except (ValueError, OSError) as error:
                if os.environ.get("R1LIT_TRACEBACK"):
                    raise
                print(f"{name}: error: {error}", file=sys.stderr)
                return 2
            except KeyboardInterrupt:
                print(f"{name}: stopped; the same command goes on from here", file=sys.stderr)
                return 130

        return run

    return decorate
