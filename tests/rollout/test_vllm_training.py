"""GRPO on rollouts from vLLM through the command line, and servers that cannot serve it."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from real_vllm import MINI, SMALL, VLLM, RealServer, needs_vllm
from tiny import CORRECTION, ROOT, ahead, grpo_config, metrics, save_policy
from waiting import wait_until

from r1lit.cli import main
from r1lit.endpoint.client import Endpoint
from r1lit.endpoint.client import run as run_coroutine
from r1lit.modules.token_values import token_values
from r1lit.rollout.vllm.client import VLLMClient
from r1lit.rollout.vllm.process import VLLMProcess

pytestmark = [pytest.mark.slow, needs_vllm, pytest.mark.timeout(900)]
UPDATES = 2  # of an iteration


def config(run: Path, policy: Path = MINI, **engine: Any) -> Path:
    change = {
        "model": {
            "init_args": {
                "engine": {"class_path": "r1lit.rollout.VLLMEngine", "init_args": engine},
                "sampling": {"max_tokens": 32},
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-3}},
            }
        },
        "data": {"init_args": {"num_iterations": 3, "validation": None}},
        "trainer": {"limit_val_batches": 0},
    }
    return grpo_config(run, policy, change)


def served(**flags: Any) -> dict[str, Any]:
    flags = {"enforce-eager": True, "max-model-len": 512} | flags
    return {"serve": True, "python": VLLM, "flags": flags}


def processes(text: str) -> list[int]:
    """The other processes whose command line or environment holds ``text``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            both = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in both and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def test_the_shipped_yaml_trains_and_its_server_ends_with_the_run(tmp_path, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("R1LIT_TEST_RUN", str(tmp_path))  # marks the processes
    run = tmp_path / "run"
    recipe = config(run)
    flags = json.dumps(served()["flags"])
    engine = f"--model.engine.flags={flags}"
    hardware = ROOT / "configs" / "hardware" / "vllm.yaml"
    main(["fit", "-c", str(recipe), "-c", str(hardware), engine])
    logged = [line for line in metrics(run) if "train/mismatch/max_abs" in line]
    assert len(logged) == 3
    for line in logged:
        assert line["train/mismatch/max_abs"] < 1e-3, "the new weights are those that sample"
        assert line["time/sync_s"] > 0
    assert "Application startup complete" in (run / "vllm.log").read_text()
    assert len(list((run / "weights").iterdir())) <= 2, "the newest weights and a lock"
    assert wait_until(lambda: not processes(str(tmp_path)), 20)


class Compared(Callback):
    """Compares each token of a rollout with the weights that it names."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []
        self.differences: list[float] = []
        self.versions: list[list[set[int]]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.weights.append(copy.deepcopy(pl_module.policy.state_dict()))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:
        policy, rollout = copy.deepcopy(pl_module.policy), outputs["rollout"]
        version_BT = rollout.version_BT.where(rollout.mask_BT, -1)
        self.versions.append([set(row.tolist()) - {-1} for row in version_BT])
        for version in set().union(*self.versions[-1]):
            policy.load_state_dict(self.weights[version // UPDATES])
            logp_BT = token_values(policy, rollout, len(rollout.responses), 1.0, 4096).logp_BT
            of_BT = version_BT == version
            difference = (logp_BT - rollout.logp_sampler_BT)[of_BT].abs().max()
            self.differences.append(float(difference))


def test_rollouts_drawn_while_the_policy_updates_are_of_the_weights_before(tmp_path, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    compare = json.dumps([{"class_path": "test_vllm_training.Compared"}])
    stale = [
        "--model.init_args.collector",
        json.dumps(ahead(1)),
        "--model.init_args.steps",
        json.dumps([CORRECTION]),
    ]
    path = config(tmp_path / "run", **served())
    cli = main(["fit", "-c", str(path), *stale, "--trainer.callbacks+", compare])
    [compared] = [c for c in cli.trainer.callbacks if isinstance(c, Compared)]
    assert len(compared.differences) == 3 and max(compared.differences) < 1e-3
    logged = metrics(tmp_path / "run")
    assert [line["train/staleness/max"] for line in logged] == [0, 2, 2]
    assert all(line["train/mismatch/max_abs"] > 1e-2 for line in logged[1:]), "not the present ones"
    # iteration 0 draws its own; what the others trained on was drawn meanwhile
    assert all(line["time/rollout_s"] < logged[0]["time/rollout_s"] for line in logged[1:])


def test_weights_change_in_the_middle_of_responses(tmp_path, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    writer = {"class_path": "r1lit.callbacks.CurveWriter", "init_args": {"dirpath": str(run)}}
    compare = json.dumps([writer, {"class_path": "test_vllm_training.Compared"}])
    options = {
        "collector": json.dumps(ahead(2)),
        "sampling.max_tokens": "140",
        "steps": json.dumps([CORRECTION]),
    }
    args = [x for key, value in options.items() for x in (f"--model.init_args.{key}", value)]
    # a random policy ends no response, and its updates are quick beside them
    policy = save_policy(tmp_path / "policy", width=128)
    engine = served(**{"max-model-len": 256}) | {"in_flight_updates": True, "concurrency": 1}
    path = config(run, policy, **engine)
    # nothing else: a checkpoint would wait for what is drawn
    longer = ["--data.init_args.num_iterations", "5", "--trainer.callbacks", compare]
    cli = main(["fit", "-c", str(path), *args, *longer])
    [compared] = [c for c in cli.trainer.callbacks if isinstance(c, Compared)]
    assert max(compared.differences) < 1e-3
    assert len(compared.versions) == 5, "each iteration is trained on"
    for iteration, responses in enumerate(compared.versions):
        oldest = UPDATES * max(0, iteration - 2)
        assert all(oldest <= min(r) and max(r) <= UPDATES * iteration for r in responses)
    assert any(len(versions) > 1 for responses in compared.versions for versions in responses)


def test_killed_it_goes_on_with_what_was_drawn(tmp_path):
    """Weights that changed in the middle of responses or not: they are in the checkpoint."""
    run = tmp_path / "run"
    path = config(run, **served(), in_flight_updates=True)
    environment = os.environ | SMALL | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(path), "--ckpt_path", "last"]
    command += [
        "--data.init_args.num_iterations",
        "5",
        "--model.init_args.collector",
        json.dumps(ahead(2)),
    ]
    command += ["--model.init_args.steps", json.dumps([CORRECTION])]
    kill = [{"class_path": "modules.test_resume.KillAt", "init_args": {"iteration": 2}}]
    killed = subprocess.run(
        [*command, "--trainer.callbacks+", json.dumps(kill)], env=environment, cwd=tmp_path
    )
    assert killed.returncode == -signal.SIGKILL
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["pending_rollouts"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [x["iteration"] for x in metrics(run) if "train/loss" in x] == list(range(5))
    table = [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]
    assert len(saved) == 2
    for iteration, drawn in saved.items():
        assert len(drawn["version"]) == len(drawn["token_ids"]) == sum(drawn["num_tokens"])
        trained = [r["num_tokens"] for r in table if r["iteration"] == iteration]
        assert trained == drawn["num_tokens"].tolist()


def test_a_served_vllm_dies_with_a_trainer_that_is_killed(tmp_path):
    run = tmp_path / "run"
    path = config(run, **served())
    environment = os.environ | SMALL | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    environment["R1LIT_TEST_RUN"] = str(tmp_path)
    command = [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(path)]
    trainer = subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True)
    log = run / "vllm.log"
    assert wait_until(lambda: log.exists() and "EngineCore" in log.read_text(), 200)
    assert len(processes(str(tmp_path))) > 2
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    gone = wait_until(lambda: not processes(str(tmp_path)), 30)
    left = processes(str(tmp_path))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert gone, left


def test_a_served_vllm_that_dies_while_it_starts_again(tmp_path, monkeypatch):
    for name, value in (SMALL | {"R1LIT_TEST_RUN": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    server = VLLMProcess(
        VLLM,
        str(MINI),
        "float32",
        True,
        served()["flags"],
        tmp_path / "vllm.log",
        "safetensors",
        {},
    )
    client = VLLMClient(Endpoint(url=server.url, max_retries=0), 5.0, "safetensors")

    def wait() -> None:
        run_coroutine(server.wait(client.answers))

    def vllm() -> list[int]:
        guard = set(processes("vllm/process.py"))
        return [pid for pid in processes(str(tmp_path)) if pid not in guard]

    server.start()
    wait()
    waiting = threading.Thread(target=wait)
    for _ in range(2):  # as it runs, and as it starts again
        died = vllm()
        for pid in died:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not waiting.is_alive():
            waiting.start()
        assert wait_until(lambda died=died: set(vllm()) - set(died), 60)
    waiting.join(200)
    assert not waiting.is_alive()
    with urllib.request.urlopen(f"{server.url}/health", timeout=5) as answer:
        assert answer.status == 200
    server.stop()
    assert wait_until(lambda: not vllm(), 30)
    with pytest.raises(ValueError, match="serve: vLLM has ended"):
        wait()
    assert not vllm(), "what was stopped is not started again"


def test_two_ranks_draw_from_one_server(tmp_path):
    run = tmp_path / "run"
    path = config(run, **served())
    environment = os.environ | SMALL | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(path)]
    command += ["--trainer.devices=2", "--trainer.strategy=ddp"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    logged = [line for line in metrics(run) if "train/mismatch/max_abs" in line]
    assert len(logged) == 3
    assert all(line["train/mismatch/max_abs"] < 1e-3 for line in logged)


class GPUs(Callback):
    """Notes which GPUs vLLM's processes are given."""

    def __init__(self) -> None:
        self.seen: list[set[str]] = []

    def on_train_batch_end(self, *args: Any) -> None:
        given = [Path(f"/proc/{pid}/environ").read_bytes() for pid in processes("vllm.entrypoints")]
        found = re.findall(rb"CUDA_VISIBLE_DEVICES=([\d,]+)", b"\0".join(given))
        self.seen.append({gpus.decode() for gpus in found})


def test_a_server_on_each_of_two_gpus(tmp_path, monkeypatch):
    """vLLM on a CPU has no use for the GPU that it is given: what is told to it is tested."""
    for name, value in (SMALL | {"R1LIT_TEST_RUN": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    look = json.dumps([{"class_path": "test_vllm_training.GPUs"}])
    path = config(run, **served(), gpus=[0, 1])
    cli = main(["fit", "-c", str(path), "--trainer.callbacks+", look])
    [gpus] = [c for c in cli.trainer.callbacks if isinstance(c, GPUs)]
    logged = [line for line in metrics(run) if "train/mismatch/max_abs" in line]
    assert len(logged) == 3
    assert all(line["train/mismatch/max_abs"] < 1e-3 for line in logged)
    assert gpus.seen == [{"0", "1"}] * 3
    for gpu in range(2):
        log = (run / f"vllm-{gpu}.log").read_text()
        assert "POST /inference/v1/generate" in log, "each of them generates"
    assert wait_until(lambda: not processes(str(tmp_path)), 20)


def test_a_vllm_that_cannot_start_is_told_of(tmp_path):
    path = config(tmp_path / "run", **served(dtype="float7"))
    with pytest.raises(ValueError, match=r"serve: vLLM has ended: .*float7") as error:
        main(["fit", "-c", str(path)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "dev", "told"),
    [
        ({}, False, "VLLM_SERVER_DEV_MODE=1"),
        ({"--logprobs-mode": "raw_logprobs"}, True, "--logprobs-mode processed_logprobs"),
        ({"--worker-extension-cls": None, "--weight-transfer-config": None}, True, "extension-cls"),
    ],
    ids=["dev mode", "log-probs", "extension"],
)
def test_a_server_without_an_option(tmp_path, change, dev, told):
    server = RealServer(tmp_path / "vllm.log", change, dev).start()
    try:
        path = config(tmp_path / "run", urls=[server.url])
        with pytest.raises(ValueError, match=told) as error:
            main(["fit", "-c", str(path)])
    finally:
        server.kill()
    assert "\n" not in str(error.value) and server.url in str(error.value)


def test_a_server_of_another_model_tokenizer_or_context(tmp_path, monkeypatch):
    def loads(*args: Any, **options: Any) -> None:
        raise AssertionError("loading")

    monkeypatch.setattr("r1lit.modules.rollouts.load_policy", loads)
    respelt = tmp_path / "respelt"
    shutil.copytree(MINI, respelt)
    tokenizer = json.loads((respelt / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    last = max(vocabulary.values())
    tokenizer["model"]["vocab"] = {t: i if i < 5 else last + 5 - i for t, i in vocabulary.items()}
    (respelt / "tokenizer.json").write_text(json.dumps(tokenizer))
    server = RealServer(tmp_path / "vllm.log", {"--max-model-len": 64}).start()
    try:
        other = save_policy(tmp_path / "other", width=64)
        with pytest.raises(ValueError, match=r"another model than .* hidden_size is 192, not"):
            main(["fit", "-c", str(config(tmp_path / "run", other, urls=[server.url]))])
        with pytest.raises(ValueError, match="exceeds the servers' --max-model-len of 64"):
            main(["fit", "-c", str(config(tmp_path / "run2", urls=[server.url]))])
        with pytest.raises(ValueError, match=r"has another tokenizer than the policy: [^\n]*$"):
            main(["fit", "-c", str(config(tmp_path / "run3", respelt, urls=[server.url]))])
    finally:
        server.kill()
