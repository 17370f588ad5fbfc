"""Plain attention over short rows, beside PyTorch's own in float32."""

from __future__ import annotations

import pytest
import torch

from r1lit.kernels import has_kernels
from r1lit.policy.short_attention import LONGEST, attend_short, suits_short

pytestmark = pytest.mark.skipif(not has_kernels(), reason="no C++ compiler here")
sdpa = torch.nn.functional.scaled_dot_product_attention


def draw(heads: int, key_heads: int, tokens: int, size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, heads, tokens, size), *[(3, key_heads, tokens, size)] * 2]
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    value = value.bfloat16()
    return [x.requires_grad_() for x in (2 * query, key, value)]


@pytest.mark.parametrize("length", [1, 2, 31, 64, 333])
def test_weights_are_those_of_a_masked_softmax(length):
    scores = 40 * torch.randn(3, 2 * length, length, generator=torch.Generator().manual_seed(2))
    later = torch.ones(length, length, dtype=torch.bool).triu(1).repeat(2, 1)
    expected = (0.3 * scores).masked_fill(later, -torch.inf).softmax(-1)
    found = torch.ops.r1lit.causal_softmax(scores, 0.3)
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().max() <= 2.0**-9, "half a unit in the last place"
    assert (found[later.expand_as(found)] == 0).all()
    assert torch.ops.r1lit.causal_softmax(torch.full((1, 2, 2), torch.nan), 1.0).isnan().any()
    with pytest.raises(RuntimeError, match="float32"):
        torch.ops.r1lit.causal_softmax(scores.double(), 0.3)


def test_scores_are_float32_under_autocast_too():
    query, key, value = draw(4, 2, 37, 48)
    with torch.autocast("cpu", torch.bfloat16):
        inside = attend_short(query, key, value, 0.3)
    assert torch.equal(inside, attend_short(query, key, value, 0.3))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("tokens", [1, 2, 37])
def test_values_and_gradients_are_those_of_float32_attention(heads, key_heads, tokens):
    query, key, value = draw(heads, key_heads, tokens, size=16)
    out = attend_short(query, key, value, 0.3)
    expected = sdpa(query, key, value.float(), is_causal=True, scale=0.3, enable_gqa=True)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected.transpose(1, 2), rtol=0.02, atol=0.02)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(out, (query, key, value), upstream.bfloat16())
    wanted = torch.autograd.grad(expected, (query, key, value), upstream.transpose(1, 2))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        error = (mine.float() - theirs.float()).norm() / theirs.float().norm().clamp(min=1e-6)
        assert error < 0.02 or (mine.float() - theirs.float()).abs().max() < 1e-3


def test_no_token_sees_a_later_one():
    query, key, value = (x.detach() for x in draw(4, 2, 20, 8))
    before = attend_short(query, key, value, 0.3)
    key[:, :, 12:], value[:, :, 12:] = 7.0, -3.0
    after = attend_short(query, key, value, 0.3)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 12:], after[:, 12:])


def test_only_short_rows_in_bfloat16_without_dropout():
    query, _, value = draw(4, 4, 2, 8)
    assert suits_short(query, value, LONGEST, 0.0)
    assert not suits_short(query, value, LONGEST + 1, 0.0)
    assert not suits_short(query, value, 2, 0.1)
    assert not suits_short(query, value.float(), 2, 0.0)
