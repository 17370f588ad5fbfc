"""The loop in C++ that decoding attends by: heads of whole vectors take the fast way."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

from r1lit.device import backend

CPU = backend(torch.device("cpu"))
ROWS, HEADS, PROMPT, OWN = 8, 4, 64, 61


def arguments(size: int) -> list[Tensor | float]:
    """Return what ``attend_cached`` takes of one group of 8 rows."""
    generator = torch.Generator().manual_seed(size)

    def of(*shape: int) -> Tensor:
        return torch.randn(*shape, size, generator=generator)

    new = [of(ROWS, HEADS, 1) for _ in range(3)]
    prompt = [of(1, HEADS, PROMPT) for _ in range(2)]
    own = [of(ROWS, HEADS, OWN) for _ in range(2)]
    which = torch.zeros(ROWS, dtype=torch.long)
    return [*new, *prompt, torch.tensor([PROMPT]), which, *own, size**-0.5]


def rate(size: int) -> float:
    """Return numbers of keys read a second, the best of a few times."""
    given, seconds = arguments(size), []
    for _ in range(15):
        started = time.process_time()
        for _ in range(20):
            torch.ops.r1lit.attend_cached(*given)
        seconds.append(time.process_time() - started)
    return size / min(seconds)


@pytest.mark.parametrize("size", [48, 64])
def test_whole_vectors_are_faster_than_a_plain_loop(size):
    if not CPU.attends_to_caches(torch.float32):
        pytest.skip("no C++ compiler")
    assert rate(size) > 1.2 * rate(40)  # 40 is no multiple of 16


@pytest.mark.parametrize("size", [32, 40, 48, 64, 80, 96, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sums_are_those_of_plain_attention(size, dtype):
    if not CPU.attends_to_caches(dtype):
        pytest.skip("no C++ compiler")
    query, key, value, prompt_key, prompt_value, length, which, own_key, own_value, scaling = (
        arguments(size)
    )
    caches = [x.to(dtype) for x in (prompt_key, prompt_value, own_key, own_value)]
    found = torch.ops.r1lit.attend_cached(
        *(query, key, value, caches[0], caches[1], length, which, caches[2], caches[3], scaling)
    )
    own_keys, own_values = caches[2].float(), caches[3].float()
    own_keys[:, :, -1], own_values[:, :, -1] = (x[:, :, 0].to(dtype).float() for x in (key, value))
    keys, values = (
        torch.cat([prompt.float().expand(ROWS, -1, -1, -1), own], 2)
        for prompt, own in ((caches[0], own_keys), (caches[1], own_values))
    )
    weights = (query @ keys.mT * scaling).softmax(-1)
    torch.testing.assert_close(found, weights @ values, rtol=1e-5, atol=2e-6)
