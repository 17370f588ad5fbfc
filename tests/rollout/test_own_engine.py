"""An engine of one's own in a few lines: trained with, evaluated with, refused where it must be."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import requests_for
from http_server import CompletionServer
from tiny import data, grpo_config, model
from tiny_distillation import on_policy
from tiny_evaluation import evaluation_config, lines, report, texts

from r1lit.cli import main
from r1lit.rollout import Capabilities, Completion, RolloutEngine, Sampling
from r1lit.seeding import generator


class AnyToken(RolloutEngine):
    """Says four tokens evenly drawn from the vocabulary."""

    def generate(self, requests, on_finished=None):
        size = len(self.model.tokenizer)
        return [
            Completion(
                token_ids=torch.from_numpy(rng.integers(3, size, 4)),
                logps=torch.full((4,), -1.0 / size),
                finish_reason="length",
                version=self.version,
            )
            for request in requests
            for rng in (generator(request.seed, request.iteration, s) for s in request.samples)
        ]


class Recording(AnyToken):
    """Keeps the versions it was given, and a copy of one weight of each."""

    def __init__(self) -> None:
        self.given: list[tuple[int, torch.Tensor]] = []
        self.versions: list[int | None] = []

    def update_weights(self, weights, version):
        super().update_weights(weights, version)
        named = dict(weights)
        assert {"model.embed_tokens.weight", "lm_head.weight"} <= set(named), "tied ones too"
        self.given.append((version, named["model.embed_tokens.weight"].clone()))

    def generate(self, requests, on_finished=None):
        weight = self.model.policy.model.get_input_embeddings().weight
        assert torch.equal(self.given[-1][1], weight), "these are the policy's weights now"
        completions = super().generate(requests, on_finished)
        self.versions.extend({completion.version for completion in completions})
        return completions


class TextOnly(RolloutEngine):
    """Says the samples' last digits, as text."""

    capabilities = Capabilities(tokens=False)

    def generate(self, requests, on_finished=None):
        return [
            Completion(text=str(sample % 10), num_tokens=1, finish_reason="stop")
            for request in requests
            for sample in request.samples
        ]


def engine(name: str, **init_args: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": init_args}


@pytest.mark.long
def test_a_policy_is_trained_and_evaluated_on_what_it_generates(fit, tmp_path: Path):
    cli = fit("run", model(engine=engine("test_own_engine.AnyToken")), data(num_iterations=2))
    metrics = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in metrics] == [0, 1]
    assert all(line["train/mismatch/mean_abs"] > 1 for line in metrics), "its log-probs are false"
    assert cli.trainer.global_step == cli.model.engine.version > 0


@pytest.mark.long
def test_every_update_reaches_the_engine_before_it_generates(fit):
    change = {"class_path": "test_own_engine.Recording"}
    cli = fit("run", model(engine=change), data(num_iterations=3))
    given, versions = cli.model.engine.given, cli.model.engine.versions
    assert [version for version, _ in given] == sorted({version for version, _ in given})
    # before the first iteration, then for each next one or the evaluation behind the last
    assert len(given) == 4 and given[0][0] == 0 and cli.trainer.global_step == given[-1][0]
    assert set(versions) == {version for version, _ in given}
    assert versions == sorted(versions)
    for (_, before), (_, after) in pairwise(given):
        assert not torch.equal(before, after), "a new version is of new weights"


@pytest.mark.long
def test_text_is_enough_for_an_evaluation(policy: Path, tmp_path: Path):
    config = evaluation_config(tmp_path, policy)
    config.write_text(
        config.read_text()
        .replace("r1lit.rollout.InProcessEngine", "test_own_engine.TextOnly")
        .replace("init_args:\n        max_rows: 8", "init_args: {}")
    )
    main(["test", "-c", str(config)])
    assert set(texts(tmp_path / "run").values()) <= set("0123456789")
    assert len(lines(tmp_path / "run")) == 16 and report(tmp_path / "run")["truncated"] == 0


@pytest.mark.long
def test_text_is_enough_to_validate_a_training_module(policy: Path, tmp_path: Path):
    config = grpo_config(tmp_path / "run", policy, model(engine=engine("test_own_engine.TextOnly")))
    cli = main(["validate", "-c", str(config)])
    assert "val/reward" in cli.trainer.callback_metrics


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"class_path": "test_own_engine.TextOnly"}, "engine: TextOnly returns no token ids and"),
        (
            {"class_path": "r1lit.rollout.ServerEngine"},
            r"engine: ServerEngine returns no token ids and log-probs, which training needs; use"
            r" r1lit\.rollout\.InProcessEngine",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["grpo", "on_policy"])
def test_text_is_refused_for_training_in_one_line(
    policy: Path, tmp_path: Path, monkeypatch, engine, message, kind
):
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("something is loaded")

    monkeypatch.setattr("r1lit.modules.base.load_policy", refuse)
    if kind == "grpo":
        config = grpo_config(tmp_path / "run", policy, model(engine=engine))
    else:
        teacher = {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(policy)}}
        config = on_policy(tmp_path / "run", policy, {}, engine=engine, teacher=teacher)
    with pytest.raises(ValueError, match=f"^{message}") as error:
        main(["fit", "-c", str(config)])
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_a_server_with_tokens_but_old_weights_is_refused_too(policy: Path, tmp_path: Path):
    server = CompletionServer(is_vllm=True)
    wanted = engine("r1lit.rollout.ServerEngine", endpoint={"url": server.base_url}, log_probs=True)
    config = grpo_config(tmp_path / "run", policy, model(engine=wanted))
    try:
        with pytest.raises(ValueError, match="cannot be given the weights that each update makes"):
            main(["fit", "-c", str(config)])
    finally:
        server.close()


def test_stream_hands_each_completion_over_once():
    """Also where an engine calls ``on_finished`` with some of them, or with none."""

    class Halfway(TextOnly):
        def generate(self, requests, on_finished=None):
            completions = super().generate(requests)
            if on_finished is not None:
                on_finished([2, 0], [completions[2], completions[0]])
            return completions

    asked = requests_for([[5], [6]], 2, Sampling())
    for made in (TextOnly(), Halfway()):
        told: dict[int, str] = {}

        def keep(indices, completions, told=told):
            assert not set(indices) & set(told)
            told.update((i, c.text) for i, c in zip(indices, completions, strict=True))

        made.stream(asked, keep)
        assert told == {0: "0", 1: "1", 2: "2", 3: "3"}
