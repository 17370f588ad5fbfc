"""Attention in tiles, beside PyTorch's own in float32."""

from __future__ import annotations

import pytest
import torch

from r1lit.device.cpu.kernels import attend_tiled, suits_tiles

sdpa = torch.nn.functional.scaled_dot_product_attention


pytestmark = pytest.mark.usefixtures("kernels")


def draw(heads: int, key_heads: int, tokens: int, size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, heads, tokens, size), *[(3, key_heads, tokens, size)] * 2]
    query, key, value = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    return [x.requires_grad_() for x in (2 * query.float(), key.float(), value)]


def test_scores_are_float32_under_autocast_too():
    query, key, value = draw(4, 2, 37, 48)
    with torch.autocast("cpu", torch.bfloat16):
        inside = attend_tiled(query, key, value, 0.3)
    assert torch.equal(inside, attend_tiled(query, key, value, 0.3))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("tokens", [1, 2, 37, 64, 300, 545])
def test_values_and_gradients_are_those_of_float32_attention(heads, key_heads, tokens):
    query, key, value = draw(heads, key_heads, tokens, size=16)
    out = attend_tiled(query, key, value, 0.3)
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
    before = attend_tiled(query, key, value, 0.3)
    key[:, :, 12:], value[:, :, 12:] = 7.0, -3.0
    after = attend_tiled(query, key, value, 0.3)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 12:], after[:, 12:])


def test_only_even_heads_in_bfloat16_without_dropout():
    query, _, value = draw(4, 4, 2, 8)
    assert suits_tiles(query, value, 0.0) and suits_tiles(query.bfloat16(), value, 0.0)
    assert not suits_tiles(query, value, 0.1)
    assert not suits_tiles(query, value.float(), 0.0)
    assert not suits_tiles(query[..., :7], value[..., :7], 0.0)
    assert not suits_tiles(query.to("meta"), value, 0.0)
    assert not suits_tiles(query[:, :, :0], value[:, :, :0], 0.0)


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        ((1, 1, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        ((1, 2, 4, 8), (1, 2, 3, 8), (1, 2, 3, 8)),
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 6)),
        ((1, 2, 0, 8), (1, 2, 0, 8), (1, 2, 0, 8)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(query, key, value):
    with pytest.raises(RuntimeError, match="causal_attention: key and value are"):
        torch.ops.r1lit.causal_attention(*map(torch.zeros, (query, key, value)), 1.0)


def test_gradients_of_some_inputs_and_of_strided_ones():
    query, key, value = (x.detach() for x in draw(4, 2, 37, 16))
    key.requires_grad_()
    whole = torch.autograd.grad(attend_tiled(query, key, value, 0.3).float().sum(), key)[0]
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2).detach() for x in (query, key, value)]
    strided[1].requires_grad_()
    out = attend_tiled(*strided, 0.3)
    again = torch.autograd.grad(out.float().sum(), strided[1])[0]
    assert torch.equal(whole, again) and whole.abs().max() > 0.1
