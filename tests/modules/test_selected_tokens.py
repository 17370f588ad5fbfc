"""The covariance's means of several ranks, which exchange a histogram."""

from __future__ import annotations

import math

import pytest
import torch

from r1lit.modules.covariance_histogram import metrics_by_histogram
from r1lit.modules.selected_tokens import TOP
from r1lit.objectives.terms import covariance_N, num_selected


@pytest.mark.parametrize("num_tokens", [1, 7, 1000, 50_000])
def test_the_histogram_gives_the_means_of_the_highest(num_tokens: int) -> None:
    random = torch.Generator().manual_seed(num_tokens)
    logp_N = -torch.rand(num_tokens, generator=random) * 5
    advantage_N = torch.randn(num_tokens, generator=random)
    found = metrics_by_histogram(torch.stack([logp_N, advantage_N]), TOP)
    cov_N = covariance_N(logp_N.double(), advantage_N.double()).sort(descending=True).values
    width = float(cov_N[0] - cov_N[-1]) / 4096
    assert found["train/covariance/mean"] == pytest.approx(float(cov_N.mean()), abs=1e-9)
    for name, share in TOP.items():
        wanted = float(cov_N[: num_selected(share, num_tokens)].mean())
        assert found[f"train/covariance/{name}"] == pytest.approx(wanted, abs=width + 1e-9)


def test_no_token_and_equal_tokens() -> None:
    assert all(math.isnan(value) for value in metrics_by_histogram(torch.zeros(2, 0), TOP).values())
    assert set(metrics_by_histogram(torch.ones(2, 5), TOP).values()) == {0.0}
