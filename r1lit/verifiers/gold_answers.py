"""A check of the gold answers of data, with the verifiers that decide about them.

A wrongly mapped column of gold answers is an error at the start, not rewards of 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1lit.problems import Problem
from r1lit.verifiers.base import Grader
from r1lit.waiting import warned_if_slow

SAMPLE = 8
SLOW_S = 5.0

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


def check_gold_answers(grader: Grader, problems: Sequence[Problem], key: str) -> None:
    """Check the verifiers of problems, and that some gold answer of every source is found right.

    A few evenly spaced ones are tried. Single failures are accepted as noise in the data; if all
    fail, the wrong text was taken for the answer.

    Args:
        grader: decides.
        problems: of one split; those whose verifier does not go by the answer are left out.
        key: names them in the error, as ``data.train``.

    Raises:
        ImportError: if a package that a verifier needs is missing.
        ValueError: naming the source, an answer, and what may be wrong; or the verifier, if it
            comes to no verdict at all.
    """
    for problem in {problem.verifier: problem for problem in problems}.values():
        grader.verifier_of(problem).check()
    by_source: dict[str, list[Problem]] = {}
    for problem in problems:
        if grader.verifier_of(problem).needs_answer:
            by_source.setdefault(problem.source, []).append(problem)
    for source, own in by_source.items():
        sample = own[:: -(-len(own) // SAMPLE)]
        texts = [f"<answer> {grader.verifier_of(p).gold_text(p)} </answer>" for p in sample]
        slow = (
            f"{key}: the verifier {sample[0].verifier!r} has not decided about {len(sample)} gold"
            f" answers in {SLOW_S:g} s; each response will wait for it as long (Ctrl-C ends this;"
            " docs/TROUBLESHOOTING.md#verifier_timeout)"
        )
        with warned_if_slow(SLOW_S, slow):
            verdicts = grader.verdicts(texts, sample)
        fine = [
            verdict.status == "right" and num_words(p.answer) <= grader.verifier_of(p).max_words
            for verdict, p in zip(verdicts, sample, strict=True)
        ]
        name = sample[0].environment
        hint = f" If the environment {name!r} gives verdicts, set verifier: none." if name else ""
        undecided = [verdict for verdict in verdicts if verdict.status in ("error", "timeout")]
        if len(undecided) == len(sample):
            raise ValueError(
                f"{key}: the verifier {sample[0].verifier!r} decided about none of {len(sample)}"
                f" gold answers of source {source!r}: {undecided[0].status}"
                f" ({_short(undecided[0].reason, 120)}).{hint}"
            )
        if not any(fine):
            problem = sample[0]
            raise ValueError(
                f"{key}: none of {len(sample)} gold answers of source {source!r} looks like an"
                f" answer to the verifier {problem.verifier!r}; that of {problem.uid!r} is"
                f" {_short(problem.answer)!r} ({_short(verdicts[0].reason, 120)}). Does answer"
                f" name the right column, and does the answer need an answer_pattern to be"
                f" found in it?{hint}"
            )


def check_rewarded(grader: Grader, problems: Sequence[Problem], key: str) -> None:
    """Check that no verifier is known to pay wrong answers to problems that are trained on.

    Args:
        grader: decides.
        problems: that a policy is rewarded for.
        key: names them in the error, as ``data.train``.

    Raises:
        ValueError: naming the key and what is paid.
    """
    by_verifier: dict[str, list[Problem]] = {}
    for problem in problems:
        by_verifier.setdefault(problem.verifier, []).append(problem)
    for own in by_verifier.values():
        try:
            grader.verifier_of(own[0]).check_training(own)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error


def num_words(text: str) -> int:
    r"""Count words; LaTeX's commands and single letters are none.

    >>> num_words(r"\frac{1}{2} \text{ of } x"), num_words("So 4 are left.")
    (1, 3)
    """
    return len(_WORD.findall(text))


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[:length] + "…"
