"""Console scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


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
