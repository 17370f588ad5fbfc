"""Whether policies can be trained on what a vLLM server generates, and its description."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from r1lit.endpoint.client import Client, RequestError, SetupError
from r1lit.rollout.engine import ModelSpec

GENERATE = "inference/v1/generate"
LOAD_ADAPTER = "v1/load_lora_adapter"
EXTENSION = "r1lit_vllm_worker.Extension"
CPU_FLAG = "no-enable-chunked-prefill"
"""vLLM 0.32 on a CPU dies of a seeded request whose prompt is computed in two steps."""
START = "start it as docs/SCALE_OUT.md says"
TEXT = "If 3 + 4 = 7 and 7 - 2 = 5, then 2 * 5 + 7 = 17. What is 17 - 9?"
"""Is read, and its log-probs are compared, on both sides."""


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """A server's limits, the dtype of its weights, and the name of its model in requests."""

    max_model_len: int
    max_num_seqs: int
    dtype: str
    served: str
    num_workers: int
    """Processes that hold weights."""
    max_lora_rank: int
    """0 if it loads no adapters."""


def check_server(client: Client, url: str, backend: str, model: ModelSpec) -> ServerInfo:
    """Return a server's description, if it can sample for a policy like ``model``.

    Args:
        client: of the server.
        url: its name in messages.
        backend: the weight transfer that it must have been started with.
        model: the policy, whose architecture it must have.

    Raises:
        ValueError: naming what is wrong with it, in one line.
        RequestError: if it does not answer.
    """
    get = client.request
    get("version", lambda reply: reply["version"])
    try:
        info = get("server_info?config_format=json", lambda reply: reply["vllm_config"])
    except SetupError:
        raise ValueError(
            f"urls: {url} runs without VLLM_SERVER_DEV_MODE=1, so that it takes no new"
            f" weights; {START}"
        ) from None
    config = info["model_config"]
    if config["logprobs_mode"] != "processed_logprobs":
        raise ValueError(
            f"urls: {url} returns {config['logprobs_mode']}, not the log-probs of what is"
            " sampled; start it with --logprobs-mode processed_logprobs"
        )
    on_cpu = info["device_config"]["device"] == "cpu"
    if on_cpu and info["scheduler_config"]["enable_chunked_prefill"]:
        raise ValueError(
            f"urls: {url} runs on a CPU with chunked prefill, in which vLLM dies of"
            f" seeds; start it with --{CPU_FLAG}"
        )
    transfer = (info.get("weight_transfer_config") or {}).get("backend")
    try:
        payload = {"method": "r1lit_describe"}
        described = get("collective_rpc", lambda reply: reply["results"][0], payload)
    except (RequestError, ValueError):
        described = None
    if transfer != backend or described is None:
        raise ValueError(
            f"urls: {url} runs without --worker-extension-cls {EXTENSION} and"
            f' --weight-transfer-config \'{{"backend": "{backend}"}}\'; {START}'
        )
    served = get("v1/models", lambda reply: reply["data"][0]["id"])
    if not _has_route(client, GENERATE):
        raise ValueError(f"urls: {url} lacks --enable-scale-out; {START}")
    _check_same(described, url, model)
    check_tokenizer(client, "detokenize", served, model.tokenizer)
    lora = info.get("lora_config") or {}
    takes_adapters = lora and _has_route(client, LOAD_ADAPTER)
    return ServerInfo(
        max_model_len=config["max_model_len"],
        max_num_seqs=info["scheduler_config"]["max_num_seqs"],
        dtype=config["dtype"].removeprefix("torch."),
        served=served,
        num_workers=get("get_world_size", lambda reply: reply["world_size"]),
        max_lora_rank=lora["max_lora_rank"] if takes_adapters else 0,
    )


def check_fits(prompt_tokens: int, max_tokens: int, *limits: Any) -> None:
    """Raise a ValueError for a response that may become longer than a server takes.

    ``limits`` are --max-model-len of each; what vLLM has yet to make a number of is left to it.
    """
    for limit in limits:
        if isinstance(limit, int) and 0 < limit < prompt_tokens + max_tokens:
            raise ValueError(
                f"max_tokens: {max_tokens} after a prompt of {prompt_tokens} tokens exceeds the"
                f" servers' --max-model-len of {limit}"
            )


def check_tokenizer(
    client: Client, path: str, served: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise a ValueError if a server reads token ids as another text; it may be unable to say."""
    ids = tokenizer(TEXT)["input_ids"]
    there = None
    with suppress(RequestError):
        payload = {"model": served, "tokens": ids}
        there = client.request(path, lambda reply: str(reply["prompt"]), payload)
    here = str(tokenizer.decode(ids))
    if there is not None and there.split() != here.split():
        raise ValueError(
            f"{client.key}: {client.url} has another tokenizer than the policy: it reads {here!r}"
            f" as {there[:80]!r}; serve the policy's own folder, or one with its tokenizer"
        )


def _has_route(client: Client, path: str) -> bool:
    try:
        client.request(path, lambda reply: None, {})
    except SetupError:
        return False
    except RequestError:
        pass  # an empty request is refused where there is something to request
    return True


def _check_same(described: dict[str, Any], url: str, model: ModelSpec) -> None:
    config = model.config if model.policy is None else model.policy.config
    if config is None:
        return
    own = config.get_text_config()
    for key, there in described.items():
        here = getattr(own, key, None)
        if here is not None and there is not None and here != there:
            raise ValueError(
                f"urls: {url} serves another model than {model.name}: its {key} is"
                f" {there!r}, not {here!r}"
            )
