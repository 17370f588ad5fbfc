"""The code worker whose programs run on a Piston server; see ``worker``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from r1lit.sandbox import stdin_tests
from r1lit.sandbox.base import Limits
from r1lit.sandbox.piston import PistonSandbox
from r1lit.sandbox.worker import serve


def grade(request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about one program by its output on the server that the request names."""
    return stdin_tests.grade(PistonSandbox(request["piston"]), request, limits)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), {"stdin": grade}, start=lambda: None)
