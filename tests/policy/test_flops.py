from __future__ import annotations

import pytest

from benchmarks.suite_memory import slope
from experiments.architectures import model_config
from r1lit.policy.flops import Shape, decode_seconds, training_flops, update_flops

SHAPE = Shape(num_parameters=1000, num_layers=2, attention_size=8, kv_size=4)


def test_training_flops_by_hand():
    # 6 x 1000 x (3 + 5) tokens, and 6 x 2 layers x 8 x (9 + 25)
    assert training_flops(SHAPE, [3, 5]) == 48_000 + 3264


def test_two_documents_cost_less_than_one_of_their_length():
    assert training_flops(SHAPE, [4, 4]) < training_flops(SHAPE, [8])


def test_a_groups_prompt_counts_once():
    # 10 + 2 + 3 tokens; attention as of rows of 12 and 13, the first 10 x 10 of one left out
    expected = 6 * 1000 * 15 + 6 * 2 * 8 * (12**2 + 13**2 - 10**2)
    assert update_flops(SHAPE, [10], [2, 3]) == expected
    assert update_flops(SHAPE, [10, 4], [2, 3]) == training_flops(SHAPE, [12, 7])


def test_decoding_by_hand_bound_by_memory():
    # prompt of 10, two rows of 2 and 3 tokens; a prefill of 2 x 1000 x 10 FLOP takes no time here
    # step 1: both alive, context 11 + 11; step 2: one alive, context 12
    # bytes a step: 2 x (1000 + 2 layers x 2 x 4 x context)
    num_bytes = 2 * (1000 + 16 * 22) + 2 * (1000 + 16 * 12)
    seconds = decode_seconds(
        SHAPE, [10], [2, 3], bytes_per_number=2, bytes_per_second=100.0, flops_per_second=1e30
    )
    assert seconds == pytest.approx(num_bytes / 100)


def test_decoding_by_hand_bound_by_arithmetic():
    flops = 2 * 1000 * 10 + (2 * 1000 * 2 + 4 * 2 * 8 * 22) + (2 * 1000 + 4 * 2 * 8 * 12)
    seconds = decode_seconds(
        SHAPE, [10], [2, 3], bytes_per_number=2, bytes_per_second=1e30, flops_per_second=100.0
    )
    assert seconds == pytest.approx(flops / 100)


@pytest.mark.parametrize(
    ("name", "millions"), [("135M", 134.5), ("0.5B", 494.0), ("1.5B", 1543.7), ("mini", 2.043)]
)
def test_the_architectures_have_their_size(name, millions):
    assert Shape.of(model_config(name)).num_parameters / 1e6 == pytest.approx(millions, rel=0.02)


def test_slope_of_a_quadratic_is_two():
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
