"""Log-probs from hidden states, piece by piece, against a plain log-softmax."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from r1lit.objectives.terms import entropy_BT
from r1lit.policy.linear_cross_entropy import linear_cross_entropy
from r1lit.policy.linear_logp import linear_logp

K, D, V = 100, 8, 64


@pytest.fixture(params=[1, 40 * V, 1 << 20], ids=["16 at once", "40 at once", "all at once"])
def chunk_sizes(request, set_chunk_sizes) -> int:
    set_chunk_sizes(logits=request.param, tokens=16)
    return request.param


@pytest.fixture(params=[(24, 3), (1 << 13, 1 << 13)], ids=["few rows at once", "all rows"])
def row_chunks(request, set_chunk_sizes) -> None:
    of_weight, of_logits = request.param
    set_chunk_sizes(weight_rows=of_weight, floats=of_logits * V)


def inputs(dtype: torch.dtype = torch.float32, num: int = K):
    generator = torch.Generator().manual_seed(0)
    hidden_KD = torch.randn(num, D, generator=generator).to(dtype).requires_grad_()
    weight_VD = torch.randn(V, D, generator=generator).to(dtype).requires_grad_()
    target_K = torch.randint(V, (num,), generator=generator)
    target_K[1::3] = 5  # the same target many times, in one piece and in several
    return hidden_KD, weight_VD, target_K


def plainly(hidden_KD, weight_VD, target_K, temperature):
    logits_KV = (hidden_KD @ weight_VD.T).float() / temperature
    logp_K = logits_KV.log_softmax(-1).gather(-1, target_K[:, None]).squeeze(-1)
    return logp_K, entropy_BT(logits_KV)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_values_and_gradients_are_those_of_log_softmax(chunk_sizes, row_chunks, temperature):
    hidden_KD, weight_VD, target_K = inputs()
    grad_K = torch.linspace(-1, 2, K)
    logp_K, entropy_K = linear_logp(hidden_KD, weight_VD, target_K, temperature)
    found = torch.autograd.grad(logp_K, (hidden_KD, weight_VD), grad_K)
    logp_plain_K, entropy_plain_K = plainly(hidden_KD, weight_VD, target_K, temperature)
    expected = torch.autograd.grad(logp_plain_K, (hidden_KD, weight_VD), grad_K)
    torch.testing.assert_close(logp_K, logp_plain_K, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_K, entropy_plain_K, rtol=1e-5, atol=5e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert logp_K.std() > 1 and expected[1].abs().max() > 1, "nothing to tell apart"


def test_the_gradient_is_the_slope():
    """Central differences in float32 see the derivative to about 1e-3."""
    hidden_KD, weight_VD, target_K = inputs(num=20)
    direction_KD = torch.randn(20, D, generator=torch.Generator().manual_seed(1))
    logp_K = linear_logp(hidden_KD, weight_VD, target_K, 0.7)[0]
    (grad_KD,) = torch.autograd.grad(logp_K.sum(), hidden_KD)
    step = 1e-2
    with torch.no_grad():
        up, down = (
            linear_logp(hidden_KD + s * direction_KD, weight_VD, target_K, 0.7)[0].double()
            for s in (step, -step)
        )
    slope_K = (up - down) / (2 * step)
    torch.testing.assert_close(
        (grad_KD * direction_KD).sum(-1).double(), slope_K, rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy_is_that_of_the_log_probs_gradients_included(chunk_sizes, row_chunks, dtype):
    hidden_KD, weight_VD, target_K = inputs(dtype)
    loss = linear_cross_entropy(hidden_KD, weight_VD, target_K)
    expected = -linear_logp(hidden_KD, weight_VD, target_K)[0].sum()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    share = torch.tensor(1 / 3000)  # no power of two, so that bfloat16 would round it
    found, wanted = (
        torch.autograd.grad(x * share, (hidden_KD, weight_VD)) for x in (loss, expected)
    )
    rounding = (
        {"rtol": 1e-5, "atol": 1e-8} if dtype == torch.float32 else {"rtol": 0.02, "atol": 1e-5}
    )
    torch.testing.assert_close(found, wanted, **rounding)
    assert wanted[1].abs().max() > 3e-4, "nothing to tell apart"


def test_cross_entropy_makes_only_the_gradients_that_are_needed():
    hidden_KD, weight_VD, target_K = inputs()
    both = torch.autograd.grad(linear_cross_entropy(hidden_KD, weight_VD, target_K), hidden_KD)[0]
    frozen_VD = weight_VD.detach()
    loss = linear_cross_entropy(hidden_KD, frozen_VD, target_K)
    loss.backward(retain_graph=True)
    assert torch.equal(hidden_KD.grad, both)
    with pytest.raises(RuntimeError, match="can be taken once"):
        loss.backward()
    fixed_KD = hidden_KD.detach()
    linear_cross_entropy(fixed_KD, weight_VD, target_K).backward()
    assert weight_VD.grad.abs().max() > 1
    assert not linear_cross_entropy(fixed_KD, frozen_VD, target_K).requires_grad


def test_cross_entropy_is_measured_without_a_gradient(chunk_sizes):
    hidden_KD, weight_VD, target_K = inputs()
    with torch.no_grad():
        loss = linear_cross_entropy(hidden_KD, weight_VD, target_K)
    assert not loss.requires_grad
    expected = -plainly(hidden_KD, weight_VD, target_K, 1.0)[0].sum()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=0)


def test_greedy_counts_as_temperature_1():
    hidden_KD, weight_VD, target_K = inputs()
    zero, one = (linear_logp(hidden_KD, weight_VD, target_K, t) for t in (0.0, 1.0))
    assert all(torch.equal(z, o) for z, o in zip(zero, one, strict=True))


def test_the_entropy_carries_no_gradient():
    logp_K, entropy_K = linear_logp(*inputs())
    assert logp_K.requires_grad and not entropy_K.requires_grad


def test_extremes_stay_finite():
    hidden_KD, weight_VD, target_K = inputs()
    logp_K, entropy_K = linear_logp(1e4 * hidden_KD, weight_VD, target_K)
    assert logp_K.isfinite().all() and entropy_K.isfinite().all()
    assert entropy_K.min() > -1e-2 and entropy_K.max() < 1, "one token has all the probability"


@pytest.mark.parametrize("row", [0, 40, V - 1], ids=["first", "later", "last"])
def test_a_token_that_cannot_be(chunk_sizes, row_chunks, row):
    """A logit of -inf, in whichever part of the vocabulary."""
    hidden_KD, weight_VD, target_K = inputs()
    hidden_KD = hidden_KD.detach().abs().requires_grad_()
    with torch.no_grad():
        weight_VD[row] = -torch.inf
    target_K = torch.where(target_K == row, 7, target_K)
    logp_K, entropy_K = linear_logp(hidden_KD, weight_VD, target_K)
    others_VD = torch.cat([weight_VD[:row], weight_VD[row + 1 :]]).detach()
    logp_plain_K, entropy_plain_K = plainly(
        hidden_KD, others_VD, target_K - (target_K > row).long(), 1.0
    )
    torch.testing.assert_close(logp_K, logp_plain_K, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_K, entropy_plain_K, rtol=1e-5, atol=5e-5)


def test_no_targets():
    hidden_KD, weight_VD, target_K = inputs()
    logp_K, entropy_K = linear_logp(hidden_KD[:0], weight_VD, target_K[:0])
    assert len(logp_K) == len(entropy_K) == 0
    logp_K.sum().backward()
    loss = linear_cross_entropy(hidden_KD[:0], weight_VD, target_K[:0])
    loss.backward()
    assert loss == 0 and not weight_VD.grad.any()


def test_bfloat16_is_rounded_once(chunk_sizes, row_chunks):
    """The products run in bfloat16, everything behind them in float32."""
    hidden_KD, weight_VD, target_K = inputs(torch.bfloat16)
    logp_K, entropy_K = linear_logp(hidden_KD, weight_VD, target_K)
    logp_plain_K, entropy_plain_K = plainly(hidden_KD, weight_VD, target_K, 1.0)
    assert logp_K.dtype == entropy_K.dtype == torch.float32
    torch.testing.assert_close(logp_K, logp_plain_K, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_K, entropy_plain_K, rtol=1e-4, atol=1e-4)
    found = torch.autograd.grad(logp_K.sum(), (hidden_KD, weight_VD))
    exact = [x.detach().float().requires_grad_() for x in (hidden_KD, weight_VD)]
    expected = torch.autograd.grad(plainly(*exact, target_K, 1.0)[0].sum(), exact)
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.float(), wanted, rtol=0.03, atol=0.1)


def test_autocast_casts_hidden_states_and_keeps_the_weight_s_gradient_in_float32():
    hidden_KD, weight_VD, target_K = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        logp_K, _ = linear_logp(hidden_KD, weight_VD, target_K)
    half = [x.detach().bfloat16() for x in (hidden_KD, weight_VD)]
    torch.testing.assert_close(logp_K, plainly(*half, target_K, 1.0)[0], rtol=1e-5, atol=1e-5)
    logp_K.sum().backward()
    assert weight_VD.grad.dtype == hidden_KD.grad.dtype == torch.float32


class Largest(TorchDispatchMode):
    """Remembers the size of every tensor that an operation returns, and by dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.float32: list[int] = []
        self.bfloat16: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves(returned) if isinstance(x, torch.Tensor)]
        self.sizes += [x.numel() for x in tensors]
        self.float32 += [x.numel() for x in tensors if x.dtype == torch.float32]
        self.bfloat16 += [x.numel() for x in tensors if x.dtype == torch.bfloat16]
        return returned


def test_logits_of_the_whole_vocabulary_never_exist_together(set_chunk_sizes):
    set_chunk_sizes(logits=1, tokens=16, weight_rows=16)
    hidden_KD, weight_VD, target_K = inputs()
    with Largest() as plain:
        plainly(hidden_KD, weight_VD, target_K, 0.7)[0].sum().backward()
    assert max(plain.sizes) == K * V
    with Largest() as forward:
        logp_K, _ = linear_logp(hidden_KD, weight_VD, target_K, 0.7)
    with Largest() as backward:
        logp_K.sum().backward()
    assert max(forward.sizes) == max(backward.sizes) == K * 16  # K * D and V * D are smaller
    with Largest() as entropy:
        linear_cross_entropy(hidden_KD, weight_VD, target_K).backward()
    assert max(entropy.sizes) == 16 * V


def test_the_weight_is_never_copied_whole(set_chunk_sizes):
    set_chunk_sizes(logits=16 * D, weight_rows=16)
    hidden_KD, weight_VD, target_K = inputs(num=2)
    with Largest() as made, torch.autocast("cpu", torch.bfloat16):
        linear_logp(hidden_KD, weight_VD.detach(), target_K)[0].sum().backward()
    assert max(made.bfloat16) == 16 * D


def test_logits_are_in_float32_a_few_rows_at_a_time(set_chunk_sizes):
    set_chunk_sizes(floats=15 * V)
    hidden_KD, weight_VD, target_K = inputs(torch.bfloat16)
    with Largest() as made:
        linear_logp(hidden_KD, weight_VD.detach(), target_K, 0.7)[0].sum().backward()
    assert max(made.sizes) == K * V and max(made.float32) == 15 * V
    with Largest() as made:
        linear_cross_entropy(hidden_KD, weight_VD.detach(), target_K).backward()
    assert max(made.sizes) == K * V and max(made.float32) == 15 * V


def test_under_autocast_nothing_but_the_products_is_rounded(chunk_sizes):
    hidden_KD, weight_VD, target_K = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        logp_K, entropy_K = linear_logp(hidden_KD, weight_VD, target_K)
    rounded = hidden_KD.bfloat16(), weight_VD.bfloat16(), target_K, 1.0
    logp_plain_K, entropy_plain_K = plainly(*rounded)
    torch.testing.assert_close(logp_K, logp_plain_K, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_K, entropy_plain_K, rtol=1e-5, atol=5e-5)
