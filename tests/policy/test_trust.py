"""Code that comes with a model runs where the YAML asks for it, and nobody is asked otherwise."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import grpo_config, save_policy
from tiny_evaluation import evaluation_config

from r1lit.cli import main
from r1lit.policy import ModelTeacher, ServerTeacher, load_config, load_policy, load_tokenizer
from r1lit.policy.scalar import load_reward_config
from r1lit.rewards import RewardModel

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
    "fresh policy": lambda path: load_policy(path, from_scratch=True),
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
    load_tokenizer(str(own), trust_remote_code=True)
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
    cli = main(["fit", "-c", str(config), "--model.trust_remote_code=true"])
    assert (tmp_path / "ran").exists()
    assert int(cli.model.iteration) > 0
    config = evaluation_config(tmp_path, own)
    with pytest.raises(ValueError, match="trust_remote_code: true"):
        main(["test", "-c", str(config)])
    main(["test", "-c", str(config), "--model.trust_remote_code=true"])
    assert (tmp_path / "run" / "report.json").is_file()


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/last.ckpt", "s3://bucket/last.ckpt"])
def test_a_checkpoint_by_url_is_refused(command: str, url: str, policy: Path, tmp_path: Path):
    config = grpo_config(tmp_path / "run", policy)
    with pytest.raises(ValueError, match=f"ckpt_path: '{url}' is a URL"):
        main([command, "-c", str(config), f"--ckpt_path={url}"])
