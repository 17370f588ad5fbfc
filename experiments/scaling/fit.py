"""Sigmoids of reward against compute, as "The Art of Scaling RL Compute" fits them (2510.13786).

    R(C) = R_0 + (A - R_0) / (1 + (C_mid / C)^B)    (its Eq. 1)

R_0 is the base's reward, measured and not fitted; A the asymptote, the most that the recipe comes
to; C_mid the compute of half of the way there, and B how steep the way is.

Worked example, R_0 = 0.2, A = 0.8, C_mid = 4, B = 2: R(4) = 0.5, and
R(8) = 0.2 + 0.6 / (1 + 1/4) = 0.68.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit

ASYMPTOTES = (0.4, 0.7, 0.95)
EXPONENTS = (0.2, 10.0)
"""The least and the greatest that is tried."""


@dataclass(frozen=True, kw_only=True)
class Sigmoid:
    """A recipe's curve; ``midpoint`` is in the unit of compute."""

    start: float
    asymptote: float
    exponent: float
    midpoint: float

    def at(self, compute: float) -> float:
        """Return the reward at a compute of 0 or more.

        >>> known = Sigmoid(start=0.2, asymptote=0.8, exponent=2, midpoint=4)
        >>> [round(known.at(compute), 6) for compute in (0, 4, 8)]
        [0.2, 0.5, 0.68]
        """
        if compute <= 0:
            return self.start
        gain = self.asymptote - self.start
        return self.start + gain / (1 + (self.midpoint / compute) ** self.exponent)


Curve = Sequence[tuple[float, float]]
"""Compute and reward of each evaluation, the first of the base at 0."""


def fit_sigmoid(curve: Curve) -> Sigmoid:
    """Return the sigmoid of least squares, from several beginnings.

    Args:
        curve: rewards of 0 to 1.

    Raises:
        ValueError: if it does not begin at 0, or has fewer than four evaluations more.
    """
    (origin, start), *rest = curve
    if origin != 0 or len(rest) < 4:
        raise ValueError(
            f"curve: {len(curve)} evaluations from a compute of {origin:g}; a fit needs the base at"
            " 0 and at least four more"
        )
    compute, reward = np.array(rest, dtype=float).T
    lowest, highest = np.log(compute[0]) - 3, np.log(compute[-1]) + 3

    def at(compute: np.ndarray, asymptote: float, exponent: float, middle: float) -> np.ndarray:
        gain: np.ndarray = (asymptote - start) / (1 + np.exp(exponent * (middle - np.log(compute))))
        return start + gain

    bounds = ((0.0, EXPONENTS[0], lowest), (1.0, EXPONENTS[1], highest))
    best = (np.inf, np.zeros(3))
    for asymptote, place in product(ASYMPTOTES, (0.1, 0.4, 0.8)):
        guess = (asymptote, 1.5, float(np.log(compute[0] + place * (compute[-1] - compute[0]))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # of the covariance, which is not used
            found, _ = curve_fit(at, compute, reward, guess, bounds=bounds, max_nfev=5000)
        error = float(((at(compute, *found) - reward) ** 2).sum())
        best = min(best, (error, found), key=lambda pair: pair[0])
    asymptote, exponent, middle = map(float, best[1])
    return Sigmoid(
        start=start, asymptote=asymptote, exponent=exponent, midpoint=float(np.exp(middle))
    )


def extrapolate(curve: Curve, share: float) -> tuple[Sigmoid, float]:
    """Fit the evaluations of the first ``share`` of the compute, and try the fit on the others.

    Returns:
        The fit, and the mean distance of the later rewards from it.

    Raises:
        ValueError: if there are none later, or too few for a fit.
    """
    limit = share * curve[-1][0]
    seen, later = [p for p in curve if p[0] <= limit], [p for p in curve if p[0] > limit]
    if not later:
        raise ValueError(f"share: {share:g} leaves no evaluation to predict; give one below 1")
    fitted = fit_sigmoid(seen)
    return fitted, float(np.mean([abs(fitted.at(compute) - reward) for compute, reward in later]))
