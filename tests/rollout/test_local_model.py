"""A model by its path where judges take one: batches of threads, errors, judges over it."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny import save_policy
from transformers import AutoTokenizer

from r1lit.batches import Problem
from r1lit.curation.pairs import main as build_pairs
from r1lit.endpoint.client import PermanentError, in_parallel
from r1lit.policy import ModelSource
from r1lit.rollout import (
    Capabilities,
    Completion,
    InProcessEngine,
    LocalModel,
    Request,
    RolloutEngine,
    Sampling,
)
from r1lit.verifiers import GenerativePreference, GenerativeVerifier

PROBLEM = Problem(uid="", question="What is 2 + 2?", answer="4", source="")


class Scripted(RolloutEngine):
    """Says ``reply`` to whatever it is asked; the first batch waits until ``open`` is set."""

    capabilities = Capabilities(needs_policy=False)

    def __init__(self, reply: str = "It is.\nVERDICT: CORRECT") -> None:
        self.reply = reply
        self.batches: list[int] = []
        self.asked: list[Request] = []
        self.open = threading.Event()
        self.open.set()

    def generate(self, requests, on_finished=None) -> list[Completion]:
        assert self.open.wait(30)
        self.batches.append(len(requests))
        self.asked += requests
        if self.reply == "fails":
            raise ValueError("engine: it failed")
        ids = torch.tensor(self.model.tokenizer(self.reply)["input_ids"][1:])
        return [Completion(token_ids=ids, finish_reason="stop") for _ in requests]


def save(directory: Path, seed: int = 0) -> Path:
    """Save a small random model whose context holds a judge's prompt."""
    config = save_policy(directory, seed=seed) / "config.json"
    settings = json.loads(config.read_text()) | {"max_position_embeddings": 2048}
    config.write_text(json.dumps(settings))
    return directory


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model")))


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


def local(path: str | ModelSource, engine: RolloutEngine | None = None, **settings) -> LocalModel:
    return LocalModel(path, engine=engine, sampling=Sampling(max_tokens=16), **settings)


def asked_of(engine: Scripted) -> list[str]:
    return [engine.model.tokenizer.decode(request.prompt) for request in engine.asked]


def test_a_call_is_one_chat_message_and_its_reply_has_its_tokens(path, engine):
    reply = local(path, engine)("Is it 4?")
    assert asked_of(engine) == ["<|begin|><|user|> Is it 4?<|assistant|>"]
    assert reply.text == "It is.\nVERDICT: CORRECT"
    assert reply.prompt_tokens == len(engine.asked[0].prompt)
    assert reply.completion_tokens == len(engine.model.tokenizer(reply.text)["input_ids"]) - 1


def test_what_threads_ask_meanwhile_is_one_batch(path, engine):
    model = local(path, engine)
    engine.open.clear()
    threading.Timer(1.0, engine.open.set).start()
    replies = in_parallel(lambda n, _: model(f"Is it {n}?").prompt_tokens, range(9), 9)
    assert len(replies) == 9 and sum(engine.batches) == 9
    assert len(engine.batches) <= 3, "what waited for the first batch came together"
    assert len({request.samples for request in engine.asked}) == 9


def test_the_same_prompt_is_the_same_sample_under_a_seed(path, engine):
    for seed in (0, 0, 1):
        local(path, engine, seed=seed)("Is it 4?")
    first, again, other = engine.asked
    assert first == again and first != other


def test_judges_take_it_as_they_take_an_endpoint(path, engine):
    judge = GenerativeVerifier(local(path, engine), num_threads=4)
    verdicts = judge.verify_batch(["4", "four", "4"], [PROBLEM] * 3)
    assert [verdict.status for verdict in verdicts] == ["right"] * 3
    assert judge.costs.totals["requests"] == 2 and judge.costs.totals["completion_tokens"] > 0
    assert "BEGIN REFERENCE ANSWER" in asked_of(engine)[0]
    engine.reply = "The first.\nLABEL: A>>B"
    assert GenerativePreference(local(path, engine))("2 + 2?", "4", "5") == 2.0


def test_a_prompt_that_does_not_fit_is_an_error_of_that_response(path, engine):
    with pytest.raises(PermanentError, match=r"a prompt of \d+ tokens and a reply of 16.*2048"):
        local(path, engine)("four " * 2100)
    assert not engine.asked
    judge = GenerativeVerifier(local(path, engine))
    assert judge.verify("four " * 2100, PROBLEM).status == "error"


def test_a_failure_of_the_engine_is_raised_in_every_call(path):
    model = local(path, Scripted("fails"))
    for _ in range(2):
        with pytest.raises(ValueError, match="engine: it failed"):
            model("Is it 4?")


def test_bad_settings_say_what_is_wrong(path, tmp_path):
    with pytest.raises(ValueError, match=r"model: the directory '.*none' does not"):
        LocalModel(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"max_tokens: 3000 after a prompt of 1 tokens.*2048"):
        LocalModel(path, sampling=Sampling(max_tokens=3000))
    bare = tmp_path / "bare"
    save(bare)
    (bare / "chat_template.jinja").unlink()
    assert AutoTokenizer.from_pretrained(bare).chat_template is None
    with pytest.raises(ValueError, match=r"model: .* cannot answer chat messages; template: "):
        local(str(bare))


def test_its_name_knows_the_weights(path, tmp_path):
    other = save(tmp_path / "other", seed=1)
    names = {local(path).name, local(str(other)).name, local(path, seed=1).name}
    assert len(names) == 3
    assert local(path).name == local(path).name
    assert pickle.loads(pickle.dumps(local(path, Scripted.__new__(Scripted)))).source.path == path


def in_this_process(path: str, prompts: Sequence[str], **settings) -> list[str]:
    source = ModelSource(path, dtype="float32")
    model = local(source, InProcessEngine(max_rows=4, compile=False), **settings)
    return [r.text for r in in_parallel(lambda p, _: model(p), prompts, 4)]


@pytest.mark.long
def test_in_process_replies_do_not_depend_on_the_batch(path):
    prompts = [f"Is it {n}?" for n in range(3)]
    together = in_this_process(path, prompts)
    assert together == [in_this_process(path, [prompt])[0] for prompt in prompts]
    assert together != in_this_process(path, prompts, seed=1)


def test_pairs_are_compared_by_a_model_named_in_yaml(path, tmp_path: Path):
    (tmp_path / "responses.jsonl").write_text(
        "".join(
            f'{{"uid": "u", "sample": {n}, "question": "2 + 2?", "response": "{n}"}}\n'
            for n in range(2)
        )
    )
    (tmp_path / "pairs.yaml").write_text(
        f"""
responses: [{tmp_path}/responses.jsonl]
dirpath: {tmp_path}/pairs
judge:
  class_path: r1lit.verifiers.GenerativePreference
  init_args:
    attempts: 1
    model:
      class_path: r1lit.rollout.LocalModel
      init_args: {{model: nowhere, sampling: {{max_tokens: 4}}}}
"""
    )
    card = build_pairs(
        ["-c", f"{tmp_path}/pairs.yaml", f"--judge.init_args.model.init_args.model={path}"]
    )
    assert card["pairs_compared"] == 1 and card["judgements"] == 0  # it knows nothing
    assert card["settings"]["judge"].startswith(path)
