"""Rotary embeddings that depend on the longest row of a call: right within their limit, or refused.

Beyond it Hugging Face's forward pass makes a row's log-probs depend on its neighbours.
"""

from __future__ import annotations

from pathlib import Path

import drawing
import pytest
import torch
from families import alone, plain, save_tiny
from tiny_models import document_rows, make_tokenizer

from r1lit.policy import (
    LogProbs,
    ModelSource,
    Policy,
    Responses,
    is_packed,
    load_policy,
    rope_limit,
)

LIMIT = 24
HALF = 4  # of a head
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": LIMIT,
    "short_factor": [1.0] * HALF,
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "factor": 4.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
CASES = {
    "phi3": {"rope_parameters": LONGROPE, "original_max_position_embeddings": LIMIT},
    "llama": {"rope_parameters": DYNAMIC, "max_position_embeddings": LIMIT},
    "mistral": {"rope_parameters": DYNAMIC, "max_position_embeddings": LIMIT},
    "qwen2": {"rope_parameters": LONGROPE},
}
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [3, 20], [3, 21, 22, 23]]
RESPONSES = [[30, 31, 32, 33, 34, 35, 36, 37, 38, 39], [50, 51, 52], [60]]


def responses(prompts: list[list[int]], tokens: list[list[int]]) -> Responses:
    length_B = torch.tensor([len(row) for row in tokens])
    mask_BT = torch.arange(int(length_B.max())) < length_B[:, None]
    flat = torch.tensor([token for row in tokens for token in row])
    response_BT = torch.zeros(mask_BT.shape, dtype=torch.long).masked_scatter(mask_BT, flat)
    return Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT)


def load(folder: str, attention: str = "sdpa") -> Policy:
    return load_policy(ModelSource(folder, attention=attention)).eval()


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_up_to_the_limit_rows_are_their_own(name, attention, tmp_path: Path):
    folder = save_tiny(tmp_path, name, attention, **CASES[name])
    policy, model = load(folder, attention), plain(folder, attention)
    assert policy.rope_limit == LIMIT == len(PROMPTS[0]) + len(RESPONSES[0])
    expected_K = torch.cat([alone(model, *row) for row in zip(PROMPTS, RESPONSES, strict=True)])
    found_K = policy(responses(PROMPTS, RESPONSES)).logp_K
    torch.testing.assert_close(found_K, expected_K, rtol=0, atol=1e-4)

    # rollouts to the limit, beside rows that end before it
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    drawn = drawing.draw(
        policy, make_tokenizer(), PROMPTS, 2, max_tokens=LIMIT - len(PROMPTS[0]), compile=False
    )
    rows = [c.token_ids.tolist() for c in drawn.completions]
    logp_K = torch.cat([alone(model, *row) for row in zip(prompts, rows, strict=True)])
    assert (logp_K - torch.cat([c.logps for c in drawn.completions])).abs().max() < 1e-4
    assert (logp_K - policy(responses(prompts, rows)).logp_K).abs().max() < 1e-4


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", CASES)
def test_beyond_it_training_and_rollouts_are_refused(name, attention, tmp_path: Path):
    policy = load(save_tiny(tmp_path, name, attention, **CASES[name]), attention)
    line = rf"policy: a row of {LIMIT + 1} tokens is longer than {LIMIT}, .*short_factor"
    with pytest.raises(ValueError, match=line):
        policy(responses(PROMPTS, [[*RESPONSES[0], 40], *RESPONSES[1:]]))
    ids_RL = torch.arange(3, 3 + LIMIT + 1)[None]
    position_RL = torch.arange(LIMIT + 1)[None]
    with pytest.raises(ValueError, match=line):
        policy(document_rows(ids_RL, position_RL, position_RL > 0), LogProbs())
    with pytest.raises(ValueError, match=line):
        drawing.draw(policy, make_tokenizer(), PROMPTS[:1], max_tokens=LIMIT + 1 - len(PROMPTS[0]))


@torch.no_grad()
def test_beyond_it_hugging_face_s_rows_do_depend_on_each_other(tmp_path: Path):
    model = plain(save_tiny(tmp_path, "phi3", **CASES["phi3"]))
    short = torch.tensor([[*PROMPTS[1], *RESPONSES[1]]])
    width = short.shape[1]
    beside = torch.nn.functional.pad(short, (0, LIMIT + 1 - width), value=9)
    change = model(beside).logits[:, :width] - model(short).logits
    assert change.abs().max() > 0.1


@torch.no_grad()
def test_constant_factors_have_no_limit_and_run_over_packed_tokens(tmp_path: Path):
    """What the message advises."""
    parameters = LONGROPE | {"short_factor": LONGROPE["long_factor"]}
    folder = save_tiny(tmp_path, "phi3", **CASES["phi3"] | {"rope_parameters": parameters})
    policy, model = load(folder), plain(folder)
    assert policy.rope_limit is None and is_packed(policy)
    tokens = [RESPONSES[0] * 2, *RESPONSES[1:]]
    expected_K = torch.cat([alone(model, *row) for row in zip(PROMPTS, tokens, strict=True)])
    found_K = policy(responses(PROMPTS, tokens)).logp_K
    torch.testing.assert_close(found_K, expected_K, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["default", "linear", "yarn", "llama3"])
def test_other_kinds_have_no_limit(kind, tmp_path: Path):
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    scaled = {"factor": 4.0, "original_max_position_embeddings": LIMIT, **more}
    parameters = {"rope_type": kind, "rope_theta": 1e4, **(scaled if kind != "default" else {})}
    folder = save_tiny(tmp_path, "llama", rope_parameters=parameters)
    assert rope_limit(load(folder).config) is None
