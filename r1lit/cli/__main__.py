"""``python -m r1lit.cli``: the console script ``r1lit``."""

from r1lit.cli import run

run()
