"""One vLLM server: is it the right one, what it generates, and how it gets new weights.

T response tokens
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from r1lit.endpoint.client import (
    Client,
    Endpoint,
    MalformedReply,
    RequestError,
    SetupError,
    begin,
    check_url,
    run,
)
from r1lit.rollout.engine import Completion, ModelSpec, Request
from r1lit.rollout.vllm_check import GENERATE, ServerInfo, check_server
from r1lit.rollout.vllm_reply import completions_reader, read_completion
from r1lit.seeding import generator

TRIES = 3
REPLY_TOKENS = 2**17  # of one request: some 170 bytes each


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A version of the policy's weights, by the label under which servers hold it.

    ``send`` hands it to a server once, from beginning to end, or raises a ``RequestError``. With
    ``is_adapter`` it is an adapter beside weights that the server has already. ``versions`` are
    those, by label, that tokens may be of: its own, and those before it if updates are in flight.
    """

    version: int
    label: str
    send: Callable[[VLLMServer, str], object]
    versions: Mapping[str, int]
    is_adapter: bool = False


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The content of one HTTP request: completions ``start`` … of all, of neighbouring samples."""

    request: Request
    samples: range
    start: int


def units(requests: Sequence[Request], num_samples: int) -> Iterator[Unit]:
    """Yield HTTP requests for neighbouring samples, ``num_samples`` and a reply's size at most."""
    start = 0
    for request in requests:
        sampling, names = request.sampling, request.samples
        most = max(1, min(num_samples, REPLY_TOKENS // sampling.max_tokens))
        if sampling.temperature == 0:
            most = 1  # vLLM generates a greedy response once
        begin = 0
        for end in range(1, len(names) + 1):
            ends_here = end == len(names) or names[end] != names[end - 1] + 1
            if ends_here or end - begin == most:
                yield Unit(
                    request=request,
                    samples=range(names[begin], names[end - 1] + 1),
                    start=start + begin,
                )
                begin = end
        start += len(names)


class WeightsRefused(ValueError):
    """A server that answers has not taken the weights in all tries."""


class VLLMServer:
    """Talks to one server, by token ids, over vLLM's own ``/inference/v1/generate``.

    That names the weights behind each completion, which ``/v1/completions`` does not: what a
    server generates from others than it should is not taken.

    Args:
        url: of the server's root; a last ``/v1`` is left out.
        timeout_s: seconds for one request for completions, and for taking weights.
        hang_s: seconds for one of its other answers.
        api_key_env: the environment variable that holds the key, if the server requires one.
        backend: the weight transfer that it must have been started with.
        in_flight: let what runs on the server go on with new weights, from its next token on.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        hang_s: float,
        api_key_env: str,
        backend: str,
        in_flight: bool = False,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.hang_s = hang_s
        check_url(self.url, "urls")
        quick = Endpoint(url=self.url, timeout_s=hang_s, max_retries=0, api_key_env=api_key_env)
        self._quick = Client(quick, "urls")
        self._patient = Client(replace(quick, timeout_s=timeout_s), "urls")
        self._backend = backend
        self._in_flight = in_flight
        self.info: ServerInfo | None = None
        """What ``check`` has found."""

    def check(self, model: ModelSpec) -> ServerInfo:
        """Look whether policies like ``model`` can be trained on what the server generates.

        Raises:
            ValueError: naming what is wrong with it, in one line.
            RequestError: if it does not answer.
        """
        self.info = check_server(self._quick, self.url, self._backend, model)
        return self.info

    def look_at(self, model: ModelSpec) -> ServerInfo:
        """Return what ``check`` finds of a server that must be there.

        Raises:
            ValueError: as ``check``, or if it does not answer.
        """
        try:
            return self.check(model)
        except RequestError as error:
            raise ValueError(
                f"urls: no vLLM server answers at {self.url} ({error}); start it first,"
                " or let serve: true do it"
            ) from error

    def ping(self) -> Future[str]:
        """Request the label of its weights, which its scheduler answers, without waiting."""
        return begin(self._quick.send("weight_info", lambda reply: reply["weight_version"]))

    def label(self) -> str:
        """Return the label of the server's weights."""
        return self.ping().result()

    def load(self, weights: Weights) -> None:
        """Generate from ``weights`` from now on.

        What runs on the server is aborted, or goes on with them (``in_flight``). A transfer that
        fails is tried again while the server is paused: it has lost its former weights then, and
        would die of the next request.

        Raises:
            WeightsRefused: if all tries fail, and the server answers still. It stays paused.
            RequestError: if it does not answer.
        """
        self.post(f"pause?mode={'keep' if self._in_flight else 'abort'}")
        for attempt in range(TRIES):
            try:
                weights.send(self, weights.label)
                break
            except RequestError as error:
                self.label()  # raises if the server has died
                if attempt == TRIES - 1:
                    raise WeightsRefused(
                        f"urls: {self.url} has not taken the weights {weights.label} in"
                        f" {TRIES} tries: {error}"
                    ) from error
        # what is kept has its keys and values computed anew, its tokens so far as a prompt
        kept = "?reset_running_requests=true" if self._in_flight else ""
        self._quick.request(f"reset_prefix_cache{kept}", _success, {})
        self.post("resume")

    def post(
        self,
        path: str,
        payload: dict[str, Any] | None = None,
        beside: Callable[[], object] = lambda: None,
    ) -> Any:
        """Have the server do something, and run ``beside`` meanwhile; return what that returns.

        ``beside`` is the sending side of what the server receives. It has a daemon thread: one that
        hangs is left behind.

        Raises:
            RequestError: if the server refuses, dies, hangs or takes too long, or ``beside`` fails.
        """
        reply = begin(_succeeds(self._patient, path, payload or {}))
        sending = _in_thread(beside)
        under_way: set[Future[Any]] = {reply, sending}
        end = time.monotonic() + self._patient.endpoint.timeout_s
        try:
            while under_way:
                done, under_way = wait(under_way, self.hang_s, FIRST_COMPLETED)
                if reply in done:
                    reply.result()
                if sending in done:
                    sending.result()
                if not done:
                    run(_succeeds(self._quick, "health"))
                    if time.monotonic() > end:
                        raise RequestError(f"{path}: not done in time", timed_out=True)
        finally:
            reply.cancel()
        return sending.result()

    def begin(self, unit: Unit, model: ModelSpec, weights: Weights) -> Future[list[Completion]]:
        """Request a unit's completions, without waiting; ``finish`` reads them."""
        sampling = unit.request.sampling
        named = generator(unit.request.seed, "vllm", unit.request.iteration)
        read = completions_reader(len(unit.samples), weights.versions)
        sent = self._patient.send(
            GENERATE,
            read,
            {
                "model": self._name(weights),
                "token_ids": list(unit.request.prompt),
                "sampling_params": {
                    "n": len(unit.samples),
                    # sample i of a request has the seed + i
                    "seed": int(named.integers(2**62)) + unit.samples.start,
                    "max_tokens": sampling.max_tokens,
                    "temperature": sampling.temperature,
                    "top_p": sampling.top_p,
                    "top_k": sampling.top_k,
                    "logprobs": 0,
                    # the end tokens of this side's policy, not of the server's configuration
                    "ignore_eos": True,
                    "stop_token_ids": list(model.end_ids()),
                    "stop": list(sampling.stop),
                    "detokenize": bool(sampling.stop),
                },
            },
        )
        return begin(sent)

    def finish(self, reply: Future[list[Completion]], weights: Weights) -> list[Completion]:
        """Return the completions that ``begin`` has requested.

        Raises:
            MalformedReply: if it does not hold them, or not all are whole and of ``versions``.
            RequestError: as the client.
        """
        try:
            return reply.result()
        except SetupError as error:
            if weights.is_adapter:
                raise MalformedReply(f"its adapter is gone: it was restarted ({error})") from error
            raise

    def score(self, ids: tuple[int, ...], weights: Weights) -> torch.Tensor:
        """Return log-probs ``[T]`` of all tokens but the first of a text, at temperature 1."""

        def read(reply: dict[str, Any]) -> torch.Tensor:
            read_completion(reply["choices"][0], {weights.label: weights.version})
            scored = zip(ids[1:], reply["prompt_logprobs"][1:], strict=True)
            return torch.tensor([there[str(token)]["logprob"] for token, there in scored])

        sampling = {"max_tokens": 1, "prompt_logprobs": 0, "logprobs": 0, "detokenize": False}
        payload = {"model": self._name(weights), "token_ids": ids, "sampling_params": sampling}
        return self._patient.request(GENERATE, read, payload)

    def _name(self, weights: Weights) -> str:
        assert self.info is not None
        return weights.label if weights.is_adapter else self.info.served


def _in_thread(work: Callable[[], object]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except RuntimeError as error:  # of gloo and NCCL; its frames hold connections
            future.set_exception(RequestError(f"{type(error).__name__}: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="weights").start()
    return future


async def _succeeds(client: Client, path: str, payload: dict[str, Any] | None = None) -> None:
    """Send a request of whose reply the status alone counts."""
    with suppress(MalformedReply):  # success in plain text, or without any
        await client.send(path, lambda reply: None, payload)


def _success(reply: dict[str, Any]) -> None:
    if reply["success"] is not True:
        raise MalformedReply("its prefix cache is still in use")
