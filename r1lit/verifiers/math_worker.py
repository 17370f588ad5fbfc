"""The math worker: a process that decides about mathematical answers until its pipe closes.

It is run as a file. Each ``{"answer": …, "gold": …}`` is answered with ``{"status": …,
"canonical": …, "reason": …}``. math-verify's own time limits are off: the pool has better ones.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from r1lit.verifiers.serving import serve

WARM_UP = ("1", r"\frac{1}{2}", "x^2+1", "(1,2)", "[0,5)", "y=2x", "1,2", r"\sqrt{2}", r"\text{a}")
"""Texts of the commonest forms: the grammar is slow at the first of each."""


def start() -> None:
    """Load math-verify and compile its grammar, before the clock runs."""
    from r1lit.verifiers.math_reading import readings

    # sympy prints integers of any size in its errors and reprs
    sys.set_int_max_str_digits(0)
    logging.disable(logging.CRITICAL)
    for text in WARM_UP:
        readings(text)


def _decide(request: dict[str, str]) -> dict[str, str | None]:
    from r1lit.verifiers.math_decision import decide

    return decide(request["answer"], request["gold"])


if __name__ == "__main__":
    serve(start, _decide)
