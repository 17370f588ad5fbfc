"""Log-probs beyond windows and blocks of attention, in training and in rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import drawing
import pytest
import torch
from families import alone, plain, save_tiny
from tiny_models import make_tokenizer, response_logp

from r1lit.policy import is_packed, load_policy
from r1lit.policy.support import enable_packed

SPARSE = {
    "layer_types": ["full_attention", "minimax_m3_sparse"],
    **{"index_n_heads": 2, "index_local_blocks": 1},
}
SLIDING = {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}
CHANGES: dict[str, dict[str, Any]] = {
    "minimax_m3_vl_text": SPARSE | {"index_block_size": 4, "index_topk_blocks": 2},
    "minimax_m3_vl_text, 48": SPARSE | {"index_block_size": 16, "index_topk_blocks": 3},
    "phimoe": {"sliding_window": 8},
    "phimoe, 50": {"sliding_window": 50},
    "qwen2_moe": SLIDING | {"sliding_window": 8},
    "qwen2_moe, 50": SLIDING | {"sliding_window": 50},
}


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("case", CHANGES)
@torch.no_grad()
def test_log_probs_and_rollouts_are_those_of_each_row_alone(case, tmp_path: Path):
    """Packed, they were 2 to 6 nats away, and the rollout's were equally wrong."""
    folder = save_tiny(tmp_path, case.split(",")[0], **CHANGES[case])
    policy, model = load_policy(folder).eval(), plain(folder)
    assert not is_packed(policy)
    assert enable_packed(policy) == "its attention has masks of its own, such as a window"
    ids_BT = torch.randint(3, 120, (3, 80), generator=torch.Generator().manual_seed(1))
    prompts, response_BT = ids_BT[:, :60].tolist(), ids_BT[:, 60:]
    found_BT = response_logp(policy, prompts, response_BT, torch.ones(3, 20) > 0).logp_BT
    for prompt, response_T, logp_T in zip(prompts, response_BT, found_BT, strict=True):
        assert (alone(model, prompt, response_T.tolist()) - logp_T).abs().max() < 1e-4
    drawn = drawing.draw(policy, make_tokenizer(), prompts, 1, max_tokens=12, compile=False)
    for prompt, completion in zip(prompts, drawn.completions, strict=True):
        logp_T = alone(model, prompt, completion.token_ids.tolist())
        assert (logp_T - completion.logps).abs().max() < 1e-4
