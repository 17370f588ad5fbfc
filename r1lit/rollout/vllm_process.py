"""A vLLM server as a child of this process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import torch

from r1lit.policy.adapter import base_of
from r1lit.rollout.engine import ModelSpec
from r1lit.rollout.transfers import Transfer
from r1lit.rollout.vllm_check import CPU_FLAG, EXTENSION

VARIABLE = "R1LIT_VLLM_PYTHON"
OWN = Path(".venv-vllm/bin/python")
WORKER = Path(__file__).with_name("vllm_worker")
REPORT_EVERY_S = 15.0
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Of torchrun: vLLM would take them for its own."""


def find_python(given: str | None) -> str:
    """Return a Python that has vLLM: the one given, that of R1LIT_VLLM_PYTHON, or make's own.

    Raises:
        ValueError: if it has none.
    """
    python = given or os.environ.get(VARIABLE) or str(OWN)
    if "/" in python:
        python = str(Path(python).absolute())
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, cwd="/").returncode == 0
    except OSError:
        found = False
    if not found:
        raise ValueError(
            f"python: {python} is no Python with vLLM, which serve: true needs; make vllm installs"
            f" one, {VARIABLE} names another"
        )
    return python


class VLLMProcess:
    """Starts a server with the options that training needs; ends it with this process.

    Args:
        python: a Python that has vLLM.
        model: the policy; its folder gives architecture and tokenizer.
        flags: further options, which have the last word.
        log: the file for the server's output.
        transfer: how it is given weights.
        max_lora_rank: of adapters that it is given; 0 for none.
    """

    def __init__(
        self,
        python: str,
        model: ModelSpec,
        flags: dict[str, Any],
        log: Path,
        transfer: Transfer,
        max_lora_rank: int = 0,
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        assert model.policy is not None
        name = base_of(model.name)
        path = Path(name)
        options: dict[str, Any] = {
            "model": str(path.absolute()) if path.exists() else name,
            "host": "127.0.0.1",
            "port": port,
            "dtype": str(model.policy.dtype).removeprefix("torch."),
            "logprobs-mode": "processed_logprobs",
            "generation-config": "vllm",
            "worker-extension-cls": EXTENSION,
            "weight-transfer-config": json.dumps({"backend": transfer.backend}),
            "enable-scale-out": True,
            CPU_FLAG: not torch.cuda.is_available(),
        }
        self._environment = {"PYTHONPATH": str(WORKER), "VLLM_SERVER_DEV_MODE": "1"}
        self._environment |= transfer.environment
        if max_lora_rank:
            options |= {"enable-lora": True, "max-lora-rank": max_lora_rank}
            self._environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        options |= flags
        command = [python, "-m", "vllm.entrypoints.openai.api_server"]
        for key, value in options.items():
            if value is not None and value is not False:
                command += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        guard = str(WORKER / "guard.py")
        self._command = [sys.executable, "-I", guard, str(os.getpid()), *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = self._is_stopped = False

    def start(self) -> None:
        """Start it, without waiting."""
        kept = {
            k: v for k, v in os.environ.items() if k not in LAUNCHER and "TORCHELASTIC" not in k
        }
        environment = kept | self._environment
        self.log.parent.mkdir(parents=True, exist_ok=True)
        print(f"vLLM is starting at {self.url}; it writes to {self.log}", file=sys.stderr)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, cwd=self.log.parent, stdout=log, stderr=log
            )
        self._stop = weakref.finalize(self, _stop, self._process)

    def stop(self) -> None:
        """End it for good."""
        self._is_stopped = True
        self._stop()

    def wait(self) -> None:
        """Wait until it answers; once it has, it is started again as often as it dies.

        Raises:
            ValueError: if it ends before it has ever answered, or was stopped.
        """
        started = reported = time.monotonic()
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                if self._is_stopped or not self._has_answered:
                    raise ValueError(f"serve: vLLM has ended: {self._last_word()}; see {self.log}")
                self.start()
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    self._has_answered = True
                    return
            except OSError:  # refused, and errors by status too
                time.sleep(0.5)
            if time.monotonic() - reported > REPORT_EVERY_S:
                reported = time.monotonic()
                print(f"vLLM is loading, for {reported - started:.0f} s now", file=sys.stderr)

    def _last_word(self) -> str:
        """Return the last line of the log that names an error, or the last one."""
        lines = self.log.read_text(errors="replace")[-20_000:].split("\n")
        lines = [line.strip()[:300] for line in lines if line.strip()]
        errors = [line for line in lines if "Error" in line and " WARNING " not in line]
        return [*lines[-1:], *errors][-1] if lines else "no output"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the guard, which ends the server."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
