"""Which installed packages are visible: all to tests; to programs, two that they may name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

LIBRARIES = ("numpy", "sortedcontainers")
"""What programs may import where it is installed."""


def packages() -> list[str]:
    """Return the folders of this interpreter's installed packages."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if os.path.basename(path) in names and os.path.isdir(path)]


def libraries(sources: Iterable[str]) -> list[str]:
    """Return the folders of the libraries that a program imports, and of no other package."""
    text = "\n".join(sources)
    found = [
        os.path.join(folder, name)
        for library in LIBRARIES
        if re.search(rf"^[ \t]*+(?:import|from)[ \t][^\n]*\b{library}\b", text, re.MULTILINE)
        for folder in packages()
        for name in (library, f"{library}.libs")
    ]
    return [path for path in found if os.path.isdir(path)]
