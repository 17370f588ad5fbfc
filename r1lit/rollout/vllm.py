"""Rollouts from vLLM servers, which are given the policy's weights as training goes on.

T response tokens
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock
from torch import Tensor

from r1lit.endpoint.client import RequestError
from r1lit.errors import check_at_least
from r1lit.rollout.engine import Completion, ModelSpec, OnFinished, Request, RolloutEngine, collect
from r1lit.rollout.fleet import Fleet
from r1lit.rollout.hot_load import max_lora_rank, take_adapter, why_not, why_not_on
from r1lit.rollout.transfers import TRANSFERS, check_not_sharded, from_first, rank
from r1lit.rollout.vllm_check import check_fits
from r1lit.rollout.vllm_probe import Probe
from r1lit.rollout.vllm_process import VLLMProcess, find_python
from r1lit.rollout.vllm_server import VLLMServer, Weights, WeightsRefused, units

REPLY_SAMPLES = 64


class VLLMEngine(RolloutEngine):
    """Generates on vLLM servers, which are given each update's weights.

    Requests are spread over the servers, whoever has least to do first. A request whose server
    dies, hangs, restarts or answers with an error goes to another, or to the same once it is
    back and has the weights: no response is dropped. The seed of a sample is a function of (seed,
    iteration, sample), so that a run can be repeated as far as the servers' batches round alike.

    After each transfer a text's log-probs are compared with the policy's own, and the run stops if
    they differ. What a server generates from other weights than the policy's is not taken.
    Log-probs are those of what is sampled: with top-k or top-p they are renormalised.

    Of a policy with a LoRA adapter the adapter alone is handed over, in a folder, if the servers
    take adapters of its rank; other adapters are merged into the weights.

    Args:
        urls: of servers that run already, ``http://127.0.0.1:8000``, each with the options of
            docs/SCALE_OUT.md, and on machines that see ``weights_dir`` if weights are in folders.
        serve: start one on this machine, and stop it with the run.
        python: a Python that has vLLM, for ``serve``; that of R1LIT_VLLM_PYTHON or of ``make vllm``
            if left out.
        flags: options of the served vLLM, such as ``{max-model-len: 4096}``.
        transfer: how weights get to servers: as a ``folder`` of safetensors; by ``gloo``, over TCP;
            by ``nccl``, to other GPUs than the trainer's; by ``ipc``, within one GPU.
        in_flight_updates: with ``max_staleness``, hand weights over while responses are generated,
            which go on with them: tokens of one response may be of several versions.
        concurrency: requests under way at each server; each is for samples of one group.
        timeout_s: seconds one request may take, and one transfer of weights.
        hang_s: seconds without any answer after which a server counts as hung; with gloo, for a
            tensor too.
        patience_s: seconds without any server after which the run stops.
        weights_dir: where weights are passed on; in the run folder if left out.
        tolerance: what the mean difference of log-probs may be after a transfer; 0.001 in float32
            and 0.05 in other dtypes if left out.
        api_key_env: the environment variable that holds the key, if the servers require one.
    """

    whole_distribution = False

    def __init__(
        self,
        urls: Sequence[str] = (),
        serve: bool = False,
        python: str | None = None,
        flags: dict[str, Any] | None = None,
        transfer: Literal["folder", "gloo", "nccl", "ipc"] = "folder",
        in_flight_updates: bool = False,
        concurrency: int = 32,
        timeout_s: float = 3600.0,
        hang_s: float = 60.0,
        patience_s: float = 600.0,
        weights_dir: str | None = None,
        tolerance: float | None = None,
        api_key_env: str = "OPENAI_API_KEY",
    ) -> None:
        if bool(urls) == serve:
            raise ValueError(
                f"urls: {list(urls)} with serve: {str(serve).lower()}; give the urls of running"
                " servers, or serve: true to start one"
            )
        if isinstance(urls, str):
            raise ValueError(f"urls: {urls!r} is not a list, as [{urls}]")
        check_at_least("concurrency", concurrency, 1)
        for key, value in (("hang_s", hang_s), ("patience_s", patience_s)):
            if not value > 0:
                raise ValueError(f"{key}: {value} is not a positive number of seconds")
        self._python = find_python(python) if serve else ""
        self._flags = dict(flags or {})
        self.concurrency = concurrency
        self._transfer_name = transfer
        self._transfer = TRANSFERS[transfer]()
        self.in_background = not self._transfer.from_memory
        if in_flight_updates and not self.in_background:
            raise ValueError(f"in_flight_updates: true needs transfer: folder, not {transfer}")
        self.in_flight_updates = in_flight_updates
        backend = self._transfer.backend
        self._options = (timeout_s, hang_s, api_key_env, backend, in_flight_updates)
        self._patience_s = patience_s
        self._weights_dir = weights_dir
        self._tolerance = tolerance
        self._process: VLLMProcess | None = None
        self._fleet: Fleet[VLLMServer] | None = None
        self._servers = [VLLMServer(url, *self._options) for url in urls]

    def check(self, model: ModelSpec, prompt_tokens: int, max_tokens: int) -> None:
        """Look at the servers that there are, and their context; see ``RolloutEngine.check``."""
        limits = [server.look_at(model).max_model_len for server in self._servers]
        check_fits(prompt_tokens, max_tokens, *limits, self._flags.get("max-model-len"))

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on; start the server, or look at those there are.

        Raises:
            ValueError: if a server does not answer, serves another model or lacks an option.
        """
        super().bind(model)
        self._memory = threading.Lock()  # held while the policy's weights may change
        self._memory.acquire()
        if self._fleet is not None:
            self._fleet.close()
        self._run = from_first(secrets.token_hex(4))
        self._versions: dict[str, int] = {}  # by label: those that tokens may be of
        if self._weights_dir is None and model.folder is None:
            self._weights_dir = from_first(tempfile.mkdtemp(prefix="r1lit-weights-"))
            weakref.finalize(self, shutil.rmtree, self._weights_dir, ignore_errors=True)
        own = (model.folder or Path()) / "weights"
        self._folder = Path(self._weights_dir or own).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        assert model.policy is not None
        self._adapter = model.policy.adapter
        merged = None if self._adapter is None else why_not(self._adapter, self.in_flight_updates)
        if self._python and not self._flags.get("enable-lora", True):
            merged = merged or "flags: enable-lora is off"
        if self._python and not self._servers:
            self._start(0 if self._adapter is None or merged else max_lora_rank(self._adapter))
        elif not self._python:
            for server in self._servers:
                info = server.look_at(model)
                if self._adapter is not None and not merged:
                    merged = why_not_on(info, server.url, max_lora_rank(self._adapter))
        if merged and self._adapter is not None:
            self._adapter = None
            if rank() == 0:
                warnings.warn(f"adapter: servers get it merged: {merged}", stacklevel=2)
        self._fleet = Fleet(self._servers, self._bring_up, self._patience_s)
        self._probe = Probe(model, self._tolerance)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Hand the weights over to all servers; see ``RolloutEngine.update_weights``.

        A server that cannot be reached gets them later. All ranks call it.

        Raises:
            ValueError: if a server refuses them, or its log-probs are not the policy's afterwards,
                or none is there for ``patience_s``.
        """
        policy = self.model.policy
        assert policy is not None and self._fleet is not None
        if self._adapter is None:
            check_not_sharded(self._transfer_name, policy.parameters())
        expected_T = self._probe.expected_T()
        label = f"{self._run}-{version}"
        if not self.in_flight_updates:
            self._versions = {}
        self._versions[label] = version  # before any rank's server has them
        folder = self._folder / label
        if self._adapter is None:
            send = self._transfer.take(weights, folder)
        else:
            send = take_adapter(self._adapter, folder)
        self._weights = Weights(
            version=version,
            label=label,
            send=send,
            versions=self._versions,
            is_adapter=self._adapter is not None,
        )
        self._newest = self._weights, expected_T
        with self._memory_lent():
            self._fleet.renew()
        for old in self._folder.iterdir() if rank() == 0 else ():
            if old.is_dir() and old != folder:
                shutil.rmtree(old, ignore_errors=True)
        self.version = version

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate`` and ``stream``."""
        return collect(self.stream, requests, on_finished)

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as their requests end; see ``RolloutEngine.stream``.

        Raises:
            ValueError: if a response may become longer than a server takes, or a request is
                refused, or no server is there for ``patience_s``.
        """
        if self.version is None:
            assert self.model.policy is not None
            self.update_weights(self.model.policy.named_weights(), 0)
        assert self._fleet is not None
        known = [server.info for server in self._servers if server.info]
        limits = [info.max_model_len for info in known]
        for request in requests:
            check_fits(len(request.prompt), request.sampling.max_tokens, *limits)
        samples = min(REPLY_SAMPLES, *(info.max_num_seqs for info in known))
        with self._memory_lent():
            self._fleet.share(
                list(units(requests, samples)),
                lambda server, unit: server.begin(unit, self.model, self._weights),
                lambda server, unit, reply: server.finish(reply, self._weights),
                lambda unit, done: on_finished(range(unit.start, unit.start + len(done)), done),
                self.concurrency,
            )

    def close(self) -> None:
        """Stop the server that was started here, and bring none back any more."""
        if self._fleet is not None:
            self._fleet.close()
        if self._process is not None:
            self._process.stop()
        if self._python:
            self._process, self._servers = None, []

    def describe(self) -> dict[str, Any]:
        """Return the report's entries about this engine."""
        return {"engine": "VLLMEngine", "servers": len(self._servers), "flags": self._flags}

    def _start(self, lora_rank: int) -> None:
        url = None
        if rank() == 0:
            log = (self.model.folder or self._folder).absolute() / "vllm.log"
            self._process = VLLMProcess(
                self._python, self.model, self._flags, log, self._transfer, lora_rank
            )
            self._process.start()
            url = self._process.url
        self._servers = [VLLMServer(from_first(url), *self._options)]

    @contextmanager
    def _memory_lent(self) -> Iterator[None]:
        """Let the policy's weights be read by threads that send them; wait for those at the end."""
        if not self._transfer.from_memory:  # then it may be updated meanwhile
            yield
            return
        self._memory.release()
        try:
            yield
        finally:
            self._memory.acquire()

    def _bring_up(self, server: VLLMServer) -> None:
        """Have a server hold the newest weights; runs in a thread of the fleet.

        Raises:
            ValueError: if it is not the right one, or its log-probs are not the policy's.
            RequestError: if it does not answer, or newer weights have come meanwhile.
        """
        if self._process is not None:
            self._process.wait()
        reads_memory = self._transfer.from_memory and self._adapter is None
        with self._memory if reads_memory else nullcontext():
            weights, expected_T = self._newest
            try:
                self._load(server, weights)
            except WeightsRefused:
                if weights is self._weights:
                    raise
        if weights is not self._weights:
            raise RequestError("newer weights have come meanwhile")
        self._probe.check(server, weights, expected_T)

    def _load(self, server: VLLMServer, weights: Weights) -> None:
        name = re.sub(r"\W+", "-", server.url)
        with FileLock(self._folder / f".{name}.lock", timeout=self._options[0]):  # against ranks
            label = server.label()
            if server.info is None or not label.startswith(f"{self._run}-"):
                server.check(self.model)
            if label == weights.label:
                return
            if self._transfer.one_sender and not weights.is_adapter and rank() != 0:
                raise RequestError(f"{server.url} has not got the weights of rank 0 yet")
            server.load(weights)
