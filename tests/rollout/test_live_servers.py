"""Evaluation against real servers: ``transformers serve`` and, where there is one, vLLM.

R1LIT_VLLM_PYTHON names a Python that has vLLM.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny import save_policy
from tiny_evaluation import evaluation_config, lines, report, texts

from r1lit.cli import main

pytestmark = pytest.mark.slow
SERVES = all(map(importlib.util.find_spec, ("fastapi", "uvicorn", "openai")))
needs_serve = pytest.mark.skipif(
    not SERVES, reason='transformers serve needs pip install "r1lit[serve]"'
)
VLLM = os.environ.get("R1LIT_VLLM_PYTHON", "")


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[str]:
    """Run a server until it answers; end it behind the context."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        for _ in range(2400):
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=5).read()
                break
            except urllib.error.HTTPError:
                break  # it answers
            except OSError:
                time.sleep(0.25)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # vLLM's attention on a CPU knows no heads of fewer than 32
    return save_policy(tmp_path_factory.mktemp("policy"), seed=3, width=256)


def assert_evaluates_and_resumes(base_url: str, policy: Path, folder: Path) -> None:
    """Evaluate on the server, lose half of the responses, and evaluate again."""
    config = evaluation_config(folder, policy)
    server = [
        "--model.engine=r1lit.rollout.ServerEngine",
        f"--model.engine.endpoint.url={base_url}",
    ]
    command = ["test", "-c", str(config), *server, "--model.engine.concurrency=4"]
    cli = main(command)
    assert cli.model.policy is None, "the weights are the server's"
    run = folder / "run"
    assert len(texts(run)) == 16 and len(set(texts(run).values())) > 4
    assert all(1 <= line["num_tokens"] <= 9 for line in lines(run))
    assert report(run)["settings"]["engine"] == "ServerEngine"
    content = (run / "responses.jsonl").read_bytes().splitlines(keepends=True)
    (run / "responses.jsonl").write_bytes(b"".join(content[:8]))
    main(command)
    assert (run / "responses.jsonl").read_bytes().startswith(b"".join(content[:8]))
    assert len(texts(run)) == 16


@contextmanager
def transformers_serve(policy: Path, log: Path) -> Iterator[str]:
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("transformers")), "serve", str(policy),
        "--port", str(port), "--host", "127.0.0.1", "--device", "cpu",
    ]  # fmt: skip
    with running(command, port, log) as base_url:
        yield base_url


@needs_serve
def test_transformers_serve(policy, tmp_path):
    sampled = json.loads((policy / "generation_config.json").read_text()) | {"do_sample": True}
    (policy / "generation_config.json").write_text(json.dumps(sampled))  # else it is greedy
    with transformers_serve(policy, tmp_path / "serve.log") as base_url:
        assert_evaluates_and_resumes(base_url, policy, tmp_path)


@needs_serve
def test_transformers_serve_that_decodes_greedily_is_told_of(tmp_path):
    policy = save_policy(tmp_path / "policy", seed=3)
    config = evaluation_config(tmp_path, policy)
    with transformers_serve(policy, tmp_path / "serve.log") as base_url:
        server = f"--model.engine.endpoint.url={base_url}"
        with pytest.warns(UserWarning, match="are all the same"):
            main(["test", "-c", str(config), "--model.engine=r1lit.rollout.ServerEngine", server])
    assert len(texts(tmp_path / "run")) == 16


@pytest.mark.skipif(not VLLM or not Path(VLLM).is_file(), reason="R1LIT_VLLM_PYTHON names no vLLM")
def test_vllm(policy, tmp_path):
    port = free_port()
    command = [
        VLLM, "-m", "vllm.entrypoints.openai.api_server", "--model", str(policy),
        "--port", str(port), "--host", "127.0.0.1", "--max-model-len", "256", "--dtype", "float32",
        "--enforce-eager", "--gpu-memory-utilization", "0.2",  # of the CPU's memory too
    ]  # fmt: skip
    with running(command, port, tmp_path / "vllm.log") as base_url:
        assert_evaluates_and_resumes(base_url, policy, tmp_path)
