"""``r1lit test`` and ``predict`` on responses from a real vLLM, through the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_vllm import MINI, SMALL, RealServer, needs_vllm
from test_vllm_training import config, metrics, processes, served, wait_until
from tiny import ROOT, grpo_config
from tiny_evaluation import evaluation_config, lines, texts
from transformers import LlamaForCausalLM

from r1lit.cli import main
from r1lit.policy import load_tokenizer

pytestmark = [pytest.mark.slow, needs_vllm, pytest.mark.timeout(900)]
GREEDY = {"temperature": 0.0, "max_tokens": 24}
LORA = {"class_path": "peft.LoraConfig", "init_args": {"r": 8, "target_modules": "all-linear"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server") / "vllm.log").start()
    yield server
    server.kill()


def vllm(server: RealServer, **options: Any) -> dict[str, Any]:
    return {
        "class_path": "r1lit.rollout.VLLMEngine",
        "init_args": {"urls": [server.url], "patience_s": 60} | options,
    }


def evaluate(folder: Path, command: str, sampling: dict[str, Any], engine: Any, k: int = 1) -> Path:
    folder.mkdir()
    change = {
        "model": {"init_args": {"sampling": sampling}},
        "data": {"init_args": {"evaluation": {"num_samples": k}}},
    }
    path = evaluation_config(folder, MINI, change, num_problems=6)
    given = yaml.safe_load(path.read_text())
    given["model"]["init_args"]["engine"] = engine
    path.write_text(yaml.safe_dump(given))
    if command == "predict":
        path.write_text(path.read_text().replace("    test:\n", "    predict:\n"))
    main([command, "-c", str(path)])
    return folder / "run"


@pytest.mark.parametrize("command", ["test", "predict"])
def test_greedy_responses_are_those_of_this_process(command, server, tmp_path):
    here = {"class_path": "r1lit.rollout.InProcessEngine"}
    there = evaluate(tmp_path / "there", command, GREEDY, vllm(server))
    assert texts(there) == texts(evaluate(tmp_path / "here", command, GREEDY, here))
    assert len(texts(there)) == 6


def test_sampled_responses_can_be_repeated_and_gone_on_with(server, tmp_path):
    sampling = {"temperature": 1.0, "max_tokens": 24}
    whole = evaluate(tmp_path / "whole", "test", sampling, vllm(server), k=4)
    assert len(texts(whole)) == 24 and len(set(texts(whole).values())) > 6
    assert all(0 < line["num_tokens"] <= 24 for line in lines(whole))
    # half of it is lost, and drawn again
    responses = whole / "responses.jsonl"
    before = texts(whole)
    responses.write_text("".join(line + "\n" for line in responses.read_text().splitlines()[::2]))
    main(["test", "-c", str(tmp_path / "whole" / "sums.yaml")])
    assert texts(whole) == before


def test_the_module_that_trains_tests(server, tmp_path):
    problems = [{"class_path": "r1lit.worlds.WorldChain", "init_args": {"num_problems": 4}}]
    change = {
        "model": {
            "init_args": {"engine": vllm(server, transfer="folder"), "sampling": {"max_tokens": 32}}
        },
        "data": {"init_args": {"test": problems}},
    }
    path = grpo_config(tmp_path / "run", MINI, change)
    cli = main(["test", "-c", str(path)])
    assert 0 <= float(cli.trainer.callback_metrics["test/pass_at_1"]) <= 1


@pytest.mark.parametrize("transfer", ["gloo", "adapter"])
def test_training_with_other_transfers(transfer, tmp_path, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    recipe = config(run, **served())
    arguments = ["--model.engine.transfer=gloo"]
    if transfer == "adapter":
        arguments = [f"--model.policy.adapter={json.dumps(LORA)}"]
    main(["fit", "-c", str(recipe), *arguments])
    logged = [line for line in metrics(run) if "train/mismatch/max_abs" in line]
    assert len(logged) == 3
    assert all(line["train/mismatch/max_abs"] < 1e-3 for line in logged)
    written = {path.name for path in (run / "weights").rglob("*.safetensors")}
    assert written == ({"adapter_model.safetensors"} if transfer == "adapter" else set())


def test_a_vocabulary_larger_than_the_tokenizers(tmp_path, monkeypatch):
    """Padded embeddings, as many models have: the policy may sample what no text has."""
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    tokenizer, model = load_tokenizer(str(MINI)), LlamaForCausalLM.from_pretrained(MINI)
    model.resize_token_embeddings(2 * len(tokenizer), mean_resizing=False)
    model.save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    run = tmp_path / "run"
    main(["fit", "-c", str(config(run, tmp_path / "policy", **served()))])
    logged = [line for line in metrics(run) if "train/mismatch/max_abs" in line]
    assert len(logged) == 3
    assert all(line["train/mismatch/max_abs"] < 1e-3 for line in logged)


def test_a_served_vllm_ends_with_a_run_that_fails(tmp_path, monkeypatch):
    """At the failure, not only when the process ends: a notebook's lives on."""
    for name, value in (SMALL | {"R1LIT_TEST_RUN": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    path = config(tmp_path / "run", **served())
    rewards = json.dumps([{"class_path": "tiny.Exploding", "init_args": {"after": 1}}])
    with pytest.raises(ValueError, match="finite"):
        main(["fit", "-c", str(path), f"--model.rewards={rewards}"])
    assert "Application startup complete" in (tmp_path / "run" / "vllm.log").read_text()
    assert wait_until(lambda: not processes(str(tmp_path)), 20)


def test_kills_change_no_response_and_lose_none(tmp_path):
    """The short version of ``python -m experiments.vllm.faults``: a worker, and the trainer."""
    command = [sys.executable, "-m", "experiments.vllm.faults", str(tmp_path / "faults")]
    command += ["--kills", "2", "--iterations", "6", "--victims", "server,trainer"]
    environment = os.environ | SMALL | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=800)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-3000:]
    assert "2 kills" in said
