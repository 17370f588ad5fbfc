"""Responses that repeat themselves, shrink, grow, or become noise."""

from __future__ import annotations

import re
import statistics

from r1lit.doctor.rule import ACCURACY, Evidence
from r1lit.doctor.run import Run
from r1lit.files import Record
from r1lit.metrics.words import repeated_share


def collapse(run: Run) -> Evidence:
    """See entropy that falls far while problems remain unsolved, or further than accuracy explains.

    Entropy falls in healthy runs too, as accuracy rises.
    """
    key, better = "train/entropy", run.end(ACCURACY) - run.start(ACCURACY)
    share = run.end(key) / max(run.start(key), 1e-9)
    if run.end(ACCURACY) > 0.9 or not share < (0.4 if better < 0.1 else 0.15):
        return None
    return f"{run.moved(key)}, and {run.moved(ACCURACY)}"


def incoherent(run: Run) -> Evidence:
    """See entropy that rises to more than twice what it was."""
    key = "train/entropy"
    return run.moved(key) if run.end(key) > max(2.5 * run.start(key), 0.5) else None


def shorter(run: Run) -> Evidence:
    """See responses that shrink without becoming better."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY)
    if run.end(key) < 0.6 * run.start(key) and better < 0.05:
        return f"{run.moved(key)}, and {run.moved(ACCURACY)}"
    return None


def padded(run: Run) -> Evidence:
    """See responses that grow without becoming better, as far as so many can show."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY) + run.standard_error(ACCURACY)
    if run.end(key) > 1.5 * run.start(key) and better < 0.05:
        return f"{run.moved(key)}, and {run.moved(ACCURACY)}"
    return None


def words_of(text: str) -> list[str]:
    """Return the words and signs of a text."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


_ONE_WORD = re.compile(r"\b([^\W\d_]{2,})(?:\W+\1\b){4}", re.IGNORECASE)
"""A word five times running."""


def goes_in_circles(line: Record) -> bool:
    """Return whether a response says a word five times over, or repeats four tenths of its text."""
    text = line["response"]
    if _ONE_WORD.search(text):
        return True
    return len(words_of(text)) >= 20 and repeated_share(text, 4) > 0.4


def repetition(run: Run) -> Evidence:
    """See responses that repeat themselves, in any iteration recorded."""
    for lines in run.by_iteration:
        at = f"responses of iteration {lines[0].get('iteration')}"
        words = [found[1] for x in lines if (found := _ONE_WORD.search(x["response"]))]
        if len(words) >= max(2, 0.1 * len(lines)):
            return f"{len(words)} of {len(lines)} {at} say {words[0]!r} or the like five times over"
        long = [x["response"] for x in lines if len(words_of(x["response"])) >= 20]
        share = statistics.fmean([repeated_share(text, 4) for text in long] or [0.0])
        if len(long) >= 8 and share > 0.4:
            return f"{share:.0%} of the four-word runs in {len(long)} long {at} are repeats"
    return None


_ONE_SIGN = re.compile(r"([^\s\w]|[^\s]{1,4}?)(?:\s?\1){11,}")
"""A sign, or up to four characters, twelve times running."""


def is_one_sign(line: Record) -> bool:
    """Return whether one sign, again and again, is at least half of a response."""
    text = line["response"].strip()
    found = max((len(x[0]) for x in _ONE_SIGN.finditer(text[-4000:])), default=0)
    return found >= 12 and found >= 0.5 * len(text[-4000:])


def one_sign(run: Run) -> Evidence:
    """See responses such as "!!!!!!!!", in any iteration recorded."""
    for lines in run.by_iteration:
        found = [x["response"].strip() for x in lines if is_one_sign(x)]
        if len(found) >= max(2, 0.05 * len(lines)):
            at = f"responses of iteration {lines[0].get('iteration')}"
            return f"{len(found)} of {len(lines)} {at} are like {found[0][-12:]!r}"
    return None
