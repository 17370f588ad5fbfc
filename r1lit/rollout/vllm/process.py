"""A vLLM server as a child of this process.

Run as a program this file is the server's guard: it runs a command, and ends all of its processes
on SIGTERM or when its parent is gone.

    python -I process.py PARENT COMMAND …

A server on a GPU must not outlive a trainer that was killed. Linux's death signal goes with the
thread that started a child, so the parent's process is looked at instead. The guard starts at once:
only the standard library is imported.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "R1LIT_VLLM_PYTHON"
OWN = Path(".venv-vllm/bin/python")
WORKER = Path(__file__).parents[1] / "vllm_worker"
EXTENSION = "r1lit_vllm_worker.Extension"
CPU_FLAG = "no-enable-chunked-prefill"
"""vLLM 0.32 on a CPU dies of a seeded request whose prompt is computed in two steps."""
BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""Of vLLM on a GPU: a response is the same in every batch."""
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


def groups_of(gpus: Sequence[int], flags: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Return the GPUs of each server, as many as ``tensor-parallel-size`` of ``flags``.

    Raises:
        ValueError: if they do not divide, or one is there twice.
    """
    size = int(flags.get("tensor-parallel-size", 1))
    if len(set(gpus)) < len(gpus) or min(gpus, default=0) < 0:
        raise ValueError(f"gpus: {list(gpus)} are not different numbers from 0 on")
    if len(gpus) % size:
        raise ValueError(
            f"gpus: {len(gpus)} with tensor-parallel-size: {size} in flags; give a multiple of it"
        )
    return [tuple(gpus[start : start + size]) for start in range(0, len(gpus), size)]


def visible(gpus: Sequence[int]) -> dict[str, str]:
    """Return the environment in which a server sees these of this process's GPUs alone.

    CUDA_VISIBLE_DEVICES=2,3 here, GPU 1 for the server -> CUDA_VISIBLE_DEVICES=3 there
    """
    if not gpus:
        return {}
    here = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": ",".join(here[gpu] if here else str(gpu) for gpu in gpus)}


def check_gpus_are_free(gpus: Sequence[int], serve: bool, transfer: str, sleep: bool) -> None:
    """Raise a ValueError for settings that servers on GPUs of their own have no use for."""
    reasons = (
        (not serve, "urls name servers that run already; set serve to true"),
        (transfer == "ipc", "ipc reads memory of the same GPU; use folder, gloo or nccl"),
        (sleep, "servers take turns with the trainer on its own GPU; set sleep to false"),
    )
    for is_so, reason in reasons:
        if is_so:
            raise ValueError(f"gpus: {list(gpus)} are for servers that this run starts: {reason}")


def check_ranks(gpus: Sequence[tuple[int, ...]], ranks: Sequence[tuple[str, int | None]]) -> None:
    """Check that servers which rank 0 starts are where all ranks can use them.

    Args:
        gpus: of each server; empty if one shares rank 0's.
        ranks: each rank's machine, and its GPU or None.

    Raises:
        ValueError: if a rank is on another machine, or trains on a server's GPU.
    """
    machines = sorted({machine for machine, _ in ranks})
    if len(machines) > 1:
        raise ValueError(
            f"serve: true on {len(machines)} machines ({', '.join(machines)}); servers that a run"
            " starts are reached from one. Start them as docs/VLLM.md says, and give their urls"
        )
    training = {gpu for _, gpu in ranks if gpu is not None}
    if both := sorted(training.intersection(gpu for group in gpus for gpu in group)):
        raise ValueError(f"gpus: {both} are also the trainer's; set trainer.devices to others")
    if len(training) > 1 and not gpus:
        warnings.warn(
            f"serve: true starts one server for {len(training)} GPUs that train, on GPU"
            f" {ranks[0][1]}; gpus gives each server one of its own"
            " (configs/hardware/eight_gpus.yaml)",
            stacklevel=3,
        )


class VLLMProcess:
    """Starts a server with the options that training needs; ends it with this process.

    Args:
        python: a Python that has vLLM.
        model: the policy's folder or name, which gives architecture and tokenizer.
        dtype: of the weights, ``float32``.
        on_cpu: whether it has no GPU.
        flags: further options, which have the last word.
        log: the file for the server's output.
        backend: the weight transfer by which it is given weights.
        environment: variables that the transfer needs.
        max_lora_rank: of adapters that it is given; 0 for none.
    """

    def __init__(
        self,
        python: str,
        model: str,
        dtype: str,
        on_cpu: bool,
        flags: dict[str, Any],
        log: Path,
        backend: str,
        environment: dict[str, str],
        max_lora_rank: int = 0,
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url, self.log = f"http://127.0.0.1:{port}", log
        options: dict[str, Any] = {
            "model": str(Path(model).absolute()) if Path(model).exists() else model,
            "host": "127.0.0.1",
            "port": port,
            "dtype": dtype,
            "logprobs-mode": "processed_logprobs",
            "generation-config": "vllm",
            "worker-extension-cls": EXTENSION,
            "weight-transfer-config": json.dumps({"backend": backend}),
            "enable-scale-out": True,
            CPU_FLAG: on_cpu,
        }
        self._environment = {"PYTHONPATH": str(WORKER), "VLLM_SERVER_DEV_MODE": "1"} | environment
        if max_lora_rank:
            options |= {"enable-lora": True, "max-lora-rank": max_lora_rank}
            self._environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        command = [python, "-m", "vllm.entrypoints.openai.api_server"]
        for key, value in (options | flags).items():
            if value is not None and value is not False:
                command += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        self._command = [sys.executable, "-I", __file__, str(os.getpid()), *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = self._is_stopped = False

    def start(self) -> None:
        """Start the server, without waiting."""
        kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER}
        kept = {key: value for key, value in kept.items() if "TORCHELASTIC" not in key}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        print(f"vLLM is starting at {self.url}; it writes to {self.log}", file=sys.stderr)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=kept | self._environment,
                cwd=self.log.parent,
                stdout=log,
                stderr=log,
            )
        self._stop = weakref.finalize(self, _stop, self._process)

    def stop(self) -> None:
        """End the server for good."""
        self._is_stopped = True
        self._stop()

    async def wait(self, answers: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it ``answers``; once it has, it is started again as often as it dies.

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
            if await answers():
                self._has_answered = True
                return
            await asyncio.sleep(0.5)
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


def guard() -> int:
    """Run the command of this program's arguments; return its exit status."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which sends SIGTERM
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None and not received and os.getppid() == parent:
        time.sleep(0.2)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


if __name__ == "__main__":
    sys.exit(guard())
