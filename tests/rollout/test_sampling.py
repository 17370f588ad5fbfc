"""One uniform number, one token: temperature, top-k, top-p."""

from __future__ import annotations

import pytest
import torch

from r1lit.rollout import Sampling
from r1lit.rollout.next_token import BLOCK, sample_tokens
from r1lit.rollout.sampling import SamplingNumbers

PROBABILITY_V = torch.tensor([0.05, 0.4, 0.15, 0.1, 0.3])
GRID = torch.linspace(0, 1, 2001, dtype=torch.float64)[:-1]


def shares(probability_V: torch.Tensor, **sampling) -> torch.Tensor:
    """How often each token is drawn, over evenly spaced uniform numbers."""
    logits_BV = probability_V.log().repeat(len(GRID), 1)
    token_B, _ = sample_tokens(logits_BV, GRID, Sampling(**sampling))
    return torch.bincount(token_B, minlength=len(probability_V)) / len(GRID)


def test_temperature_1_draws_the_softmax():
    assert torch.allclose(shares(PROBABILITY_V), PROBABILITY_V, atol=1e-3)


def test_temperature_2_takes_square_roots():
    expected_V = PROBABILITY_V.sqrt() / PROBABILITY_V.sqrt().sum()
    assert torch.allclose(shares(PROBABILITY_V, temperature=2.0), expected_V, atol=1e-3)


def test_temperature_0_takes_the_likeliest_whatever_the_number():
    assert shares(PROBABILITY_V, temperature=0.0).tolist() == [0, 1, 0, 0, 0]


def test_top_k_keeps_the_k_likeliest():
    drawn_V = shares(PROBABILITY_V, top_k=2)
    assert torch.allclose(drawn_V, torch.tensor([0, 4 / 7, 0, 0, 3 / 7]), atol=1e-3)
    assert (drawn_V > 0).tolist() == [False, True, False, False, True]
    assert torch.allclose(shares(PROBABILITY_V, top_k=99), PROBABILITY_V, atol=1e-3)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, [1]), (0.41, [1, 4]), (0.71, [1, 2, 4]), (0.86, [1, 2, 3, 4])]
)
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    assert shares(PROBABILITY_V, top_p=top_p).nonzero().flatten().tolist() == kept


def test_a_tiny_top_p_keeps_the_likeliest():
    assert shares(PROBABILITY_V, top_p=1e-9).tolist() == [0, 1, 0, 0, 0]


def test_top_p_applies_after_temperature_and_top_k():
    # at temperature 1/2 the likeliest has 0.16 / 0.285 = 0.56
    assert shares(PROBABILITY_V, temperature=0.5, top_p=0.5).tolist() == [0, 1, 0, 0, 0]
    assert (shares(PROBABILITY_V, top_p=0.5) > 0).sum() == 2
    # of the two likeliest, the first has 4/7
    assert shares(PROBABILITY_V, top_k=2, top_p=0.55).tolist() == [0, 1, 0, 0, 0]


def test_logp_is_that_of_the_whole_distribution():
    logits_BV = PROBABILITY_V.log().repeat(2, 1)
    uniform_B = torch.tensor([0.0, 0.99], dtype=torch.float64)
    token_B, logp_B = sample_tokens(logits_BV, uniform_B, Sampling(top_k=2, top_p=0.9))
    assert torch.allclose(logp_B, PROBABILITY_V[token_B].log())
    _, logp_B = sample_tokens(logits_BV, uniform_B, Sampling(temperature=0.0))
    assert torch.allclose(logp_B, torch.tensor([0.4, 0.4]).log())


def test_a_token_of_no_probability_is_never_drawn():
    logits_BV = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]]).repeat(3, 1)
    uniform_B = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample_tokens(logits_BV, uniform_B, Sampling())[0].tolist() == [1, 3, 3]


def test_many_tokens_do_not_blur_the_last():
    # float32 sums of 100,000 probabilities would be off by more than one of them
    size = 100_000
    logits_BV = torch.zeros(3, size)
    uniform_B = torch.tensor([0.5 / size, 0.5 + 0.5 / size, 1 - 0.5 / size], dtype=torch.float64)
    token_B, _ = sample_tokens(logits_BV, uniform_B, Sampling())
    assert token_B.tolist() == [0, size // 2, size - 1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": -0.1}, "temperature: -0.1"),
        ({"top_p": 0.0}, "top_p: 0.0"),
        ({"top_p": 1.1}, "top_p: 1.1"),
        ({"top_k": -1}, "top_k: -1"),
        ({"max_tokens": 0}, "max_tokens: 0"),
        ({"stop": ""}, "stop: ''"),
        ({"stop": ["a", ""]}, "stop: "),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**setting)


def test_uniform_numbers_depend_on_the_sample_alone():
    cpu = torch.device("cpu")
    both = SamplingNumbers(1, 2, [8, 3], cpu)
    alone = SamplingNumbers(1, 2, [3], cpu)
    for token in (0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 7):
        numbers_B = both.at(token, torch.tensor([0, 1]))
        assert numbers_B[1] == alone.at(token, torch.tensor([0]))[0]
        assert numbers_B[0] != numbers_B[1]
        assert numbers_B.dtype == torch.float64 and (numbers_B >= 0).all() and (numbers_B < 1).all()


def test_uniform_numbers_do_not_repeat_from_block_to_block():
    uniforms = SamplingNumbers(1, 2, [0], torch.device("cpu"))
    row = torch.tensor([0])
    first = [float(uniforms.at(t, row)) for t in range(BLOCK)]
    second = [float(uniforms.at(BLOCK + t, row)) for t in range(BLOCK)]
    assert len({*first, *second}) == 2 * BLOCK
    assert abs(sum(first + second) / (2 * BLOCK) - 0.5) < 5 * (1 / 12 / (2 * BLOCK)) ** 0.5


def test_one_text_may_stop_a_response():
    assert Sampling(stop="###").stop == Sampling(stop=["###"]).stop == ("###",)
