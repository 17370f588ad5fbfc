"""Adapters in a policy: log-probs of every way to compute them, folders, and merged weights."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from families import plain, save_tiny
from transformers import AutoModelForCausalLM, AutoTokenizer

from r1lit.policy import (
    LogProbs,
    ModelSource,
    Policy,
    Responses,
    is_packed,
    load_policy,
    load_tokenizer,
)
from r1lit.policy.adapter import find_quantization
from r1lit.policy.merge import main
from r1lit.policy.support import with_visible_adapter
from r1lit.rollout import InProcessEngine, ModelSpec, Request, Sampling
from r1lit.rollout.decoding_method import find_decoding_method

ALL = "all-linear"
KINDS = {
    "lora": peft.LoraConfig(r=8, target_modules=ALL),
    "rslora": peft.LoraConfig(r=8, target_modules=ALL, use_rslora=True, lora_alpha=32),
    "dora": peft.LoraConfig(r=4, target_modules=ALL, use_dora=True),
    "rank_1": peft.LoraConfig(r=1, target_modules=["q_proj", "v_proj"]),
    "with_embedding": peft.LoraConfig(r=4, target_modules=["embed_tokens", "down_proj"]),
    "with_saved_norm": peft.LoraConfig(r=4, target_modules=ALL, modules_to_save=["norm"]),
    "loha": peft.LoHaConfig(r=4, target_modules=["q_proj", "up_proj"]),
    "lokr": peft.LoKrConfig(r=4, target_modules=["q_proj", "up_proj"]),
    "vera": peft.VeraConfig(r=8, target_modules=["q_proj", "o_proj"]),
    "ia3": peft.IA3Config(
        target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
    ),
    "oft": peft.OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj", "v_proj"]),
}
PROMPTS = ((5, 6, 7, 8), (5, 6, 7, 8), (9, 10))


@pytest.fixture(params=KINDS)
def trained(request, policy: Path, tmp_path: Path):
    """A policy whose adapter has an effect, and Hugging Face's model of what it exports."""
    own = load_policy(ModelSource(str(policy), adapter=KINDS[request.param]), dropout=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in own.adapter.weights:
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    own.save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(policy).save_pretrained(tmp_path / "adapter")
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    return own, theirs


@torch.no_grad()
def hugging_face_logps(model, prompt, tokens, temperature=1.0) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *tokens]])
    logp_LV = (model(ids).logits[0] / temperature).log_softmax(-1)
    return logp_LV[len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None])[:, 0]


def test_every_way_gives_the_log_probs_of_hugging_faces_peft_model(trained) -> None:
    own, theirs = trained
    assert is_packed(own)
    responses = Responses(
        prompts=PROMPTS,
        response_BT=torch.tensor([[11, 12, 13], [14, 15, 0], [16, 17, 18]]),
        mask_BT=torch.tensor([[True] * 3, [True, True, False], [True] * 3]),
    )
    wanted = torch.cat([
        hugging_face_logps(theirs, prompt, row[mask].tolist())
        for prompt, row, mask in zip(PROMPTS, responses.response_BT, responses.mask_BT, strict=True)
    ])  # fmt: skip
    torch.testing.assert_close(own(responses).logp_K, wanted, rtol=0, atol=1e-4)
    with own.adapter.off():
        assert float((own(responses).logp_K - wanted).abs().max()) > 1e-2
    engine = InProcessEngine(compile=False)
    engine.bind(ModelSpec(name="x", tokenizer=load_tokenizer(str(TOKENS)), policy=own))
    sampling = Sampling(temperature=0.8, max_tokens=6)
    requests = [Request(prompt=p, samples=(0, 1), sampling=sampling, seed=0) for p in PROMPTS[1:]]
    for completion, prompt in zip(
        engine.generate(requests), (PROMPTS[1], PROMPTS[1], PROMPTS[2], PROMPTS[2]), strict=True
    ):
        tokens = completion.token_ids.tolist()
        wanted = hugging_face_logps(theirs, prompt, tokens, 0.8)
        torch.testing.assert_close(completion.logps, wanted, rtol=0, atol=1e-4)


TOKENS = Path(__file__).resolve().parents[2] / "models" / "mini"


def test_what_is_handed_over_is_what_peft_stores(trained, monkeypatch) -> None:
    adapter = trained[0].adapter
    for _ in range(3):  # the names are found once, the values each time
        state = adapter.peft.state_dict()
        settings = {"state_dict": state, "save_embedding_layers": False}
        expected = peft.get_peft_model_state_dict(adapter.peft, **settings)
        found = adapter.stored(adapter.gather())
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        with torch.no_grad():
            for weight in adapter.weights:
                weight += 0.1
        monkeypatch.setattr("peft.utils.get_peft_model_state_dict", None)


def test_merged_weights_are_those_of_a_whole_model(trained, policy: Path, tmp_path: Path) -> None:
    own, theirs = trained
    before = {name: x.clone() for name, x in own.model.state_dict().items()}
    whole = AutoModelForCausalLM.from_pretrained(policy).eval()
    whole.load_state_dict(dict(own.named_weights()))
    prompt, tokens = (5, 6, 7), (8, 9, 10)
    wanted = hugging_face_logps(theirs, prompt, tokens)
    torch.testing.assert_close(hugging_face_logps(whole, prompt, tokens), wanted, rtol=0, atol=1e-3)
    after = own.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    main([str(tmp_path / "adapter"), str(tmp_path / "whole")])
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    torch.testing.assert_close(
        hugging_face_logps(merged, prompt, tokens), wanted, rtol=0, atol=1e-3
    )
    assert len(load_tokenizer(str(tmp_path / "whole"))) == len(load_tokenizer(str(policy)))
    with pytest.raises(ValueError, match=r"output: .* exists"):
        main([str(tmp_path / "adapter"), str(tmp_path / "whole")])
    with pytest.raises(ValueError, match=r"adapter: .* holds no adapter_config.json"):
        main([str(tmp_path / "whole"), str(tmp_path / "other")])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "weights"),
    [
        *(("qwen3_moe", None), ("mixtral", None), ("qwen3_moe", ["down_proj"])),
        ("gpt_oss", ["gate_up_proj", "down_proj"]),
    ],
)
@torch.no_grad()
def test_adapters_of_fused_experts_are_merged(name, weights, tmp_path: Path) -> None:
    """peft wraps a module of fused experts once for each of their weights."""
    attention = "eager" if name == "gpt_oss" else "sdpa"
    folder = save_tiny(tmp_path / "whole", name, attention)
    settings = peft.LoraConfig(r=4, target_modules=ALL, target_parameters=weights)
    own = load_policy(ModelSource(folder, adapter=settings, attention=attention), dropout=False)
    assert any("base_layer" in n and "experts" in n for n in own.model.state_dict())
    generator = torch.Generator().manual_seed(1)
    for weight in own.adapter.weights:
        weight += 0.2 * torch.randn(weight.shape, generator=generator)
    prompt, tokens = (5, 6, 7), (8, 9, 10)
    whole = plain(folder, attention)
    before = hugging_face_logps(whole, prompt, tokens)
    merged = dict(own.named_weights())
    assert merged.keys() == whole.state_dict().keys()
    whole.load_state_dict(merged)
    wanted = hugging_face_logps(own.model.eval(), prompt, tokens)
    found = hugging_face_logps(whole, prompt, tokens)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
    assert (found - before).abs().max() > 0.1


def lora(policy: Path, **settings) -> Policy:
    return load_policy(
        ModelSource(str(policy), adapter=peft.LoraConfig(target_modules=ALL, **settings))
    )


def test_lora_decodes_over_shared_prompts_also_in_bfloat16(policy: Path) -> None:
    own = lora(policy, r=8)
    with with_visible_adapter(own):
        assert find_decoding_method(own.eval()) == "shared"
        with torch.autocast("cpu", torch.bfloat16):
            assert find_decoding_method(own) == "shared"


def test_a_nudge_and_other_values_leave_the_weights_as_they_were(policy: Path) -> None:
    own = lora(policy, r=8)
    before = [weight.clone() for weight in own.adapter.weights]
    with own.adapter.with_visible_adapter():
        assert not any(torch.equal(a, b) for a, b in zip(before, own.adapter.weights, strict=True))
    with pytest.raises(RuntimeError), own.adapter.at([w + 1 for w in before]):
        raise RuntimeError
    assert all(torch.equal(a, b) for a, b in zip(before, own.adapter.weights, strict=True))


def test_the_dropout_of_an_adapter_is_off_in_reinforcement_learning(policy: Path) -> None:
    with pytest.warns(UserWarning, match=r"lora_dropout 0\.5\), which is off"):
        own = load_policy(
            ModelSource(str(policy), adapter=peft.LoraConfig(target_modules=ALL, lora_dropout=0.5)),
            dropout=False,
        )
    responses = Responses(
        prompts=PROMPTS[:1], response_BT=torch.tensor([[3, 4]]), mask_BT=torch.ones(1, 2).bool()
    )
    with with_visible_adapter(own):
        first, second = (own(responses, LogProbs()).logp_K for _ in range(2))
    assert torch.equal(first, second)


def test_a_folder_of_another_kind_is_not_gone_on_with(policy: Path, tmp_path: Path) -> None:
    lora(policy, r=8).save_pretrained(tmp_path)
    for settings, what in (({"r": 4}, "r was 8 and is 4"), ({"lora_alpha": 2}, "lora_alpha was")):
        with pytest.raises(ValueError, match=f"adapter: it is not of the kind in .*{what}"):
            load_policy(
                ModelSource(str(tmp_path), adapter=peft.LoraConfig(target_modules=ALL, **settings))
            )
    with pytest.raises(ValueError, match="its layers differ"):
        load_policy(
            ModelSource(str(tmp_path), adapter=peft.LoraConfig(r=8, target_modules=["q_proj"]))
        )


def test_a_folder_without_tokenizer_or_base(policy: Path, tmp_path: Path) -> None:
    lora(policy, r=8).save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()  # peft's own folders have none
    assert load_policy(str(tmp_path)).config.hidden_size == 32
    assert len(load_tokenizer(str(tmp_path))) == len(load_tokenizer(str(policy)))
    settings = tmp_path / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(policy), "/nowhere/policy"))
    with pytest.raises(ValueError, match="an adapter of '/nowhere/policy', which does not exist"):
        load_policy(str(tmp_path))


@pytest.mark.parametrize(
    "settings",
    [peft.PrefixTuningConfig(num_virtual_tokens=2), peft.AdaLoraConfig(total_step=9)],
)
def test_kinds_that_are_more_than_layers_are_refused(policy: Path, settings) -> None:
    with pytest.raises(ValueError, match=r"adapter: .* is more than weights in layers"):
        load_policy(ModelSource(str(policy), adapter=settings))


def test_weights_in_4_bits_are_not_sharded() -> None:
    assert find_quantization(None, None, shards_adapter=True) is None
    stored = peft.LoraConfig()
    stored.quantization_config = {"load_in_4bit": True}
    for given, folder_config in (({"load_in_4bit": True}, None), (None, stored)):
        with pytest.raises(ValueError, match="quantization: FSDP2 does not shard weights in 4"):
            find_quantization(given, folder_config, shards_adapter=True)
