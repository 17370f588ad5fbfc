"""Rollouts from vLLM servers that receive the policy's weights during training.

T response tokens
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import socket
import tempfile
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

import torch
from filelock import AsyncFileLock
from torch import Tensor

from r1lit.endpoint.client import Endpoint, PermanentError, RequestError, begin, check_url, run
from r1lit.errors import check_above, check_at_least
from r1lit.policy.source import base_of
from r1lit.ranks import of_all_ranks, of_first_rank, own_rank
from r1lit.rollout.engine import Capabilities, JoiningEngine, ModelSpec, Runs, stream_to_list
from r1lit.rollout.feed import RequestFeed
from r1lit.rollout.request import Completion, OnFinished, Request
from r1lit.rollout.vllm.client import (
    ServerInfo,
    Unit,
    VLLMClient,
    Weights,
    WeightsRefused,
    check_context,
    units,
)
from r1lit.rollout.vllm.process import (
    BATCH_INVARIANT,
    VLLMProcess,
    check_gpus_are_free,
    check_ranks,
    find_python,
    groups_of,
    visible,
)
from r1lit.rollout.vllm.receipts import AdapterReceipt, Receipt
from r1lit.rollout.vllm.weights import (
    TRANSFERS,
    AdapterTransfer,
    Probe,
    Transfer,
    max_lora_rank,
    why_merged,
)

REPLY_SAMPLES = 64
TICK_S = 0.2
PING_EVERY_S = 5.0
LONGEST_PAUSE_S = 15.0
MAX_TRIES = 10  # of one unit; a server that it kills each time would otherwise go on for ever


class VLLMEngine(JoiningEngine):
    """Generates on vLLM servers, which are given each update's weights.

    Each request goes to the least busy server. If a server dies, hangs, restarts or answers with an
    error, its requests go to another one, or to the same one once it is back and has the weights:
    no response is dropped. The seed of a sample is a function of (seed, iteration, sample), so a
    run can be repeated up to the rounding of the servers' batches.

    After each transfer the digests of all tensors that a server holds are compared with the
    policy's, and then a text's log-probs; the run stops if they differ. Responses that a server
    generated from other weights than the policy's are refused. Log-probs are those of the sampled
    distribution: with top-k or top-p, which evaluation alone may set, they are renormalised.

    If the policy has a LoRA adapter, only the adapter is sent, in a folder, if the servers load
    adapters of its rank; other adapters are merged into the weights.

    Args:
        urls: of servers that run already, ``http://127.0.0.1:8000``, each with the options of
            docs/VLLM.md, and on machines that see ``weights_dir`` if weights are in folders.
        serve: start servers on this machine, and stop them with the run.
        gpus: those of ``serve``, counted as ``trainer.devices`` counts and none of the trainer's: a
            server on each, or on every two with ``flags: {tensor-parallel-size: 2}``. If left out,
            one server shares the trainer's GPU.
        python: a Python that has vLLM, for ``serve``; that of R1LIT_VLLM_PYTHON or of ``make vllm``
            if left out.
        flags: options of the served vLLM, such as ``{max-model-len: 4096}``; without ``dtype`` its
            weights have the policy's.
        transfer: how weights get to servers: as a ``folder`` of safetensors; by ``gloo``, over TCP;
            by ``nccl``, to other GPUs than the trainer's; by ``ipc``, within one GPU.
        in_flight_updates: with ``r1lit.collect.Ahead``, hand weights over while responses are
            generated, which go on with them: tokens of one response may be of several versions.
        sleep: one GPU by turns. After a rollout the server moves its weights to the host and drops
            its cache; the trainer's optimiser state moves to the host while it generates.
        concurrency: requests under way at each server; each is for samples of one group.
        timeout_s: seconds one request may take, and one transfer of weights.
        hang_s: seconds without any answer after which a server counts as hung; with gloo, for a
            tensor too.
        patience_s: seconds without any server after which the run stops.
        weights_dir: where weights are passed on; in the run folder if left out.
        receipts: compare the digests of all tensors after each transfer, to the bit: the policy's,
            or its adapter's, and those of the weights beside it once.
        tolerance: what the mean difference of log-probs may be after a transfer; 0.001 in float32
            and 0.05 in other dtypes if left out.
        api_key_env: the environment variable that holds the key, if the servers require one.
    """

    capabilities = Capabilities(log_probs="kept")

    @classmethod
    def server_share(cls, options: Mapping[str, Any]) -> float:
        """Return the share of the trainer's GPU that a served vLLM takes beside the trainer."""
        if not options.get("serve") or options.get("gpus"):
            return 0.0
        return float((options.get("flags") or {}).get("gpu-memory-utilization", 0.9))

    def __init__(
        self,
        urls: Sequence[str] = (),
        serve: bool = False,
        gpus: Sequence[int] = (),
        python: str | None = None,
        flags: dict[str, Any] | None = None,
        transfer: Literal["folder", "gloo", "nccl", "ipc"] = "folder",
        in_flight_updates: bool = False,
        sleep: bool = False,
        concurrency: int = 32,
        timeout_s: float = 3600.0,
        hang_s: float = 60.0,
        patience_s: float = 600.0,
        weights_dir: str | None = None,
        receipts: bool = True,
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
            check_above(key, value, 0, finite=False)
        self._flags = dict(flags or {})
        self._gpus = groups_of(gpus, self._flags)
        if gpus:
            check_gpus_are_free(gpus, serve, transfer, sleep)
        self._python = find_python(python) if serve else ""
        self.concurrency = concurrency
        self._transfer = TRANSFERS[transfer]()
        runs = self._runs(transfer, in_flight_updates, sleep)
        self.capabilities = replace(self.capabilities, runs=runs)
        self._timeout_s, self._hang_s, self._patience_s = timeout_s, hang_s, patience_s
        self._api_key_env = api_key_env
        self._weights_dir = weights_dir
        self.receipts = receipts
        self._tolerance = tolerance
        self._processes: dict[str, VLLMProcess] = {}  # by URL, of rank 0
        self._fleet: Fleet | None = None
        self._servers = [self._server_at(url) for url in urls]

    def _runs(self, transfer: str, in_flight_updates: bool, sleep: bool) -> Runs:
        """Return when it may generate; see ``Capabilities``."""
        if in_flight_updates and self._transfer.from_memory:
            raise ValueError(f"in_flight_updates: true needs transfer: folder, not {transfer}")
        if sleep:
            check_turns(transfer, in_flight_updates)
            return "in turns"
        if in_flight_updates:
            return "through updates"
        return "alone" if self._transfer.from_memory else "beside updates"

    @property
    def _in_flight(self) -> bool:
        return self.capabilities.runs == "through updates"

    @property
    def _takes_turns(self) -> bool:
        return self.capabilities.runs == "in turns"

    def _server_at(self, url: str) -> VLLMClient:
        url = url.rstrip("/").removesuffix("/v1")
        check_url(url, "urls")
        endpoint = Endpoint(
            url=url, timeout_s=self._timeout_s, max_retries=0, api_key_env=self._api_key_env
        )
        backend, in_flight = self._transfer.backend, self._in_flight
        return VLLMClient(endpoint, self._hang_s, backend, in_flight, sleeps=self._takes_turns)

    def check(self, model: ModelSpec, prompt_tokens: int, max_tokens: int) -> None:
        """Look at the servers that there are, and their context; see ``RolloutEngine.check``."""
        limits = [run(server.look_at(model)).max_model_len for server in self._servers]
        check_context(prompt_tokens, max_tokens, *limits, self._flags.get("max-model-len"))

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on; start the server, or look at those there are.

        Raises:
            ValueError: if a server does not answer, serves another model or lacks an option.
        """
        super().bind(model)
        if self._in_flight and torch.are_deterministic_algorithms_enabled():
            raise ValueError(
                "in_flight_updates: true with deterministic: true; new weights arrive in the middle"
                " of responses, at a token that differs from run to run. Set it to false"
            )
        if self._takes_turns and (ranks := len(of_all_ranks(None))) > 1:
            raise ValueError(
                f"sleep: true with {ranks} processes; one GPU by turns is for one process. Set"
                " trainer.devices to 1, or sleep to false"
            )
        assert model.policy is not None
        self._policy = model.policy
        if self._python:
            gpu = self._policy.device.index if self._policy.device.type == "cuda" else None
            check_ranks(self._gpus, of_all_ranks((socket.gethostname(), gpu)))
        self._memory = asyncio.Lock()  # held while the policy's weights may change
        run(self._memory.acquire())
        if self._fleet is not None:
            run(self._fleet.close())
        self._run = of_first_rank(secrets.token_hex(4))
        self._versions: dict[str, int] = {}  # by label: those that tokens may be of
        if self._weights_dir is None and model.folder is None:
            self._weights_dir = of_first_rank(tempfile.mkdtemp(prefix="r1lit-weights-"))
            weakref.finalize(self, shutil.rmtree, self._weights_dir, ignore_errors=True)
        own = (model.folder or Path()) / "weights"
        self._folder = Path(self._weights_dir or own).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        infos = [] if self._python else [run(server.look_at(model)) for server in self._servers]
        self._sender: Transfer = self._transfer
        self._base_receipt: Receipt | None = None
        self._adapter_receipt: AdapterReceipt | None = None
        lora_rank = self._choose_adapter(infos)
        if self._python and not self._servers:
            urls = of_first_rank(self._start(lora_rank))
            self._servers = [self._server_at(url) for url in urls]
        self._fleet = Fleet(self._servers, self._bring_up, self._patience_s)
        self._probe = Probe(model, self._policy, self._tolerance)

    def _receipts(self, dtypes: Sequence[torch.dtype]) -> dict[str, Receipt]:
        """Return the receipts of ``Weights``; all ranks make them together."""
        adapter = self._policy.adapter
        if adapter is None or not isinstance(self._sender, AdapterTransfer):
            return {"receipt": Receipt(self._policy.named_weights(), dtypes)}
        if self._base_receipt is None:  # is not trained
            self._base_receipt = Receipt(adapter.own_weights(), dtypes)
        self._adapter_receipt = AdapterReceipt(adapter, dtypes, self._adapter_receipt)
        return {"receipt": self._adapter_receipt, "base": self._base_receipt}

    def _choose_adapter(self, infos: Sequence[ServerInfo]) -> int:
        """Hand the policy's adapter over alone, if servers can take it; return the rank for it."""
        adapter = self._policy.adapter
        if adapter is None:
            return 0
        merged = why_merged(adapter, self._in_flight)
        if self._python and not self._flags.get("enable-lora", True):
            merged = merged or "flags: enable-lora is off"
        rank = 0 if merged else max_lora_rank(adapter)
        for server, info in zip(self._servers, infos, strict=False):
            if info.max_lora_rank < rank:
                merged = (
                    f"{server.url} was not started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1,"
                    f" --enable-lora and --max-lora-rank {rank}"
                )
        if merged is None:
            self._sender = AdapterTransfer(adapter)
            return rank
        if own_rank() == 0:
            warnings.warn(f"adapter: servers get it merged: {merged}", stacklevel=3)
        return 0

    def _start(self, lora_rank: int) -> list[str]:
        """Start the servers on rank 0, without waiting; return their URLs there."""
        if own_rank() != 0:
            return []
        deterministic = torch.are_deterministic_algorithms_enabled()
        invariant = {BATCH_INVARIANT: "1"} if deterministic else {}
        sleeps = self._takes_turns and torch.cuda.is_available()  # no flag of vLLM on a CPU
        folder = (self.model.folder or self._folder).absolute()
        for group in self._gpus or [()]:
            process = VLLMProcess(
                self._python,
                base_of(self.model.name),
                dtype=str(self._policy.dtype).removeprefix("torch."),
                on_cpu=not torch.cuda.is_available(),
                flags=({"enable-sleep-mode": True} if sleeps else {}) | self._flags,
                log=folder / ("-".join(["vllm", *map(str, group)]) + ".log"),
                backend=self._transfer.backend,
                environment=self._transfer.environment | invariant | visible(group),
                max_lora_rank=lora_rank,
            )
            process.start()
            self._processes[process.url] = process
        return list(self._processes)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Hand the weights over to all servers; see ``RolloutEngine.update_weights``.

        A server that cannot be reached gets them later. All ranks call it.

        Raises:
            ValueError: if a server refuses them, or its log-probs are not the policy's afterwards,
                or none is there for ``patience_s``.
        """
        assert self._fleet is not None
        self._sender.check(self._policy.parameters())
        label = f"{self._run}-{version}"
        if not self._in_flight:
            self._versions = {}
        self._versions[label] = version  # before any rank's server has them
        folder = self._folder / label
        is_adapter = isinstance(self._sender, AdapterTransfer)
        infos = [server.info for server in self._servers]
        dtypes = [getattr(torch, info.dtype) if info else self._policy.dtype for info in infos]
        self._newest = Weights(
            version=version,
            label=label,
            expected_T=self._probe.expected_T(),
            send=self._sender.take(weights, folder),
            versions=self._versions,
            is_adapter=is_adapter,
            **(self._receipts(dtypes) if self.receipts else {}),
        )
        run(self._lent(self._fleet.renew()))
        for old in self._folder.iterdir() if own_rank() == 0 else ():
            if old.is_dir() and old != folder:
                shutil.rmtree(old, ignore_errors=True)
        self.version = version

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate`` and ``stream``."""
        return stream_to_list(self.stream, requests, on_finished)

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as their requests end; see ``RolloutEngine.stream``.

        Raises:
            ValueError: if a response may become longer than a server takes, or a request is
                refused, or no server is there for ``patience_s``.
        """
        feed = RequestFeed(0)
        feed.end()
        self.stream_joined(requests, on_finished, feed)

    def stream_joined(
        self, requests: Sequence[Request], on_finished: OnFinished, feed: RequestFeed
    ) -> None:
        """Generate as ``RolloutEngine.stream_joined``; joining requests are sent at once."""
        if self.version is None:
            self.update_weights(self._policy.named_weights(), 0)
        assert self._fleet is not None
        if self._takes_turns:
            run(self._fleet.each(VLLMClient.wake))
        known = [server.info for server in self._servers if server.info]
        limits = [info.max_model_len for info in known]
        samples = min(REPLY_SAMPLES, *(info.max_num_seqs for info in known))
        num_taken = 0

        def taken(new: Sequence[Request]) -> list[Unit]:
            nonlocal num_taken
            for request in new:
                check_context(len(request.prompt), request.sampling.max_tokens, *limits)
            start, num_taken = num_taken, num_taken + sum(len(r.samples) for r in new)
            return list(units(new, samples, start))

        first = taken(requests)
        finished: SimpleQueue[tuple[Unit, list[Completion]] | None] = SimpleQueue()

        async def share() -> None:
            assert self._fleet is not None
            news = asyncio.Event()
            feed.on_change = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
            try:
                await self._lent(
                    self._fleet.share(
                        first,
                        lambda server, unit: server.generate(unit, self.model, self._newest),
                        lambda unit, completions: finished.put((unit, completions)),
                        self.concurrency,
                        More(lambda: taken(feed.take()), lambda: feed.over, news),
                    )
                )
            finally:
                finished.put(None)

        sharing = begin(share())
        try:
            while (done := finished.get()) is not None:
                unit, completions = done
                on_finished(range(unit.start, unit.start + len(completions)), completions)
        except BaseException:
            sharing.cancel()
            with suppress(Empty):  # what was lent is back
                while finished.get(timeout=self._hang_s) is not None:
                    pass
            raise
        sharing.result()

    def release(self) -> None:
        """Have the servers sleep, if they take turns; the next rollout or transfer wakes them."""
        if self._takes_turns and self._fleet is not None:
            run(self._fleet.each(VLLMClient.sleep))

    def close(self) -> None:
        """Stop the servers that were started here, and bring none back any more."""
        if self._fleet is not None:
            run(self._fleet.close())
        for process in self._processes.values():
            process.stop()
        if self._python:
            self._processes, self._servers = {}, []

    def describe(self) -> dict[str, Any]:
        """Return the report's entries about this engine."""
        return {"engine": "VLLMEngine", "servers": len(self._servers), "flags": self._flags}

    async def _lent(self, work: Awaitable[None]) -> None:
        """Let the policy's weights be sent meanwhile; wait at the end for what sends them."""
        if not self._sender.from_memory:  # then it may be updated meanwhile
            await work
            return
        self._memory.release()
        try:
            await work
        finally:
            await self._memory.acquire()

    async def _bring_up(self, server: VLLMClient) -> None:
        """Have a server hold the newest weights.

        Raises:
            ValueError: if it is not the right one, or its log-probs are not the policy's.
            RequestError: if it does not answer, or newer weights have come meanwhile.
        """
        if server.url in self._processes:
            await self._processes[server.url].wait(server.answers)
        async with self._memory if self._sender.from_memory else nullcontext():
            newest = self._newest
            try:
                await self._load(server, newest)
            except WeightsRefused:
                if newest is self._newest:
                    raise
        if newest is not self._newest:
            raise RequestError("newer weights have come meanwhile")
        await self._probe.check(server, newest)

    async def _load(self, server: VLLMClient, weights: Weights) -> None:
        name = re.sub(r"\W+", "-", server.url)
        lock = AsyncFileLock(self._folder / f".{name}.lock", timeout=self._timeout_s)
        async with lock:  # against other ranks
            label = await server.label()
            if server.info is None or not label.startswith(f"{self._run}-"):
                await server.check(self.model)
            if label == weights.label and not server.is_loading:
                await server.wake()
                return
            if self._sender.one_sender and own_rank() != 0:
                raise RequestError(f"{server.url} has not got the weights of rank 0 yet")
            await server.load(weights)


def check_turns(transfer: str, in_flight_updates: bool) -> None:
    """Raise a ValueError for what a server that sleeps between rollouts cannot do."""
    if in_flight_updates:
        raise ValueError(
            "sleep: true with in_flight_updates: true; a server that sleeps generates nothing"
            " meanwhile. Set one of them to false"
        )
    if transfer == "nccl":
        raise ValueError(
            "sleep: true with transfer: nccl, which sends to other GPUs than the trainer's; one GPU"
            " by turns needs ipc, folder or gloo"
        )


@dataclass(frozen=True)
class More:
    """Work that joins a ``Fleet.share`` under way.

    ``take`` returns what has come, ``over`` tells whether all has, and ``news`` is set whenever one
    of them may return something else.
    """

    take: Callable[[], Sequence[Any]]
    over: Callable[[], bool]
    news: asyncio.Event


class Fleet:
    """Servers that share the work: each is up, or on its way back in a task of its own.

    ``renew`` may be awaited while a ``share`` is under way.

    Args:
        servers: all of them.
        bring_up: makes a server ready; a ``RequestError`` has it tried again, any other error is
            raised by whoever awaits the fleet.
        patience_s: seconds without any server after which the run stops.
    """

    def __init__(
        self,
        servers: Sequence[VLLMClient],
        bring_up: Callable[[VLLMClient], Awaitable[object]],
        patience_s: float,
    ) -> None:
        self.servers = list(servers)
        self.up: list[VLLMClient] = []
        self._bring_up, self._patience_s = bring_up, patience_s
        self._coming: dict[VLLMClient, asyncio.Task[None]] = {}
        self._failed: dict[VLLMClient, str] = {}
        self._working: dict[asyncio.Task[Any], VLLMClient] = {}
        self._last_up = time.monotonic()
        self._round = 0  # of ``renew``

    async def renew(self) -> None:
        """Bring all up again; return when each is, or has failed once, and one is at least."""
        self._round += 1
        self.up.clear()
        self._failed.clear()
        self._last_up = time.monotonic()
        while not self.up or len(self.up) + len(self._failed) < len(self.servers):
            self.refresh()
            await _first_of(self._coming.values())

    def lose(self, server: VLLMClient, reason: object) -> None:
        """Give a server nothing more until it is up again, and what it has to others."""
        if server in self.up:
            self.up.remove(server)
            warnings.warn(f"{server.url} is left out until it is back: {reason}", stacklevel=2)
        self._failed[server] = str(reason)
        for task, there in self._working.items():
            if there is server:
                task.cancel()

    def refresh(self) -> None:
        """Send for who is down.

        Raises:
            ValueError: if none has been up for ``patience_s``.
            Exception: of ``bring_up``.
        """
        for server in self.servers:
            coming = self._coming.get(server)
            if coming is not None and coming.done():
                self._coming.pop(server).result()
            elif coming is None and server not in self.up:
                self._coming[server] = asyncio.create_task(self._come_back(server))
        if self.up:
            self._last_up = time.monotonic()
        elif time.monotonic() - self._last_up > self._patience_s:
            last = next(iter(self._failed.values()), "none has answered")
            raise ValueError(
                f"urls: no server has been up for {self._patience_s:g} s; the last time, {last}."
                " No update used the missing responses: start a server, and continue from the last"
                " checkpoint with --ckpt_path last"
            )

    async def each(self, work: Callable[[VLLMClient], Awaitable[object]]) -> None:
        """Have each server that is up do something; one that does not answer is lost."""
        for server in list(self.up):
            try:
                await work(server)
            except RequestError as error:
                self.lose(server, error)

    async def close(self) -> None:
        """Stop bringing servers back."""
        for task in self._coming.values():
            task.cancel()

    async def _come_back(self, server: VLLMClient) -> None:
        pause_s = 0.5
        while server not in self.up:
            began = self._round
            try:
                await self._bring_up(server)
            except RequestError as error:
                self.lose(server, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                if began == self._round:  # else it may hold older weights
                    self.up.append(server)
                    self._failed.pop(server, None)

    async def share(
        self,
        units: Sequence[Unit],
        work: Callable[[VLLMClient, Unit], Coroutine[Any, Any, list[Completion]]],
        on_done: Callable[[Unit, list[Completion]], None],
        at_once: int,
        more: More | None = None,
    ) -> None:
        """Have every unit done by some server, whatever becomes of single ones.

        ``more`` may add units while others are under way.

        Whoever has least to do gets the next unit, ``at_once`` at most. If one fails or its server
        does not answer, all that the server has goes to others, and it is brought up before it
        gets more.

        Raises:
            ValueError: if a unit is refused or fails ``MAX_TRIES`` times, or as ``refresh``.
        """
        undone, number = dict(enumerate(units)), len(units)
        waiting, tries = deque(undone), Counter[int]()
        running: dict[asyncio.Task[list[Completion]], int] = {}
        pings = [asyncio.create_task(self._watch(server)) for server in self.servers]
        try:
            while waiting or running or not (more is None or more.over()):
                if more is not None:
                    more.news.clear()
                    for unit in more.take():
                        undone[number] = unit
                        waiting.append(number)
                        number += 1
                self.refresh()
                while waiting and (server := self._least_busy(at_once)) is not None:
                    index = waiting.popleft()
                    task = asyncio.create_task(work(server, undone[index]))
                    running[task], self._working[task] = index, server
                news = None if more is None else more.news
                await _first_of(running or self._coming.values(), news)
                back = []
                for task in [task for task in running if task.done()]:
                    index, server = running.pop(task), self._working.pop(task)
                    if not task.cancelled() and task.exception() is None:
                        on_done(undone.pop(index), task.result())
                        continue
                    back.append(index)
                    if not task.cancelled():  # else its server was lost
                        tries[index] += 1
                        self._failure(server, task.exception(), tries[index])
                waiting.extendleft(sorted(back, reverse=True))
        finally:
            for left in (*running, *pings):
                self._working.pop(left, None)
                left.cancel()

    def _least_busy(self, at_once: int) -> VLLMClient | None:
        """Return the server that is up and has least to do, if it has less than ``at_once``."""
        load = Counter(id(server) for server in self._working.values())
        server = min(self.up, key=lambda server: load[id(server)], default=None)
        return None if server is None or load[id(server)] >= at_once else server

    def _failure(self, server: VLLMClient, error: BaseException | None, tries: int) -> None:
        """Lose a server, or raise what no other server would do better."""
        if not isinstance(error, RequestError):
            assert error is not None
            raise error
        if isinstance(error, PermanentError):
            raise ValueError(str(error)) from error
        if tries == MAX_TRIES:
            raise ValueError(
                f"urls: a request has failed {MAX_TRIES} times; the last time, {server.url}:"
                f" {error}"
            ) from error
        self.lose(server, error)

    async def _watch(self, server: VLLMClient) -> None:
        """Lose a server that does not answer twice; a torn connection is no dead server."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            for last in (False, True):
                try:
                    await server.label()
                    break
                except RequestError as error:
                    if last and server in self.up:
                        self.lose(server, f"no answer ({error})")


async def _first_of(tasks: Iterable[asyncio.Task[Any]], news: asyncio.Event | None = None) -> None:
    """Wait until one of them ends, or there is news, or for a moment."""
    heard = None if news is None else asyncio.create_task(news.wait())
    some = [*tasks, *([] if heard is None else [heard])]
    try:
        if some:
            await asyncio.wait(some, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(TICK_S)
    finally:
        if heard is not None:
            heard.cancel()
