"""Loading: what is refused, in one line, and which code is trusted."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import grpo_config, save_policy
from tiny_evaluation import evaluation_config
from tiny_models import configurations, make_policy, make_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2ForCausalLM,
    LlamaModel,
    Qwen2_5_VLConfig,
    T5Config,
)

from r1lit.cli import main
from r1lit.policy import (
    ModelSource,
    ModelTeacher,
    ServerTeacher,
    context_length,
    load_config,
    load_policy,
    load_tokenizer,
)
from r1lit.policy.scalar_loading import load_reward_config
from r1lit.rewards import RewardModel


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_policy("llama").save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def refusal(call, *args, **kwargs) -> str:
    with pytest.raises(ValueError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


def test_errors_name_the_key_that_a_model_is_given_for(saved):
    nowhere = ModelSource("./nowhere", dtype="bfloat16")
    assert refusal(load_policy, nowhere).startswith("policy: the directory './nowhere' does not")
    for given in ("./nowhere", nowhere):
        source = ModelSource.of(given, "critic")
        assert refusal(load_tokenizer, source.but(dtype=None)).startswith("critic: the directory")
        assert source == ModelSource.of(given) and source.but(path="x").path == "x"
    for field in ({"from_scratch": True}, {"quantization": {"load_in_4bit": True}}):
        message = refusal(ModelSource.frozen, ModelSource(str(saved), **field), "model")
        assert message.startswith(f"model.{next(iter(field))}: ") and "not trained" in message


def test_what_was_saved_comes_back_in_training_mode(saved):
    policy = load_policy(str(saved))
    assert policy.training and policy.dtype == torch.float32
    ids = torch.tensor([[1, 5, 9]])
    assert torch.equal(policy.eval().model(ids).logits, make_policy("llama").model(ids).logits)
    assert load_policy(ModelSource(str(saved), dtype="bfloat16")).dtype == torch.bfloat16
    assert load_tokenizer(str(saved)).eos_token == "<eos>"


def test_from_scratch_takes_the_architecture_alone(saved):
    (saved / "model.safetensors").unlink()
    torch.manual_seed(1)
    policy = load_policy(ModelSource(str(saved), from_scratch=True))
    assert policy.training and policy.config.hidden_size == 32
    assert not torch.equal(policy.model.lm_head.weight, make_policy("llama").model.lm_head.weight)


def test_gradient_checkpointing_can_be_had(saved):
    assert load_policy(str(saved), gradient_checkpointing=True).model.is_gradient_checkpointing
    assert not load_policy(str(saved)).model.is_gradient_checkpointing


def test_no_directory(tmp_path):
    for call in (load_config, load_tokenizer, load_policy):
        assert "does not exist" in refusal(call, str(tmp_path / "absent"))
        assert "does not exist" in refusal(call, "./absent")
        assert "config.json" in refusal(call, str(tmp_path))


@pytest.mark.parametrize("config", [T5Config(), BertConfig(), BertConfig(is_decoder=False)])
def test_no_causal_language_model(config, tmp_path):
    config.save_pretrained(tmp_path)
    message = refusal(load_config, str(tmp_path))
    assert "not a causal language model" in message and config.model_type in message


def test_a_model_that_takes_images_is_refused_by_what_it_takes(tmp_path):
    Qwen2_5_VLConfig().save_pretrained(tmp_path)
    message = refusal(load_config, str(tmp_path))
    assert "'qwen2_5_vl' model, not a causal language model; it takes images too" in message


def test_a_model_without_or_with_another_head(tmp_path):
    LlamaModel(configurations()["llama"]).save_pretrained(tmp_path)
    assert "LlamaModel" in refusal(load_config, str(tmp_path))
    small = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    BertForMaskedLM(small).save_pretrained(tmp_path)
    assert "not a causal language model" in refusal(load_config, str(tmp_path))


def test_no_tokenizer(tmp_path):
    make_policy("gpt2").save_pretrained(tmp_path)
    assert "holds no tokenizer" in refusal(load_tokenizer, str(tmp_path))


def test_no_eos(saved):
    path = saved / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["eos_token"]
    path.write_text(json.dumps(settings))
    assert "no EOS token" in refusal(load_tokenizer, str(saved))


def test_no_padding_token(saved):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(saved)
    assert load_tokenizer(str(saved)).pad_token_id == tokenizer.eos_token_id


def test_no_weights(saved):
    (saved / "model.safetensors").unlink()
    assert "no weights" in refusal(load_policy, str(saved))


def test_missing_weights(saved):
    weights = load_file(saved / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    message = refusal(load_policy, str(saved))
    assert "lacks 1 of" in message and "layers.1.mlp.up_proj" in message


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_damaged_file_is_named(saved, share):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert f"policy: {path} is damaged" in refusal(load_policy, str(saved))


def test_a_configuration_of_another_width_is_told_from_an_attention(saved):
    config = json.loads((saved / "config.json").read_text())
    width = config["intermediate_size"]
    (saved / "config.json").write_text(json.dumps({**config, "intermediate_size": 2 * width}))
    message = refusal(load_policy, str(saved))
    assert f"config.json of {str(saved)!r} gives" in message and str(2 * width) in message
    assert "attention" not in message and "of two models" in message


def test_weights_of_another_shape(saved):
    weights = load_file(saved / "model.safetensors")
    weights["lm_head.weight"] = weights["lm_head.weight"][:-1].clone()
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    refusal(load_policy, str(saved))


@pytest.mark.parametrize("dtype", ["float31", "int8", "nn"])
def test_no_dtype(saved, dtype):
    assert f"dtype: '{dtype}'" in refusal(load_policy, ModelSource(str(saved), dtype=dtype))


@pytest.mark.skipif(Gemma2ForCausalLM._supports_sdpa, reason="this transformers runs Gemma 2 so")
@pytest.mark.parametrize("from_scratch", [True, False])
def test_attention_that_an_architecture_has_not(tmp_path, from_scratch):
    make_policy("gemma2").save_pretrained(tmp_path)
    message = refusal(load_policy, ModelSource(str(tmp_path), from_scratch=from_scratch))
    assert "attention: 'sdpa'" in message and "eager" in message
    load_policy(ModelSource(str(tmp_path), from_scratch=from_scratch, attention="eager"))


def test_context_length():
    assert {context_length(config) for config in configurations().values()} == {512}


CONFIGURATION = """
from pathlib import Path
from transformers import LlamaConfig
Path({ran!r}).touch()
class OwnConfig(LlamaConfig):
    model_type = "own-llama"
"""
MODEL = """
from transformers import LlamaForCausalLM
from .configuration_own import OwnConfig
class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""

TOKENIZER = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast
Path({ran!r}).touch()
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A policy whose classes stand in files beside its weights; running them leaves a trace."""
    folder = save_policy(tmp_path / "own", seed=3)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own-llama", "architectures": ["OwnForCausalLM"]}
    config["auto_map"] = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_own.py").write_text(CONFIGURATION.format(ran=str(tmp_path / "ran")))
    (folder / "modeling_own.py").write_text(MODEL)
    return folder


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(prompt: str = "") -> str:
        raise AssertionError(f"somebody is asked: {prompt}")

    monkeypatch.setattr(builtins, "input", refuse)


USERS: dict[str, Callable[[str], Any]] = {
    "config": load_config,
    "reward config": load_reward_config,
    "policy": load_policy,
    "fresh policy": lambda path: load_policy(ModelSource(path, from_scratch=True)),
    "teacher": lambda path: ModelTeacher(path).context_length(),
    "teacher's weights": lambda path: ModelTeacher(path).load("cpu"),  # type: ignore[arg-type]
    "reward model": RewardModel,
}
TOKENIZER_USERS: dict[str, Callable[[str], Any]] = {
    "tokenizer": load_tokenizer,
    "teacher's tokenizer": lambda path: ServerTeacher("m", path).tokenizer(),
}


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_code_of_a_model_is_refused(user: Callable[[str], Any], own: Path):
    with pytest.raises(ValueError, match=r"own' contains its own Python.* trust_remote_code: true"):
        user(str(own))
    assert not (own.parent / "ran").exists()


@pytest.mark.parametrize("user", TOKENIZER_USERS.values(), ids=TOKENIZER_USERS)
def test_code_of_a_tokenizer_is_not_run(user: Callable[[str], Any], own: Path):
    """A model's code is not needed for its tokenizer; a tokenizer's own is refused."""
    assert user(str(own)).eos_token_id is not None
    path = own / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config |= {"tokenizer_class": "OwnTokenizer"}
    config["auto_map"] = {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}
    path.write_text(json.dumps(config))
    (own / "tokenization_own.py").write_text(TOKENIZER.format(ran=str(own.parent / "ran")))
    with pytest.raises(ValueError, match=r"own' contains its own Python.* trust_remote_code: true"):
        user(str(own))
    assert not (own.parent / "ran").exists()
    load_tokenizer(ModelSource(str(own), trust_remote_code=True))
    assert (own.parent / "ran").exists()


@pytest.mark.parametrize("user", [*USERS.values(), *TOKENIZER_USERS.values()])
def test_a_model_by_url_is_refused(user: Callable[[str], Any]):
    with pytest.raises(ValueError, match=r"'https://x\.org/own/model' is a URL"):
        user("https://x.org/own/model")


@pytest.mark.slow
def test_the_yaml_may_ask_for_it(own: Path, tmp_path: Path):
    config = grpo_config(tmp_path / "run", own)
    with pytest.raises(ValueError, match="trust_remote_code: true"):
        main(["fit", "-c", str(config)])
    assert not (tmp_path / "ran").exists()
    cli = main(["fit", "-c", str(config), "--model.policy.trust_remote_code=true"])
    assert (tmp_path / "ran").exists()
    assert int(cli.model.iteration) > 0
    config = evaluation_config(tmp_path, own)
    with pytest.raises(ValueError, match="trust_remote_code: true"):
        main(["test", "-c", str(config)])
    main(["test", "-c", str(config), "--model.policy.trust_remote_code=true"])
    assert (tmp_path / "run" / "report.json").is_file()


@pytest.mark.long
@pytest.mark.parametrize("command", ["fit", "validate", "test"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/last.ckpt", "s3://bucket/last.ckpt"])
def test_a_checkpoint_by_url_is_refused(command: str, url: str, policy: Path, tmp_path: Path):
    config = grpo_config(tmp_path / "run", policy)
    with pytest.raises(ValueError, match=f"ckpt_path: '{url}' is a URL"):
        main([command, "-c", str(config), f"--ckpt_path={url}"])
