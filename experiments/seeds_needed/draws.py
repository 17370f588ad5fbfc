"""Shares of wrong winners: few seeds drawn of many, compared with the mean of all.

D draws   R resamples   S seeds   n seeds a side   2 sides: control, change
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from r1lit.metrics.seeds import Shift, paired_p_values, paired_shift, welch_p_values, welch_shift
from r1lit.seeding import generator

NUM_DRAWS = 10_000
NUM_RESAMPLES = 1000
"""Of the seeds, for an interval; as many draws of each."""
BLOCK = 50
"""Resamples at a time: bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A comparison of two arms over seeds, and how few of the seeds would be compared.

    Args:
        scores_2S: the arms' final scores, the control's first; a column is a seed.
        is_paired: whether both sides of a small study have the same seeds. If not, the change has
            other seeds than the control.
    """

    scores_2S: np.ndarray
    is_paired: bool

    @property
    def num_seeds(self) -> int:
        """Seeds that both arms have."""
        return int(self.scores_2S.shape[1])

    @cached_property
    def shift(self) -> Shift:
        """The difference over all seeds, as the design compares them."""
        control_S, change_S = self.scores_2S.tolist()
        if self.is_paired:
            return paired_shift([b - a for a, b in zip(control_S, change_S, strict=True)])
        return welch_shift(control_S, change_S)

    @property
    def sd(self) -> float:
        """Standard deviation of a difference between one seed a side."""
        return math.sqrt(sum(self.shift.variances))

    def normal_share(self, n: int) -> float:
        """Return the share of wrong winners if differences were normal with this mean and sd."""
        return float(
            _normal(self.scores_2S[:, None], self.is_paired, n, np.sign(self.shift.mean))[0]
        )

    def seeds_for_sign(self, wrong: float = 0.05) -> int:
        """Return the seeds a side whose mean has the wrong sign at most so often, if normal.

        Raises:
            ValueError: if the arms are equal, so that there is no winner.
        """
        if not self.shift.mean:
            raise ValueError("scores: both arms have the same mean, so there is no winner")
        return max(1, math.ceil((float(stats.norm.isf(wrong)) * self.sd / self.shift.mean) ** 2))


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Of the studies of n seeds a side: the shares that err and claim.

    ``wrong`` have the other sign than the mean of all seeds (a tie counts half), with its 95 %
    interval; ``claimed`` have p below 0.05 and ``claimed_wrong`` of these the other sign; None
    where there is no test or no claim.
    """

    wrong: float
    low: float
    high: float
    claimed: float | None
    claimed_wrong: float | None


def shares(design: Design, n: int) -> Shares:
    """Return how often studies of n of the seeds err.

    With one seed a side all studies are counted, else ``NUM_DRAWS`` without replacement. Such a
    share estimates that of studies with new seeds without bias, as long as the sign of all seeds'
    mean is right (a U statistic).

    Raises:
        ValueError: if n is not between 1 and half of the seeds. More would nearly be all of them,
            and agree with their mean for that reason.
    """
    if not 1 <= n <= design.num_seeds // 2:
        raise ValueError(f"n: {n} is not between 1 and half of the {design.num_seeds} seeds")
    control_Dn, change_Dn = _drawn(design, n)
    sign = float(np.sign(design.shift.mean))
    gain_D = (change_Dn - control_Dn).mean(axis=1)
    wrong = float(_wrong(gain_D, sign))
    low, high = interval(design, n)
    claimed = claimed_wrong = None
    if n > 1:
        p_D = (
            paired_p_values(change_Dn - control_Dn)
            if design.is_paired
            else welch_p_values(control_Dn, change_Dn)
        )
        is_claim_D = p_D < 0.05
        claimed = float(is_claim_D.mean())
        claimed_wrong = float(_wrong(gain_D[is_claim_D], sign)) if claimed else None
    return Shares(
        wrong=wrong,
        low=min(low, wrong),
        high=max(high, wrong),
        claimed=claimed,
        claimed_wrong=claimed_wrong,
    )


def interval(design: Design, n: int, num_resamples: int = NUM_RESAMPLES) -> tuple[float, float]:
    """Return the 95 % interval of the share of wrong winners, over seeds.

    Two percentile bootstraps over the same resampled seeds, and the wider bound of the two: of the
    share itself (draws with replacement, so that they are studies of new seeds), and of the
    normal's share. Alone the first is too narrow where a wrong winner is rare and none was seen;
    the second where differences are not normal.
    """
    random = generator(0, "seeds needed", design.num_seeds, n)
    num = design.num_seeds
    resampled_RS = random.integers(num, size=(num_resamples, num))
    control_Dn = random.integers(num, size=(num_resamples, n))
    change_Dn = control_Dn if design.is_paired else random.integers(num, size=(num_resamples, n))
    sign = float(np.sign(design.shift.mean))
    found: list[np.ndarray] = []
    for start in range(0, num_resamples, BLOCK):
        own_2RS = design.scores_2S[:, resampled_RS[start : start + BLOCK]]
        gain_RD = (own_2RS[1][:, change_Dn] - own_2RS[0][:, control_Dn]).mean(axis=2)
        counted_R = _wrong(gain_RD, sign)
        found.append(np.stack([counted_R, _normal(own_2RS, design.is_paired, n, sign)]))
    low_2, high_2 = np.quantile(np.concatenate(found, axis=1), [0.025, 0.975], axis=1)
    return float(low_2.min()), float(high_2.max())


def _drawn(design: Design, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the control's and the change's scores in studies of n seeds a side."""
    control_S, change_S = design.scores_2S
    num = design.num_seeds
    if n == 1:
        first, second = np.divmod(np.arange(num * num), num)
        kept = first == second if design.is_paired else first != second
        return control_S[first[kept], None], change_S[second[kept], None]
    order_DS = np.argsort(generator(0, "seeds needed").random((NUM_DRAWS, num)), axis=1)
    other = slice(0, n) if design.is_paired else slice(n, 2 * n)
    return control_S[order_DS[:, :n]], change_S[order_DS[:, other]]


def _wrong(gain: np.ndarray, sign: float) -> np.ndarray:
    """Return the share of gains, over the last axis, with the other sign; a tie counts half."""
    return np.asarray((0.5 - 0.5 * np.sign(gain) * sign).mean(axis=-1))


def _normal(scores_2RS: np.ndarray, is_paired: bool, n: int, sign: float) -> np.ndarray:
    """Return the normal's share of wrong winners of each resample, relative to ``sign``."""
    gain_RS = scores_2RS[1] - scores_2RS[0]
    variance_R = (
        gain_RS.var(axis=1, ddof=1) if is_paired else scores_2RS.var(axis=2, ddof=1).sum(axis=0)
    )
    mean_R = gain_RS.mean(axis=1) * sign
    with np.errstate(divide="ignore", invalid="ignore"):
        z_R = np.where(mean_R == 0, 0.0, mean_R * math.sqrt(n) / np.sqrt(variance_R))
    return np.asarray(stats.norm.sf(z_R))
