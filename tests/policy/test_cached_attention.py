"""Attention over a shared prompt and an own past: the loop in C++ and PyTorch's own operations."""

from __future__ import annotations

import pytest
import torch

from r1lit.device import backend
from r1lit.policy.cached_attention import CachedLayer, attend_cached

CPU = backend(torch.device("cpu"))
PROMPT_R = torch.tensor([0, 0, 0, 1, 2, 2])
LENGTH_P = torch.tensor([5, 0, 17])  # of a prompt of one token nothing lies here
ROW_PG = torch.tensor([0, 1, 2, 3, 0, 0, 4, 5, 0])
SLOT_R = torch.tensor([0, 1, 2, 3, 6, 7])


def make(dtype: torch.dtype, per_key: int, size: int, own: int, room: int):
    torch.manual_seed(0)
    rows, keys = len(PROMPT_R), 2
    query = torch.randn(rows, keys * per_key, 1, size)
    key, value = torch.randn(2, rows, keys, 1, size)
    prompt_key, prompt_value = torch.randn(2, len(LENGTH_P), keys, 17, size).to(dtype)
    own_key, own_value = torch.randn(2, rows, keys, room, size).to(dtype)
    return (
        (query, key, value),
        (prompt_key, prompt_value, LENGTH_P),
        (own_key[:, :, :own], own_value[:, :, :own]),
    )


def plainly(states, prompt, own, scaling: float) -> torch.Tensor:
    """Each row for itself: its prompt, its past and the new token, one softmax."""
    (query, key, value), (prompt_key, prompt_value, length_P), (own_key, own_value) = (
        [x.double() for x in part] for part in (states, prompt, own)
    )
    outputs = []
    for row, p in enumerate(PROMPT_R.tolist()):
        length = int(length_P[p])
        keys = torch.cat([prompt_key[p, :, :length], own_key[row, :, :-1], key[row]], 1)
        values = torch.cat([prompt_value[p, :, :length], own_value[row, :, :-1], value[row]], 1)
        per_key = query.shape[1] // keys.shape[0]
        keys, values = (x.repeat_interleave(per_key, 0) for x in (keys, values))
        weights = (query[row] @ keys.transpose(-1, -2) * scaling).softmax(-1)
        outputs.append((weights @ values).transpose(0, 1))
    return torch.stack(outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("per_key", "size", "own", "room"),
    [(1, 48, 3, 64), (4, 64, 70, 128), (2, 40, 16, 64), (1, 256, 1, 64), (3, 128, 130, 192)],
)
@pytest.mark.parametrize("in_one_loop", [True, False])
def test_it_is_attention_over_prompt_and_past(dtype, per_key, size, own, room, in_one_loop):
    if in_one_loop and not CPU.attends_to_caches(dtype):
        pytest.skip("no C++ compiler here")
    states, prompt, past = make(dtype, per_key, size, own, room)
    expected = plainly(states, prompt, past, 0.3)
    slots = (None, None) if in_one_loop else (ROW_PG, SLOT_R)
    result = attend_cached(*states, CachedLayer(*prompt, *past, PROMPT_R, *slots), 0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    _, key, value = states
    assert torch.equal(past[0][:, :, -1], key[:, :, 0].to(dtype))
    assert torch.equal(past[1][:, :, -1], value[:, :, 0].to(dtype))


def test_scores_far_apart_neither_overflow_nor_vanish():
    if not CPU.attends_to_caches(torch.float32):
        pytest.skip("no C++ compiler here")
    states, prompt, past = make(torch.float32, 1, 32, 9, 64)
    states = (states[0] * 300, *states[1:])
    expected = plainly(states, prompt, past, 1.0)
    result = attend_cached(*states, CachedLayer(*prompt, *past, PROMPT_R, None, None), 1.0)
    torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-3)


def test_other_dtypes_and_devices_keep_to_pytorch():
    assert not CPU.attends_to_caches(torch.float16)
    assert not backend(torch.device("cuda")).attends_to_caches(torch.bfloat16)
