"""How a policy decodes is tried: what a cache makes of it is compared with a plain forward pass."""

from __future__ import annotations

import warnings
from pathlib import Path

import drawing
import pytest
import torch
from families import alone, plain, save_tiny
from tiny_models import EOS, make_tokenizer
from torch import nn
from transformers.pytorch_utils import Conv1D

from r1lit.policy import ModelSource, Responses, load_policy
from r1lit.rollout.decoding_method import find_decoding_method
from r1lit.rollout.shared_prompts import for_decoding

PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 10, 11], [3, 12, 13], [3, 40], list(range(20, 34))]
WAYS = {
    **dict.fromkeys(("llama", "gpt2", "qwen3_moe", "mixtral", "granitemoe", "phimoe"), "shared"),
    **dict.fromkeys(("mistral", "gemma2", "gpt_oss", "bloom", "qwen3_next", "xglm"), "cached"),
    # wrong from a cache, or no such cache
    **dict.fromkeys(("recurrent_gemma", "zamba2", "mamba", "rwkv", "nemotron_h"), "uncached"),
    **dict.fromkeys(("openai-gpt", "trocr", "minimax"), "uncached"),
}
EAGER = ("gemma2", "gpt_oss", "bloom", "xglm", "mamba", "rwkv", "openai-gpt", "trocr")
PRODUCTS_BESIDE_LINEAR = ("gpt2", "mixtral", "qwen3_moe", "granitemoe", "olmoe", "deepseek_v3")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("name", WAYS)
@torch.no_grad()
def test_a_response_is_that_of_plain_forward_passes(name, tmp_path: Path):
    attention = "eager" if name in EAGER else "sdpa"
    folder = save_tiny(tmp_path, name, attention)
    policy, model = (
        load_policy(ModelSource(folder, attention=attention)).eval(),
        plain(folder, attention),
    )
    assert find_decoding_method(policy) == WAYS[name]
    options = {"max_tokens": 12, "compile": False}
    greedy = drawing.draw(policy, make_tokenizer(), PROMPTS, 2, temperature=0.0, **options)
    for b, tokens in enumerate(greedy.tokens()):
        ids, response = PROMPTS[b // 2], []
        while len(response) < 12 and response[-1:] != [EOS]:
            logits_V = model(torch.tensor([ids + response]), use_cache=False).logits[0, -1]
            response.append(int(logits_V.argmax()))
        assert tokens == response
    drawn = drawing.draw(policy, make_tokenizer(), PROMPTS, 2, **options)
    for b, completion in enumerate(drawn.completions):
        logp_T = alone(model, PROMPTS[b // 2], completion.token_ids.tolist())
        assert (logp_T - completion.logps).abs().max() < 1e-3
    assert drawn.logp_BT.std() > 0.3, "a near uniform policy would prove nothing"


@pytest.mark.parametrize("name", ["mistral", "llama"])
def test_a_cache_goes_by_the_name_that_transformers_has_for_it(name, tmp_path: Path):
    policy = load_policy(save_tiny(tmp_path, name)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        assert find_decoding_method(policy) == WAYS[name]
        drawing.draw(policy, make_tokenizer(), PROMPTS, 2, max_tokens=4, compile=False)


def test_the_slow_way_is_said_once(tmp_path: Path):
    policy = load_policy(save_tiny(tmp_path, "zamba2"))
    with pytest.warns(UserWarning, match=r"Zamba2ForCausalLM decodes without a cache") as said:
        engine = drawing.bound(drawing.InProcessEngine(compile=False), policy, make_tokenizer())
        for _ in range(2):
            engine.generate(drawing.requests_for(PROMPTS, 1, drawing.Sampling(max_tokens=2)))
    assert len([w for w in said if "decodes" in str(w.message)]) == 1


def test_ordinary_policies_say_nothing(tmp_path: Path):
    policy = load_policy(save_tiny(tmp_path, "llama"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_decoding_method(policy) == "shared"


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama", "mixtral", "mistral", "recurrent_gemma"])
def test_the_trial_judges_in_float32(name, dtype, tmp_path: Path):
    policy = load_policy(ModelSource(save_tiny(tmp_path, name), dtype=dtype))
    before = [p.clone() for p in policy.parameters()]
    assert find_decoding_method(policy.eval()) == WAYS[name]
    for p, q in zip(before, policy.parameters(), strict=True):
        assert p.dtype == q.dtype and torch.equal(p, q)


@pytest.mark.parametrize("name", PRODUCTS_BESIDE_LINEAR)
@torch.no_grad()
def test_every_module_decodes_in_the_dtype_that_training_computes_in(name, tmp_path: Path):
    """Each is given what it got in training, under bf16-mixed."""
    policy = load_policy(save_tiny(tmp_path, name)).eval()
    seen = []
    for module in policy.modules():
        if any(p.ndim > 1 for p in module.parameters(recurse=False)):
            module.register_forward_hook(
                lambda module, args, options, out: seen.append((module, args, options, out)),
                with_kwargs=True,
            )
    responses = Responses(
        prompts=PROMPTS, response_BT=torch.arange(50, 70).view(4, 5), mask_BT=torch.ones(4, 5) > 0
    )
    with torch.autocast("cpu", torch.bfloat16):
        policy(responses)
    calls = tuple(call for call in seen if not isinstance(call[0], nn.Embedding))
    assert any(type(module) is not nn.Linear for module, *_ in calls)
    for module, args, options, expected in calls:
        found = for_decoding(module, torch.bfloat16)(*args, **options)
        exact = not isinstance(module, nn.Linear | Conv1D)
        for x, y in zip(leaves(found), leaves(expected), strict=True):
            assert x.dtype == y.dtype, type(module)
            assert torch.equal(x, y) if exact else torch.allclose(x, y, rtol=2**-7, atol=0.01)


def leaves(x) -> list[torch.Tensor]:
    return [x] if isinstance(x, torch.Tensor) else [leaf for part in x for leaf in leaves(part)]
