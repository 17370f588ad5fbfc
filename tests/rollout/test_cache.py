"""The in-place cache layer against the library's own."""

from __future__ import annotations

import pytest
import torch
from tiny_models import configurations
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from r1lit.rollout.decoding import BLOCK, InPlaceLayer, make_cache


def states(rows: int, tokens: int, size: int = 4) -> torch.Tensor:
    return torch.randn(rows, 2, tokens, size)


@pytest.mark.parametrize("prompt", [1, 100, BLOCK - 1, BLOCK, BLOCK + 1])
def test_it_holds_what_the_dynamic_layer_holds(prompt):
    torch.manual_seed(prompt)
    ours, theirs = InPlaceLayer(), DynamicLayer()

    def append(rows: int, tokens: int) -> None:
        keys, values = states(rows, tokens), states(rows, tokens, size=3)
        for got, wanted in zip(ours.update(keys, values), theirs.update(keys, values), strict=True):
            assert torch.equal(got, wanted)
        assert ours.get_seq_length() == theirs.get_seq_length()
        assert ours.get_mask_sizes(1) == theirs.get_mask_sizes(1)

    append(3, prompt)
    expand = torch.arange(3).repeat_interleave(2)
    ours.reorder_cache(expand)
    theirs.batch_repeat_interleave(2)
    for step in range(2 * BLOCK + 5):
        rows = 6 if step < 40 else 3
        if step == 40:
            keep = torch.tensor([5, 0, 3])
            ours.reorder_cache(keep)
            theirs.batch_select_indices(keep)
        append(rows, 1)


def test_it_copies_once_a_block():
    layer = InPlaceLayer()
    layer.update(states(2, 5), states(2, 5))
    places = set()
    for _ in range(2 * BLOCK):
        keys, _ = layer.update(states(2, 1), states(2, 1))
        places.add(keys.data_ptr())
    assert len(places) == 3


def test_what_was_handed_out_does_not_change():
    layer = InPlaceLayer()
    before, _ = layer.update(states(2, 3), states(2, 3))
    copy = before.clone()
    layer.update(states(2, 1), states(2, 1))
    layer.reorder_cache(torch.tensor([1]))
    layer.update(states(1, 1), states(1, 1))
    assert torch.equal(before, copy)


def test_windows_and_linear_attention_keep_the_layers_made_for_them():
    kinds = {name: [type(layer) for layer in make_cache(config).layers]
             for name, config in configurations().items()}  # fmt: skip
    assert kinds["llama"] == [InPlaceLayer, InPlaceLayer]
    assert kinds["mistral"] == [DynamicSlidingWindowLayer, DynamicSlidingWindowLayer]
    assert kinds["gemma3"] == [DynamicSlidingWindowLayer, InPlaceLayer]
    assert kinds["qwen3_next"] == [LinearAttentionLayer, InPlaceLayer]
