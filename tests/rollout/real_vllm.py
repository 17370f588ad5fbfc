"""A real vLLM server that a test starts, kills and starts again at the same URL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny import ROOT

VLLM = os.environ.get("R1LIT_VLLM_PYTHON", "")
MINI = ROOT / "models" / "mini"
WORKER = ROOT / "r1lit" / "rollout" / "vllm_worker"
needs_vllm = pytest.mark.skipif(
    not VLLM or not Path(VLLM).is_file(), reason="R1LIT_VLLM_PYTHON names no Python with vLLM"
)
SMALL = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RealServer:
    """``change`` replaces options, None leaves one out; ``dev`` is VLLM_SERVER_DEV_MODE."""

    def __init__(
        self,
        log: Path,
        change: dict[str, Any] | None = None,
        dev: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port, self.log = free_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        options: dict[str, Any] = {
            "--model": MINI,
            "--host": "127.0.0.1",
            "--port": self.port,
            "--dtype": "float32",
            "--max-model-len": 512,
            "--logprobs-mode": "processed_logprobs",
            "--worker-extension-cls": "r1lit_vllm_worker.Extension",
            "--weight-transfer-config": '{"backend": "safetensors"}',
        } | (change or {})
        self.command = [VLLM, "-m", "vllm.entrypoints.openai.api_server"]
        given = {key: value for key, value in options.items() if value is not None}
        self.command += [str(x) for pair in given.items() for x in pair if x != ""]
        self.command += ["--enforce-eager", "--enable-scale-out"]
        self.command += ["--no-enable-chunked-prefill"]
        self.env = os.environ | SMALL | {"PYTHONPATH": str(WORKER)}
        self.env |= {"VLLM_SERVER_DEV_MODE": "1"} if dev else {}
        self.env |= environment or {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait: bool = True) -> RealServer:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.env, cwd="/", stdout=log, stderr=log, start_new_session=True
            )
        while wait and not self.answers():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.25)
        return self

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.wait()
