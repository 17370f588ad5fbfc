"""One vLLM server: is it the right one, what it generates, and how it gets new weights.

T response tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from r1lit.client import Client, MalformedReply, Reply, RequestError, SetupError
from r1lit.rollout.engine import Completion, ModelSpec, Request
from r1lit.seeding import generator

GENERATE = "inference/v1/generate"
EXTENSION = "r1lit_vllm_worker.Extension"
CPU_FLAG = "no-enable-chunked-prefill"
"""vLLM 0.32 on a CPU dies of a seeded request whose prompt is computed in two steps."""
TRIES = 3
REPLY_TOKENS = 2**17  # of one request: some 170 bytes each
START = "start it as docs/SCALE_OUT.md says"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights in a folder of safetensors: the tensors' names, and what servers call them."""

    folder: Path
    names: tuple[str, ...]
    version: int
    label: str


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one HTTP request asks for: completions ``start`` … of all, of neighbouring samples."""

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
            most = 1  # vLLM draws a greedy response once
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
        api_key_env: the environment variable that holds the key, if the server wants one.
    """

    def __init__(self, url: str, timeout_s: float, hang_s: float, api_key_env: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        options = {"max_retries": 0, "api_key_env": api_key_env}
        try:
            self._patient = Client(self.url, timeout_s=timeout_s, **options)  # type: ignore[arg-type]
            self._quick = Client(self.url, timeout_s=hang_s, **options)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(str(error).replace("base_url:", "urls:", 1)) from None
        self.max_model_len = self.max_num_seqs = 0
        self.dtype = ""
        self._served = ""

    def check(self, model: ModelSpec) -> None:
        """Look whether policies like ``model`` can be trained on what the server generates.

        Raises:
            ValueError: naming what is wrong with it, in one line.
            RequestError: if it does not answer.
        """
        get = self._quick.request
        get("version", lambda reply: reply["version"])
        try:
            info = get("server_info?config_format=json", lambda reply: reply["vllm_config"])
        except SetupError:
            raise ValueError(
                f"urls: {self.url} runs without VLLM_SERVER_DEV_MODE=1, so that it takes no new"
                f" weights; {START}"
            ) from None
        config = info["model_config"]
        self.max_model_len = config["max_model_len"]
        self.max_num_seqs = info["scheduler_config"]["max_num_seqs"]
        self.dtype = config["dtype"].removeprefix("torch.")
        if config["logprobs_mode"] != "processed_logprobs":
            raise ValueError(
                f"urls: {self.url} returns {config['logprobs_mode']}, not the log-probs of what is"
                " sampled; start it with --logprobs-mode processed_logprobs"
            )
        on_cpu = info["device_config"]["device"] == "cpu"
        if on_cpu and info["scheduler_config"]["enable_chunked_prefill"]:
            raise ValueError(
                f"urls: {self.url} runs on a CPU with chunked prefill, in which vLLM dies of"
                f" seeds; start it with --{CPU_FLAG}"
            )
        transfer = (info.get("weight_transfer_config") or {}).get("backend")
        try:
            payload = {"method": "r1lit_describe"}
            described = get("collective_rpc", lambda reply: reply["results"][0], payload)
        except (RequestError, ValueError):
            described = None
        if transfer != "safetensors" or described is None:
            raise ValueError(
                f"urls: {self.url} runs without --worker-extension-cls {EXTENSION} and"
                f' --weight-transfer-config \'{{"backend": "safetensors"}}\'; {START}'
            )
        self._served = get("v1/models", lambda reply: reply["data"][0]["id"])
        try:
            get(GENERATE, lambda reply: None, {})
        except SetupError:
            raise ValueError(f"urls: {self.url} lacks --enable-scale-out; {START}") from None
        except RequestError:
            pass  # an empty request is refused where there is something to ask
        if model.policy is None:
            return
        own = model.policy.config.get_text_config()
        for key, there in described.items():
            here = getattr(own, key, None)
            if here is not None and there is not None and here != there:
                raise ValueError(
                    f"urls: {self.url} serves another model than {model.name}: its {key} is"
                    f" {there!r}, not {here!r}"
                )

    def ping(self) -> Reply:
        """Ask for the label of its weights, which its scheduler answers, without waiting."""
        return self._quick.begin("weight_info")

    def label(self, reply: Reply | None = None) -> str:
        """Return the label of the server's weights; of ``ping``'s reply, or of one asked now."""
        reply = reply or self.ping()
        return self._quick.finish("weight_info", reply, lambda reply: reply["weight_version"])

    def load(self, weights: Weights) -> None:
        """Generate from ``weights`` from now on.

        What runs on the server is aborted. A transfer that fails is tried again while the server is
        paused: it has lost its former weights then, and would die of the next request.

        Raises:
            WeightsRefused: if all tries fail, and the server answers still. It stays paused.
            RequestError: if it does not answer.
        """
        self._post("pause?mode=abort")
        for attempt in range(TRIES):
            try:
                self._post("start_weight_update")
                update = {"path": str(weights.folder), "names": list(weights.names)}
                self._post("update_weights", {"update_info": update})
                self._post("finish_weight_update", {"weight_version": weights.label})
                break
            except RequestError as error:
                self.label()  # raises if the server has died
                if attempt == TRIES - 1:
                    raise WeightsRefused(
                        f"urls: {self.url} has not taken the weights in {weights.folder} in"
                        f" {TRIES} tries: {error}"
                    ) from error
                with suppress(RequestError):  # one that a killed trainer has begun
                    self._post("finish_weight_update")
        self._quick.request("reset_prefix_cache", _success, {})
        self._post("resume")

    def begin(self, unit: Unit, model: ModelSpec) -> Future[Any]:
        """Ask for a unit's completions, without waiting; ``finish`` reads them."""
        sampling = unit.request.sampling
        named = generator(unit.request.seed, "vllm", unit.request.iteration)
        return self._patient.begin(
            GENERATE,
            {
                "model": self._served,
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
                    # the ends of this side's policy, whatever the server's configuration says
                    "ignore_eos": True,
                    "stop_token_ids": list(model.end_ids()),
                    "stop": list(sampling.stop),
                    "detokenize": bool(sampling.stop),
                },
            },
        )

    def finish(self, unit: Unit, reply: Reply, weights: Weights) -> list[Completion]:
        """Return the completions that ``begin`` has asked for.

        Raises:
            MalformedReply: if it does not hold them, or not all are whole and of ``weights``.
            RequestError: as the client.
        """
        read = _reader(len(unit.samples), weights)
        return self._patient.finish(GENERATE, reply, read)

    def score(self, ids: tuple[int, ...], weights: Weights) -> torch.Tensor:
        """Return log-probs ``[T]`` of all tokens but the first of a text, at temperature 1."""

        def read(reply: dict[str, Any]) -> torch.Tensor:
            _completion(reply["choices"][0], weights)
            scored = zip(ids[1:], reply["prompt_logprobs"][1:], strict=True)
            return torch.tensor([there[str(token)]["logprob"] for token, there in scored])

        sampling = {"max_tokens": 1, "prompt_logprobs": 0, "logprobs": 0, "detokenize": False}
        payload = {"model": self._served, "token_ids": ids, "sampling_params": sampling}
        return self._patient.request(GENERATE, read, payload)

    def _post(self, path: str, payload: dict[str, Any] | None = None) -> None:
        self._patient.request(path, lambda reply: None, payload or {})


def _success(reply: dict[str, Any]) -> None:
    if reply["success"] is not True:
        raise MalformedReply("its prefix cache is still in use")


def _reader(count: int, weights: Weights) -> Callable[[dict[str, Any]], list[Completion]]:
    def read(reply: dict[str, Any]) -> list[Completion]:
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        if [choice["index"] for choice in choices] != list(range(count)):
            raise MalformedReply(f"choices: {len(choices)}, not {count}")
        return [_completion(choice, weights) for choice in choices]

    return read


def _completion(choice: dict[str, Any], weights: Weights) -> Completion:
    if choice["finish_reason"] not in ("stop", "length"):  # aborted by a pause or a shutdown
        raise MalformedReply(f"a response ended by {choice['finish_reason']!r}")
    labels = {span["version"] for span in choice["weight_versions"]}
    if labels != {weights.label}:
        raise MalformedReply(f"weights: {sorted(labels)}, not {weights.label!r}: it was restarted")
    ids, scored = choice["token_ids"], choice["logprobs"]["content"]
    if [token["token_id"] for token in scored] != ids:
        raise MalformedReply("logprobs: not those of its tokens")
    logp_T = torch.tensor([token["logprob"] for token in scored], dtype=torch.float32)
    if not logp_T.isfinite().all():
        raise MalformedReply("logprobs: not finite")
    return Completion(
        token_ids=torch.tensor(ids, dtype=torch.long),
        logps=logp_T,
        finish_reason=choice["finish_reason"],
        version=weights.version,
    )
