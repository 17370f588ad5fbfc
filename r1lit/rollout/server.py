"""Responses from any OpenAI-compatible server: vLLM, ``transformers serve`` and the like."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from r1lit.client import Client, MalformedReply, PermanentError, only_choice, token_count
from r1lit.rollout.sameness import Sameness
from r1lit.rollout.sampling import Sampling
from r1lit.rollout.text import Draw, Finished, Request, Source, TextEngine
from r1lit.seeding import generator


class ServerEngine(TextEngine):
    """Asks ``/v1/completions``, many requests at a time, and again while the server is down.

    The prompt is templated here, so the server needs no chat template. Each request has a seed of
    its own, made of (seed, iteration, sample). Whether equal seeds give equal responses is the
    server's affair: batches and kernels round differently.

    vLLM is recognised by its ``/version``. It gets the prompt's token ids, ``top_k`` -1
    and ``repetition_penalty`` 1, because it would otherwise take these two from the model's
    ``generation_config.json``. Other servers get text, without the BOS that they add themselves,
    and fill in what was not asked as they are set up. If all responses to a prompt turn out to be
    the same at a temperature above 0, there is a warning.

    A reply that cannot be read, in all its tries, costs one response: it is empty and not finished,
    and a warning gives the reason.

    Args:
        base_url: up to and including the version, ``http://127.0.0.1:8000/v1``.
        model: what the server calls the policy (None: as it is called here).
        concurrency: how many requests are under way at a time.
        timeout_s: seconds one response may take.
        max_retries: how often a request is made again; see ``Client``.
        backoff_s: the pause before the first retry, in seconds; it doubles.
        api_key_env: the environment variable that holds the key, if the server wants one.
        extra: more keys for the body of every request.
    """

    needs_policy = False

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000/v1",
        model: str | None = None,
        concurrency: int = 64,
        timeout_s: float = 3600.0,
        max_retries: int = 6,
        backoff_s: float = 1.0,
        api_key_env: str = "OPENAI_API_KEY",
        extra: dict[str, Any] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is not at least 1")
        self.client = Client(
            base_url,
            timeout_s=timeout_s,
            max_retries=max_retries,
            backoff_s=backoff_s,
            api_key_env=api_key_env,
        )
        self.model = model
        self.concurrency = concurrency
        self.extra = dict(extra or {})
        self.sameness = Sameness(base_url)

    def describe(self) -> dict[str, Any]:
        """Return what a table should say about this engine."""
        return {"engine": "ServerEngine", "extra": self.extra}

    def draw(
        self,
        source: Source,
        requests: Sequence[Request],
        *,
        sampling: Sampling,
        seed: int,
        iteration: int,
        finished: Finished,
    ) -> None:
        """Draw from the server; see ``TextEngine.draw``.

        Raises:
            ValueError: if the server refuses a request or gives no answer in all its tries. No
                further request is begun then; those under way are waited for and handed over.
        """
        if not requests:
            return
        fixed = self._fixed(source, sampling)
        as_tokens = self._is_vllm()
        if as_tokens:
            fixed = {"top_k": sampling.top_k or -1, "repetition_penalty": 1.0, **fixed}
            if sampling.stop:
                fixed = {"include_stop_str_in_output": True, **fixed}
        stop, lock = threading.Event(), threading.Lock()
        failures: list[BaseException] = []  # the first broke; those after it were stopped
        texts: dict[tuple[int, ...], str] = {}
        if not as_tokens:
            texts = _as_texts(source.tokenizer, {request.prompt for request in requests})

        def ask(index: int) -> None:
            if stop.is_set():
                return
            request = requests[index]
            prompt = list(request.prompt) if as_tokens else texts[request.prompt]
            named = generator(seed, "server", iteration, request.sample)
            payload = {**fixed, "prompt": prompt, "seed": int(named.integers(2**31))}
            try:
                read = partial(_read, tokenizer=source.tokenizer)
                try:
                    draw = self.client.request("completions", read, payload, stop)
                except MalformedReply as error:
                    warnings.warn(f"one response is left empty: {error}", stacklevel=2)
                    draw = Draw(text="", num_tokens=0, finished=False)
                with lock:
                    finished(index, draw)
                    if fixed["temperature"] > 0 and draw.num_tokens:
                        self.sameness.add(request.prompt, draw.text)
            except BaseException as error:
                failures.append(error)
                stop.set()
                raise

        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="server-engine") as pool:
            futures = [pool.submit(ask, index) for index in range(len(requests))]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            except BaseException:
                stop.set()
                raise
            finally:
                if stop.is_set():
                    pool.shutdown(wait=False, cancel_futures=True)
        if failures:
            raise failures[0]
        self.sameness.end()

    def _fixed(self, source: Source, sampling: Sampling) -> dict[str, Any]:
        """Return the part of the body that all requests share; ``extra`` has the last word."""
        body: dict[str, Any] = {
            "model": self.model or source.name,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        return body | self.extra

    def _is_vllm(self) -> bool:
        """Ask for ``/version``, which vLLM has at its root and others refuse."""
        try:
            return self.client.request("../version", lambda reply: "version" in reply)
        except (PermanentError, MalformedReply):
            return False


def _read(reply: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> Draw:
    choice = only_choice(reply)
    text = choice["text"]
    if not isinstance(text, str):
        raise MalformedReply(f"text: {type(text).__name__}, not text")
    num_tokens = token_count(reply, "completion_tokens")
    if num_tokens is None:
        num_tokens = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    return Draw(text=text, num_tokens=num_tokens, finished=choice.get("finish_reason") != "length")


def _as_texts(
    tokenizer: PreTrainedTokenizerBase, prompts: set[tuple[int, ...]]
) -> dict[tuple[int, ...], str]:
    """Return the prompts as text that the server's tokenizer turns into the same ids."""
    bos = tokenizer.bos_token_id
    adds_bos = bos is not None and tokenizer("a")["input_ids"][0] == bos
    texts = {}
    for prompt in prompts:
        kept = prompt[1:] if adds_bos and prompt[:1] == (bos,) else prompt
        text = tokenizer.decode(list(kept), skip_special_tokens=False)
        assert isinstance(text, str)
        texts[prompt] = text
    return texts
