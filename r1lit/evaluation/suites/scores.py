"""Scores: the one number of a suite, a pure function of the lines of its ``responses.jsonl``.

A score takes the k responses to each problem by uid and returns its name, value and 95 % interval
over problems; ``value`` is a share unless ``unit`` says otherwise. The report keeps further keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from r1lit.files import Record
from r1lit.metrics import Graded, cons_at_k, mean, share_right, with_error

Score = dict[str, Any]
Groups = Mapping[str, Sequence[Record]]


def pass_at_1(groups: Groups, *, seed: int = 0) -> Score:
    """Return the mean over problems of the share of right responses."""
    shares = [share_right([Graded.read(record) for record in group]) for group in groups.values()]
    return {"name": "pass@1", **with_error(shares, seed=seed)}


def mean_value(groups: Groups, *, seed: int = 0, name: str = "mean value") -> Score:
    """Return the mean over problems of the verdicts' values, for graders that give parts."""
    values = [mean([record["value"] for record in group]) for group in groups.values()]
    return {"name": name, **with_error(values, seed=seed)}


def f1(groups: Groups, *, seed: int = 0) -> Score:
    """Return DROP's F1, the mean of the verdicts' values."""
    return mean_value(groups, seed=seed, name="F1")


def exact_match(groups: Groups, *, seed: int = 0) -> Score:
    """Return pass@1 under the name that the paper uses where an answer's letter is compared."""
    return pass_at_1(groups, seed=seed) | {"name": "EM"}


def subject_mean(groups: Groups, *, seed: int = 0) -> Score:
    """Return the mean over subjects of each subject's accuracy, as C-Eval and CMMLU define theirs.

    The interval resamples problems within subjects.
    """
    by_subject: dict[str, list[float]] = {}
    for group in groups.values():
        share = share_right([Graded.read(record) for record in group])
        by_subject.setdefault(str(group[0]["groups"]["subject"]), []).append(share)
    random = np.random.default_rng(seed)
    resampled = np.mean(
        [
            np.array(shares)[random.integers(len(shares), size=(2000, len(shares)))].mean(1)
            for shares in by_subject.values()
        ],
        axis=0,
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    value = mean([mean(shares) for shares in by_subject.values()])
    return {"name": "EM, mean of subjects", "value": value, "low": float(low), "high": float(high)}


def prompt_strict(groups: Groups, *, seed: int = 0) -> Score:
    """Return pass@1 under IFEval's name for it."""
    return pass_at_1(groups, seed=seed) | {"name": "prompt strict"}


def with_consensus(groups: Groups, *, seed: int = 0) -> Score:
    """Return pass@1, with cons@k of all k responses beside it."""
    graded = [[Graded.read(record) for record in group] for group in groups.values()]
    elected = mean([cons_at_k(group)[-1] for group in graded])
    name = f"pass@1 (cons@{len(graded[0])} {100 * elected:.1f})"
    return {**pass_at_1(groups, seed=seed), "name": name, "consensus": elected}
