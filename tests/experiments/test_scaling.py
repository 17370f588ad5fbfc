"""The sigmoid of reward against compute finds what it was made of, and predicts held-out tails."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.scaling.fit import Sigmoid, extrapolate, fit_sigmoid

KNOWN = [
    Sigmoid(start=0.2, asymptote=0.9, exponent=1.5, midpoint=40.0),
    Sigmoid(start=0.05, asymptote=0.45, exponent=3.0, midpoint=60.0),
    Sigmoid(start=0.3, asymptote=0.8, exponent=0.7, midpoint=15.0),
]


def curve(known: Sigmoid, noise: float = 0.0, last: int = 400) -> list[tuple[float, float]]:
    rng = np.random.default_rng(0)
    return [(0.0, known.start)] + [
        (float(c), known.at(c) + noise * float(rng.standard_normal())) for c in range(10, last, 10)
    ]


@pytest.mark.parametrize("known", KNOWN)
def test_known_parameters_are_found(known: Sigmoid) -> None:
    found = fit_sigmoid(curve(known))
    for key in ("asymptote", "exponent", "midpoint"):
        assert getattr(found, key) == pytest.approx(getattr(known, key), rel=1e-3)
    noisy = fit_sigmoid(curve(known, noise=0.01))
    assert noisy.asymptote == pytest.approx(known.asymptote, abs=0.03)
    assert noisy.midpoint == pytest.approx(known.midpoint, rel=0.2)


def test_the_tail_is_predicted_from_the_beginning_alone() -> None:
    fitted, distance = extrapolate(curve(KNOWN[0]), 0.5)
    assert distance < 1e-4 and fitted.asymptote == pytest.approx(0.9, abs=1e-3)
    # what comes later cannot change the fit, and what departs from it is seen
    bent = [(c, r - 0.1 * (c > 195)) for c, r in curve(KNOWN[0])]
    again, distance = extrapolate(bent, 0.5)
    assert again == fitted and distance == pytest.approx(0.1, abs=1e-3)
    with pytest.raises(ValueError, match="share: 1 leaves no evaluation to predict"):
        extrapolate(curve(KNOWN[0]), 1.0)
    with pytest.raises(ValueError, match="a fit needs the base at 0 and at least four more"):
        fit_sigmoid(curve(KNOWN[0], last=40))
