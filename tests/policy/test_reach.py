"""A trial's few tokens meet windows, blocks, top-k and limits of time steps of any size."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.tiny_configs import tiny_config
from r1lit.policy import Policy, is_packed
from r1lit.policy.reach import LARGEST, watch_masks, within_reach
from r1lit.policy.support import FAILURES, LENGTHS, PROMPTS, enable_packed, trial
from r1lit.rollout.decoding import CachedDecoding, find_decoding_error

SPARSE = {
    "layer_types": ["full_attention", "minimax_m3_sparse"],
    **{"index_n_heads": 2, "index_block_size": 16, "index_topk_blocks": 4},
}
SLIDING = {
    **{"use_sliding_window": True, "sliding_window": 4096},
    "layer_types": ["sliding_attention", "full_attention"],
}
IDS = torch.arange(3, 10)[None]


def fresh(name: str, **changes) -> Policy:
    """A policy as pretraining begins: its log-probs are nearly uniform whatever it attends to."""
    config = tiny_config(name, **({"initializer_range": 0.02} | changes))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Policy(AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval())


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("phimoe", {"sliding_window": 4096}),
        ("qwen2_moe", SLIDING),
        ("minimax_m3_vl_text", SPARSE),
        ("llama4_text", {"attention_chunk_size": 4096}),
    ],
)
def test_windows_are_noticed_at_fresh_weights_and_at_any_size(name, changes):
    policy = fresh(name, **changes)
    with torch.no_grad(), watch_masks() as masks:
        policy.model(IDS, use_cache=False)
    assert not masks.only_causal
    assert enable_packed(policy) is not None and not is_packed(policy)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("phimoe", {"sliding_window": None}),
        ("qwen2_moe", {}),
        ("minimax_m3_vl_text", {}),
        ("llama", {}),
    ],
)
def test_without_the_feature_they_pack_as_before(name, changes):
    """Qwen2-MoE makes masks of a window also where no layer reads them."""
    policy = fresh(name, **changes)
    assert enable_packed(policy) is None and is_packed(policy)


def test_layers_of_another_kind_do_not_pack_even_where_nothing_shows():
    policy = fresh("llama")
    policy.config.layer_types = ["full_attention", "heavily_compressed_attention"]
    assert enable_packed(policy) == "it has layers of heavily_compressed_attention"
    assert not is_packed(policy)


def test_sizes_are_small_in_a_trial_and_restored_after_it():
    policy = fresh("minimax_m3_vl_text", **SPARSE)
    indexer = next(m for m in policy.modules() if hasattr(m, "topk_blocks"))
    config = policy.config
    with pytest.raises(KeyboardInterrupt), trial(policy):
        assert (indexer.block_size, indexer.topk_blocks) == (LARGEST, LARGEST)
        assert (config.index_block_size, config.index_topk_blocks) == (LARGEST, LARGEST)
        raise KeyboardInterrupt
    assert (indexer.block_size, indexer.topk_blocks) == (16, 4)
    assert (config.index_block_size, config.index_topk_blocks) == (16, 4)


def test_rows_of_the_trial_are_longer_than_two_small_blocks():
    assert len(PROMPTS[0]) + LENGTHS[0] > LARGEST * LARGEST + 1


def test_a_model_that_cannot_run_with_small_sizes_keeps_its_own():
    policy = fresh("phimoe", sliding_window=16)

    def fail() -> None:
        assert policy.config.sliding_window == LARGEST
        raise ValueError("sizes do not fit")

    with within_reach(policy.model, fail, FAILURES):
        assert policy.config.sliding_window == 16
    assert policy.config.sliding_window == 16


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3_moe", "bamba"])
def test_other_numbers_of_a_configuration_stay(kind):
    policy = fresh(kind)
    before = policy.config.to_dict()
    with within_reach(policy.model, lambda: None, FAILURES):
        assert policy.config.to_dict() == before


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("zamba2", {"time_step_min": 0.001}),
        ("nemotron_h", {"time_step_min": 0.001}),
        ("bamba", {"time_step_limit": (0.001, 0.1)}),
    ],
)
def test_time_steps_that_decoding_does_not_limit_are_noticed(name, changes):
    """Few time steps are beyond a limit: after 4 tokens log-probs had drifted by 2e-5 at most."""
    policy = fresh(name, initializer_range=0.1, **changes)
    with torch.no_grad(), trial(policy):
        cached = find_decoding_error(policy, partial(CachedDecoding, policy, pad=0))
    assert cached == "its log-probs would change"


@pytest.mark.parametrize("name", ["zamba2", "nemotron_h"])
def test_without_a_limit_caches_are_used(name):
    policy = fresh(name, initializer_range=0.1)
    for module in policy.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, math.inf)
    with torch.no_grad(), trial(policy):
        assert find_decoding_error(policy, partial(CachedDecoding, policy, pad=0)) is None
