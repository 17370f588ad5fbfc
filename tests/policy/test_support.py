"""Which policies run over packed tokens, and that all others stay as they were."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from families import save_tiny
from tiny_models import (
    ARCHITECTURES,
    SHAPE,
    VOCABULARY,
    configurations,
    make_model,
    make_policy,
    response_logp,
)
from transformers import (
    AutoModelForCausalLM,
    JambaConfig,
    Lfm2Config,
    PhiConfig,
    PhiForCausalLM,
)

from r1lit.policy import ModelSource, Policy, is_packed, load_policy
from r1lit.policy.support import enable_packed

REFUSED = {
    "mistral": "its attention has sliding_window",
    "gemma2": "its logits are capped",
    "gemma3": "its attention has sliding_window",
    "qwen3_next": "its log-probs would change",
}
PACKED = [name for name in ARCHITECTURES if name not in REFUSED]
IDS = torch.tensor([[1, *range(30, 60)], [1, *range(90, 120)]])
RESPONSE = (torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool))


@pytest.mark.parametrize("name", PACKED)
@torch.no_grad()
def test_packed_policies_answer_ordinary_calls_as_before(name):
    policy, before = make_policy(name), make_policy(name)
    assert enable_packed(policy) is None
    assert is_packed(policy) and not is_packed(before)
    assert torch.equal(policy.model(IDS).logits, before.model(IDS).logits)
    # left padding and a cache, as rollouts have them
    mask = torch.ones_like(IDS)
    mask[0, :4] = 0
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    outputs = []
    for each in (policy, before):
        first = each.model(IDS[:, :20], attention_mask=mask[:, :20], position_ids=position[:, :20])
        outputs.append(
            each.model(
                IDS[:, 20:],
                attention_mask=mask,
                position_ids=position[:, 20:],
                past_key_values=first.past_key_values,
            ).logits
        )
    assert torch.equal(*outputs)
    assert enable_packed(policy) is None, "twice is as good as once"


@pytest.mark.parametrize("name", REFUSED)
@torch.no_grad()
def test_the_others_say_why_and_still_work(name):
    policy, before = make_policy(name), make_policy(name)
    assert enable_packed(policy) == REFUSED[name]
    assert not is_packed(policy)
    assert policy.config._attn_implementation == before.config._attn_implementation
    assert torch.equal(policy.model(IDS).logits, before.model(IDS).logits)
    found, expected = (response_logp(p, [[1, 9, 8]], *RESPONSE, 1.0) for p in (policy, before))
    assert torch.equal(found.logp_BT, expected.logp_BT) and found.logp_BT.all()


@pytest.mark.parametrize("training", [True, False])
def test_trying_leaves_mode_gradients_and_random_state_alone(training):
    policy = make_policy("llama").train(training)
    state = torch.get_rng_state()
    assert enable_packed(policy) is None
    assert policy.training is training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None and p.requires_grad for p in policy.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    assert enable_packed(make_policy("llama", dtype)) is None
    assert enable_packed(make_policy("mistral", dtype)) == REFUSED["mistral"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("granite", {"logits_scaling": 8.0}),
        ("granitemoe", {"logits_scaling": 0.9}),
        ("cohere", {"logit_scale": 0.25}),
        ("minicpm3", {}),
        ("gemma2", {"final_logit_softcapping": 30.0}),
    ],
)
@torch.no_grad()
def test_logits_that_are_not_the_head_s_product_are_noticed_in_every_dtype(
    name, changes, dtype, tmp_path
):
    """In bfloat16 a relative tolerance let 0.5 nats through."""
    model = AutoModelForCausalLM.from_pretrained(save_tiny(tmp_path, name, **changes), dtype=dtype)
    before = {key: x.clone() for key, x in model.state_dict().items()}
    policy = Policy(model.eval())
    assert enable_packed(policy) is not None and not is_packed(policy)
    assert not model.training
    for key, x in model.state_dict().items():
        assert x.dtype == before[key].dtype and torch.equal(x, before[key]), key


def test_a_head_with_a_bias_is_refused_even_if_it_is_0():
    """Fresh weights: a packed update would leave the bias without a gradient."""
    config = PhiConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    policy = Policy(PhiForCausalLM(config))
    assert policy.model.lm_head.bias is not None and not policy.model.lm_head.bias.any()
    assert enable_packed(policy) is not None
    assert not is_packed(policy)


@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "jamba"])
def test_recurrent_layers_are_refused_at_fresh_weights_too(name):
    """Log-probs are nearly uniform then, whatever runs from one row into the next."""
    shape = {**SHAPE, "initializer_range": 0.02}
    if name == "lfm2":
        config = Lfm2Config(**shape, layer_types=["conv", "full_attention"])
    elif name == "jamba":
        config = JambaConfig(**shape, num_experts=2, use_mamba_kernels=False, mamba_dt_rank=4)
    else:
        config = configurations()[name]
        config.initializer_range = 0.02
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = Policy(AutoModelForCausalLM.from_config(config, attn_implementation="sdpa"))
    assert enable_packed(policy) in ("its rows would see each other", "its log-probs would change")


def test_a_saved_policy_shows_no_trace_and_loads_anywhere(tmp_path: Path):
    policy = make_policy("llama")
    assert enable_packed(policy) is None
    policy.save_pretrained(tmp_path)
    for path in tmp_path.glob("*.json"):
        assert "r1lit" not in path.read_text(), path.name
    before = tmp_path / "before"
    make_model("llama").save_pretrained(before)
    configs = [json.loads((d / "config.json").read_text()) for d in (tmp_path, before)]
    assert configs[0] == configs[1]
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert plain.config._attn_implementation == "sdpa"
    assert torch.equal(plain(IDS).logits, policy.model(IDS).logits)
    assert is_packed(load_policy(str(tmp_path)))


def test_a_copy_is_packed_too():
    """The reference is a copy of the policy."""
    policy = make_policy("qwen2")
    assert enable_packed(policy) is None
    reference = copy.deepcopy(policy)
    assert is_packed(reference)
    said = [response_logp(p, [[1, 9, 8]], *RESPONSE, 1.0).logp_BT for p in (policy, reference)]
    assert torch.equal(*said)


def test_loading_packs_where_it_can_and_warns_where_it_cannot(tmp_path: Path):
    for name in ("llama", "mistral"):
        make_policy(name).save_pretrained(tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_packed(load_policy(str(tmp_path / "llama")))
    assert not is_packed(load_policy(ModelSource(str(tmp_path / "llama"), attention="eager")))
    with pytest.warns(UserWarning, match="MistralForCausalLM is trained on padded rows.*sliding"):
        assert not is_packed(load_policy(str(tmp_path / "mistral")))
