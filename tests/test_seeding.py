from __future__ import annotations

import numpy as np
import pytest
import torch

from r1lit.seeding import generator, permutation


def test_a_stream_is_its_name():
    assert generator(1, "a", 2).random(5).tolist() == generator(1, "a", 2).random(5).tolist()


def test_streams_stay_what_they_are():
    # a change here changes every corpus, split and rollout ever made
    assert generator(0, "page", 0).integers(0, 1000, 4).tolist() == [674, 708, 622, 146]
    assert permutation(6, 0, "order") == [4, 3, 2, 0, 1, 5]


@pytest.mark.parametrize(
    "name",
    [(2, "a", 2), (1, "b", 2), (1, "a", 3), (1, "a"), (1, "a", 2, 0), (1, "a", "2"), (1, 2, "a")],
)  # fmt: skip
def test_another_name_is_another_stream(name):
    assert generator(*name).random() != generator(1, "a", 2).random()


def test_names_do_not_run_together():
    assert generator(1, 23).random() != generator(12, 3).random()
    assert generator(0, "a", "b").random() != generator(0, "ab").random()


@pytest.mark.parametrize("three", [np.int64(3), np.int32(3), torch.tensor(3)])
def test_a_number_is_a_number_whatever_holds_it(three):
    assert generator(three, "a", three).random() == generator(3, "a", 3).random()


def test_what_is_no_counter_is_refused():
    with pytest.raises(TypeError):
        generator(0, 1.5)  # type: ignore[arg-type]


def test_neighbouring_streams_are_uncorrelated():
    draws = np.stack([generator(0, "sample", i).random(400) for i in range(60)])
    off_diagonal = np.corrcoef(draws)[~np.eye(60, dtype=bool)]
    assert abs(off_diagonal).max() < 5 / 400**0.5
    first = draws[:, 0]
    assert len(set(first)) == 60 and 0.3 < first.mean() < 0.7


def test_a_permutation_holds_everything_once():
    order = permutation(100, 4, "x")
    assert sorted(order) == list(range(100)) and order != list(range(100))
    assert order == permutation(100, 4, "x") != permutation(100, 5, "x")
