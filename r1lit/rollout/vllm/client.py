"""One vLLM server: a check that it fits the policy, completions, and taking weights.

Everything here is awaited in the event loop of `r1lit.endpoint`.

T response tokens
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.endpoint.client import Client, Endpoint, MalformedReply, RequestError, SetupError
from r1lit.rollout.engine import ModelSpec
from r1lit.rollout.request import Completion, Request
from r1lit.rollout.vllm.process import BATCH_INVARIANT, CPU_FLAG, EXTENSION
from r1lit.rollout.vllm.receipts import Receipt
from r1lit.seeding import generator

T = TypeVar("T")
GENERATE = "inference/v1/generate"
LOAD_ADAPTER = "v1/load_lora_adapter"
START = "start it as docs/VLLM.md says"
TEXT = "If 3 + 4 = 7 and 7 - 2 = 5, then 2 * 5 + 7 = 17. What is 17 - 9?"
"""Is read, and its log-probs are compared, on both sides."""
TRIES = 3  # of a transfer
REPLY_TOKENS = 2**17  # of one request: some 170 bytes each


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """A server's limits, the dtype of its weights, and the name of its model in requests.

    ``num_workers`` processes hold weights; ``max_lora_rank`` is 0 if it loads no adapters.
    """

    max_model_len: int
    max_num_seqs: int
    dtype: str
    served: str
    num_workers: int
    max_lora_rank: int


Send = Callable[["VLLMClient", str], Awaitable[object]]
"""Hands weights to a server under a label, once; raises a ``RequestError`` if that fails."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A version of the policy's weights, by the label under which servers hold it.

    ``expected_T`` are the policy's own log-probs of a text, ``receipt`` its digests. With
    ``is_adapter`` it is an adapter beside weights that the server has already. ``versions`` are
    those, by label, that tokens may be of: its own, and those before it if updates are in flight.
    ``base`` are the digests of the weights that an adapter is beside.
    """

    version: int
    label: str
    expected_T: torch.Tensor
    send: Send
    versions: Mapping[str, int]
    is_adapter: bool = False
    receipt: Receipt | None = None
    base: Receipt | None = None


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The content of one HTTP request: completions ``start`` … of all, of neighbouring samples."""

    request: Request
    samples: range
    start: int


def units(requests: Sequence[Request], num_samples: int, start: int = 0) -> Iterator[Unit]:
    """Yield HTTP requests for neighbouring samples, ``num_samples`` and a reply's size at most.

    ``start`` is the index of the first completion.
    """
    for request in requests:
        sampling, names = request.sampling, request.samples
        most = max(1, min(num_samples, REPLY_TOKENS // sampling.max_tokens))
        if sampling.temperature == 0:
            most = 1  # vLLM generates a greedy response once
        begin = 0
        for end in range(1, len(names) + 1):
            ends_here = end == len(names) or names[end] != names[end - 1] + 1
            if ends_here or end - begin == most:
                samples = range(names[begin], names[end - 1] + 1)
                yield Unit(request=request, samples=samples, start=start + begin)
                begin = end
        start += len(names)


class WeightsRefused(ValueError):
    """A server that answers has not taken the weights in all tries."""


class VLLMClient:
    """Talks to one server, by token ids, over vLLM's own ``/inference/v1/generate``.

    Its responses name the weights of each completion, which ``/v1/completions`` does not:
    completions of other weights than the expected ones are refused.

    Args:
        endpoint: the server's root; ``timeout_s`` are seconds for one request for completions, and
            for taking weights.
        hang_s: seconds for one of its other answers.
        backend: the weight transfer that it must have been started with.
        in_flight: let requests under way continue with new weights, from their next token on.
        sleeps: whether it must be able to sleep.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hang_s: float,
        backend: str,
        in_flight: bool = False,
        sleeps: bool = False,
    ) -> None:
        self._patient = Client(endpoint, "urls")
        # separate connections: after an error vLLM closes the connection of the request
        self._quick = Client(replace(endpoint, timeout_s=hang_s), "urls")
        self.url, self.hang_s = self._quick.url, hang_s
        self._backend, self._in_flight, self._sleeps = backend, in_flight, sleeps
        self.is_asleep = False
        self.is_loading = False  # also after a transfer that failed, whatever its label says
        self.info: ServerInfo | None = None  # what ``check`` has found
        self.unread: dict[str, list[str]] = {}  # tensors whose digests cannot be compared
        self._has_base = False  # the weights that adapters of this run are beside

    async def ask(
        self, path: str, read: Callable[[Any], T], payload: dict[str, Any] | None = None
    ) -> T:
        """Return the answer, as ``read`` reads it, to a request that takes no time."""
        return await self._quick.send(path, read, payload)

    def _unfit(self, fault: str) -> ValueError:
        return ValueError(f"urls: {self.url} {fault}")

    async def check(self, model: ModelSpec) -> ServerInfo:
        """Look whether policies like ``model`` can be trained on what the server generates.

        Raises:
            ValueError: naming what is wrong with it, in one line.
            RequestError: if it does not answer.
        """
        await self.ask("version", lambda reply: reply["version"])
        self._has_base = False
        try:
            found = await self.ask("server_info?config_format=json", lambda r: r["vllm_config"])
        except SetupError:
            raise self._unfit(
                f"runs without VLLM_SERVER_DEV_MODE=1, so that it takes no new weights; {START}"
            ) from None
        config, scheduler = found["model_config"], found["scheduler_config"]
        if (mode := config["logprobs_mode"]) != "processed_logprobs":
            raise self._unfit(
                f"returns {mode}, not the log-probs of what is sampled; start it with"
                " --logprobs-mode processed_logprobs"
            )
        if found["device_config"]["device"] == "cpu" and scheduler["enable_chunked_prefill"]:
            raise self._unfit(
                "runs on a CPU with chunked prefill, in which vLLM dies of seeds; start it with"
                f" --{CPU_FLAG}"
            )
        described = await self._check_worker(found.get("weight_transfer_config") or {}, model)
        on_gpu = found["device_config"]["device"] != "cpu"  # its CPU has no such switch
        needed = on_gpu and torch.are_deterministic_algorithms_enabled()
        if needed and not described.get("batch_invariant"):
            raise self._unfit(
                f"runs without {BATCH_INVARIANT}=1, which deterministic: true needs; {START}"
            )
        if self._sleeps and on_gpu and not config.get("enable_sleep_mode"):
            raise self._unfit(f"runs without --enable-sleep-mode, which sleep: true needs; {START}")
        served = await self.ask("v1/models", lambda reply: reply["data"][0]["id"])
        if not await self._has_route(GENERATE):
            raise self._unfit(f"lacks --enable-scale-out; {START}")
        await check_tokenizer(self._quick, "detokenize", served, model.tokenizer)
        lora = found.get("lora_config") or {}
        takes_adapters = lora and await self._has_route(LOAD_ADAPTER)
        self.info = ServerInfo(
            max_model_len=config["max_model_len"],
            max_num_seqs=scheduler["max_num_seqs"],
            dtype=config["dtype"].removeprefix("torch."),
            served=served,
            num_workers=await self.ask("get_world_size", lambda reply: reply["world_size"]),
            max_lora_rank=lora["max_lora_rank"] if takes_adapters else 0,
        )
        return self.info

    async def _check_worker(self, transfer: Mapping[str, Any], model: ModelSpec) -> dict[str, Any]:
        """Check that weights can be handed over, and that they are those of the same model.

        Returns:
            What its worker says of itself.
        """
        described, method = None, {"method": "r1lit_describe"}
        with suppress(RequestError):
            described = await self.ask("collective_rpc", lambda reply: reply["results"][0], method)
        if transfer.get("backend") != self._backend or described is None:
            raise self._unfit(
                f"runs without --worker-extension-cls {EXTENSION} and --weight-transfer-config"
                f' \'{{"backend": "{self._backend}"}}\'; {START}'
            )
        config = model.config if model.policy is None else model.policy.config
        own = None if config is None else config.get_text_config()
        for key, there in described.items():
            here = getattr(own, key, None)
            if here is not None and there is not None and here != there:
                raise self._unfit(
                    f"serves another model than {model.name}: its {key} is {there!r}, not {here!r}"
                )
        return described

    async def _has_route(self, path: str) -> bool:
        try:
            await self.ask(path, lambda reply: None, {})
        except SetupError:
            return False
        except RequestError:
            pass  # an empty request is refused where there is something to request
        return True

    async def look_at(self, model: ModelSpec) -> ServerInfo:
        """Return the report of ``check`` about a server that must be there.

        Raises:
            ValueError: as ``check``, or if it does not answer.
        """
        try:
            return await self.check(model)
        except RequestError as error:
            raise ValueError(
                f"urls: no vLLM server answers at {self.url} ({error}); start it first,"
                " or let serve: true do it"
            ) from error

    async def answers(self) -> bool:
        """Return whether it is there and healthy."""
        try:
            await _succeeds(self._quick, "health")
        except RequestError:
            return False
        return True

    async def label(self) -> str:
        """Return the label of the server's weights, which its scheduler answers."""
        return await self.ask("weight_info", lambda reply: reply["weight_version"])

    async def load(self, weights: Weights) -> None:
        """Generate from ``weights`` from now on.

        What runs on the server is aborted, or goes on with them (``in_flight``). A transfer that
        fails is tried again while the server is paused: it has lost its former weights then, and
        would die of the next request.

        Raises:
            WeightsRefused: if all tries fail, and the server answers still. It stays paused.
            RequestError: if it does not answer.
        """
        self.is_loading = True
        if self.is_asleep:  # its cache stays away while there are two sets of weights
            await self.post("wake_up?tags=weights")
        await self.post(f"pause?mode={'keep' if self._in_flight else 'abort'}")
        for attempt in range(TRIES):
            try:
                await weights.send(self, weights.label)
                if weights.receipt is not None:
                    await self.compare(weights.receipt)
                await self._check_base(weights.base)
                break
            except RequestError as error:
                await self.label()  # raises if the server has died
                if attempt == TRIES - 1:
                    raise WeightsRefused(
                        f"urls: {self.url} has not taken the weights {weights.label} in"
                        f" {TRIES} tries: {error}"
                    ) from error
        await self.wake("kv_cache")
        # what is kept has its keys and values computed again, its tokens so far as a prompt
        kept = "?reset_running_requests=true" if self._in_flight else ""
        if not await self.ask(f"reset_prefix_cache{kept}", lambda reply: reply["success"], {}):
            raise MalformedReply("its prefix cache is still in use")
        await self.post("resume")
        self.is_loading = False

    async def sleep(self) -> None:
        """Move its weights to the host and drop its cache; nothing runs on it meanwhile.

        On a CPU vLLM 0.32 only stops generating.
        """
        await self.post("sleep?level=1&mode=abort")
        self.is_asleep = True

    async def wake(self, *tags: str) -> None:
        """Bring back the memory that ``tags`` name, or all; nothing if the server is awake."""
        if self.is_asleep:
            query = "&".join(f"tags={tag}" for tag in tags)
            await self.post(f"wake_up?{query}" if tags else "wake_up")
            self.is_asleep = False

    async def compare(self, receipt: Receipt) -> None:
        """Compare the digests of what the server holds with the policy's.

        Raises:
            MalformedReply: if a tensor differs.
        """
        payload = {"method": receipt.method, "kwargs": receipt.arguments()}
        read = self._patient.send("collective_rpc", lambda reply: reply["results"], payload)
        held = await read
        wrong, unread = receipt.differences(held)
        if wrong:
            raise MalformedReply(
                f"of its {len(receipt.shapes)} {receipt.what} {len(wrong)} differ from the"
                f" policy's, such as {wrong[0]}: {receipt.fault(wrong, held)}"
            )
        if unread and not self.unread.get(receipt.method):
            warnings.warn(
                f"{self.url} keeps {len(unread)} of {len(receipt.shapes)} {receipt.what} in a form"
                f" whose digest cannot be compared, as {unread[0]}: log-probs alone show that they"
                " are right",
                stacklevel=2,
            )
        self.unread[receipt.method] = unread

    async def _check_base(self, base: Receipt | None) -> None:
        """Compare the weights that adapters are beside, once after each start of the server.

        Raises:
            ValueError: if a tensor differs: no transfer would mend it.
        """
        if base is None or self._has_base:
            return
        try:
            await self.compare(base)
        except MalformedReply as error:
            raise self._unfit(f"serves other weights than the adapter's base: {error}") from error
        self._has_base = True

    async def post(
        self,
        path: str,
        payload: dict[str, Any] | None = None,
        meanwhile: Callable[[], T] | None = None,
    ) -> T | None:
        """Have the server do something, and run ``meanwhile``; return what that returns.

        ``meanwhile`` is the sending side of what the server receives. It has a daemon thread: one
        that hangs is left behind.

        Raises:
            RequestError: if the server refuses, dies, hangs or takes too long, or ``meanwhile``
                fails.
        """
        sent = asyncio.create_task(_succeeds(self._patient, path, payload or {}))
        sending = None if meanwhile is None else _in_thread(meanwhile)
        both: list[asyncio.Future[Any]] = [sent] if sending is None else [sent, sending]
        try:
            async with asyncio.timeout(self._patient.endpoint.timeout_s):
                while left := [one for one in both if not one.done()]:
                    done, _ = await asyncio.wait(
                        left, timeout=self.hang_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    for one in left:
                        if one in done:
                            one.result()
                    if not done:
                        await _succeeds(self._quick, "health")
        except TimeoutError:
            raise RequestError(f"{path}: not done in time", timed_out=True) from None
        finally:
            for one in both:
                one.cancel()
        return None if sending is None else sending.result()

    async def generate(self, unit: Unit, model: ModelSpec, weights: Weights) -> list[Completion]:
        """Return a unit's completions.

        Raises:
            MalformedReply: if the reply does not hold them, or not all are whole and of
                ``versions``.
            RequestError: as ``Client.send``.
        """
        sampling, count = unit.request.sampling, len(unit.samples)
        named = generator(unit.request.seed, "vllm", unit.request.iteration)
        parameters = {
            "n": count,
            # sample i of a request has the seed + i
            "seed": int(named.integers(2**62)) + unit.samples.start,
            **{key: getattr(sampling, key) for key in ("max_tokens", "temperature", "top_p")},
            "top_k": sampling.top_k,
            "logprobs": 0,
            # the end tokens of this side's policy, not of the server's configuration
            "ignore_eos": True,
            "stop_token_ids": list(model.end_ids()),
            "stop": list(sampling.stop),
            "detokenize": bool(sampling.stop),
        }

        def read(reply: dict[str, Any]) -> list[Completion]:
            choices = sorted(reply["choices"], key=lambda choice: choice["index"])
            if [choice["index"] for choice in choices] != list(range(count)):
                raise MalformedReply(f"choices: {len(choices)}, not {count}")
            return [read_completion(choice, weights.versions) for choice in choices]

        try:
            return await self._generate(weights, unit.request.prompt, parameters, read)
        except SetupError as error:
            if weights.is_adapter:
                raise MalformedReply(f"its adapter is gone: it was restarted ({error})") from error
            raise

    async def score(self, ids: tuple[int, ...], weights: Weights) -> torch.Tensor:
        """Return log-probs ``[T]`` of all tokens but the first of a text, at temperature 1."""

        def read(reply: dict[str, Any]) -> torch.Tensor:
            read_completion(reply["choices"][0], {weights.label: weights.version})
            scored = zip(ids[1:], reply["prompt_logprobs"][1:], strict=True)
            return torch.tensor([there[str(token)]["logprob"] for token, there in scored])

        parameters = {"max_tokens": 1, "prompt_logprobs": 0, "logprobs": 0, "detokenize": False}
        return await self._generate(weights, ids, parameters, read)

    async def _generate(
        self,
        weights: Weights,
        prompt: tuple[int, ...],
        parameters: dict[str, Any],
        read: Callable[[dict[str, Any]], T],
    ) -> T:
        assert self.info is not None
        name = weights.label if weights.is_adapter else self.info.served
        payload = {"model": name, "token_ids": list(prompt), "sampling_params": parameters}
        return await self._patient.send(GENERATE, read, payload)


def read_completion(choice: dict[str, Any], versions: Mapping[str, int]) -> Completion:
    """Return one completion.

    Args:
        choice: of a reply of ``/inference/v1/generate``.
        versions: of the weights that its tokens may be of, by the label that servers name.

    Raises:
        MalformedReply: if it is not whole, or a token is of other weights.
    """
    if choice["finish_reason"] not in ("stop", "length"):  # aborted by a pause or a shutdown
        raise MalformedReply(f"a response ended by {choice['finish_reason']!r}")
    ids, spans = choice["token_ids"], choice["weight_versions"]
    scored = choice["logprobs"]["content"]
    unknown = sorted({span["version"] for span in spans if span["version"] not in versions})
    if unknown or not spans:
        raise MalformedReply(f"weights: {unknown}, not {[*versions][-1]!r}: it was restarted")
    if [token["token_id"] for token in scored] != ids:
        raise MalformedReply("logprobs: not those of its tokens")
    logp_T = torch.tensor([token["logprob"] for token in scored], dtype=torch.float32)
    if not logp_T.isfinite().all():
        raise MalformedReply("logprobs: not finite")
    version_T = None
    if len(spans) > 1:
        each = [versions[s["version"]] for s in spans for _ in range(s["start"], s["end"])]
        if len(each) != len(ids):
            raise MalformedReply(f"weight_versions: of {len(each)} tokens, not {len(ids)}")
        version_T = torch.tensor(each, dtype=torch.int32)
    return Completion(
        token_ids=torch.tensor(ids, dtype=torch.long),
        logps=logp_T,
        finish_reason=choice["finish_reason"],
        version=versions[spans[0]["version"]],
        version_T=version_T,
    )


def check_context(prompt_tokens: int, max_tokens: int, *limits: Any) -> None:
    """Raise a ValueError for a response that may become longer than a server takes.

    ``limits`` are --max-model-len of each; what vLLM has yet to make a number of is left to it.
    """
    for limit in limits:
        if isinstance(limit, int) and 0 < limit < prompt_tokens + max_tokens:
            raise ValueError(
                f"max_tokens: {max_tokens} after a prompt of {prompt_tokens} tokens exceeds the"
                f" servers' --max-model-len of {limit}"
            )


async def check_tokenizer(
    client: Client, path: str, served: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise a ValueError if a server reads token ids as another text; it may be unable to say."""
    ids = tokenizer(TEXT)["input_ids"]
    there = None
    with suppress(RequestError):
        payload = {"model": served, "tokens": ids}
        there = await client.send(path, lambda reply: str(reply["prompt"]), payload)
    here = str(tokenizer.decode(ids))
    if there is not None and there.split() != here.split():
        raise ValueError(
            f"{client.key}: {client.url} has another tokenizer than the policy: it reads {here!r}"
            f" as {there[:80]!r}; serve the policy's own folder, or one with its tokenizer"
        )


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a thread cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except RuntimeError as error:  # of gloo and NCCL; its frames hold connections
            future.set_exception(RequestError(f"{type(error).__name__}: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="weights").start()
    return asyncio.wrap_future(future)


async def _succeeds(client: Client, path: str, payload: dict[str, Any] | None = None) -> None:
    """Send a request of whose reply the status alone counts."""
    with suppress(MalformedReply):  # success in plain text, or without any
        await client.send(path, lambda reply: None, payload)
