"""What is wrong with servers is one line, before any weights are loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import CompletionServer
from tiny import data, grpo_config, model
from tiny_evaluation import evaluation_config

from r1lit.cli import main

NOBODY = "http://127.0.0.1:9"
ENGINE = "--model.init_args.engine="


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*args: Any, **options: Any) -> None:
        raise AssertionError("loading")

    for module in ("rollouts", "evaluation", "base"):
        monkeypatch.setattr(f"r1lit.modules.{module}.load_policy", loads)


@pytest.fixture
def says_other_texts() -> Iterator[CompletionServer]:
    server = CompletionServer(is_vllm=True, reads="of another language")
    yield server
    server.close()


def engine(**init_args: Any) -> dict[str, Any]:
    return {"class_path": "r1lit.rollout.VLLMEngine", "init_args": init_args}


@pytest.mark.long
def test_no_server_at_the_url(tmp_path: Path, policy: Path) -> None:
    path = grpo_config(tmp_path / "run", policy, model(engine=engine(urls=[NOBODY])))
    with pytest.raises(ValueError, match=rf"^urls: no vLLM server answers at {NOBODY} [^\n]*$"):
        main(["fit", "-c", str(path)])
    args = [str(evaluation_config(tmp_path, policy)), ENGINE + json.dumps(engine(urls=[NOBODY]))]
    with pytest.raises(ValueError, match=rf"^urls: no vLLM server answers at {NOBODY} [^\n]*$"):
        main(["test", "-c", *args])


@pytest.mark.long
@pytest.mark.parametrize("later", [False, True])
def test_a_context_too_short_for_the_longest_response(
    tmp_path: Path, policy: Path, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any phase of the run; ``flags`` are known before the server that they are for starts."""
    monkeypatch.setattr("r1lit.rollout.vllm.engine.find_python", lambda given: "python")
    served = engine(serve=True, flags={"max-model-len": 32})
    lengths = {"max_tokens": 8 if later else 40}
    phases = {"max_tokens_from": {1: 40}} if later else {}
    change = model(engine=served, sampling=lengths, **phases)
    path = grpo_config(tmp_path / "run", policy, change | data(num_iterations=2))
    told = (
        r"^max_tokens: 40 after a prompt of \d+ tokens exceeds the servers' --max-model-len of 32"
    )
    with pytest.raises(ValueError, match=told):
        main(["fit", "-c", str(path)])


def test_another_tokenizer(
    tmp_path: Path, policy: Path, says_other_texts: CompletionServer
) -> None:
    """An evaluation sends token ids, which would be other words there."""
    init_args = {"endpoint": {"url": says_other_texts.base_url}}
    server = {"class_path": "r1lit.rollout.ServerEngine", "init_args": init_args}
    args = [str(evaluation_config(tmp_path, policy)), ENGINE + json.dumps(server)]
    told = rf"^endpoint.url: {says_other_texts.base_url} has another tokenizer than the policy: "
    with pytest.raises(ValueError, match=told):
        main(["test", "-c", *args])
    assert not says_other_texts.bodies
