"""Completions from any OpenAI-compatible server: vLLM, ``transformers serve`` and the like."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.endpoint.client import (
    Client,
    Endpoint,
    MalformedReply,
    PermanentError,
    only_choice,
    run,
    token_count,
)
from r1lit.errors import check_at_least
from r1lit.rollout.engine import Capabilities, ModelSpec, RolloutEngine, stream_to_list
from r1lit.rollout.request import Completion, OnFinished, Request
from r1lit.rollout.sampling import Sampling
from r1lit.rollout.vllm.client import check_tokenizer
from r1lit.seeding import generator
from r1lit.text.special_tokens import control_tokens

NUM_PROMPTS, NUM_REPEATS = 4, 8  # from so many on it is no accident


class ServerEngine(RolloutEngine):
    """Uses ``/v1/completions``, many requests at a time, and retries while the server is down.

    The prompt is templated here, so the server needs no chat template. Each completion has a seed
    of its own, made of (seed, iteration, sample). Whether equal seeds give equal responses is the
    server's affair: batches and kernels round differently.

    vLLM is recognised by its ``/version``. It gets the prompt's token ids and returns the
    response's; ``top_k`` -1 and ``repetition_penalty`` 1 are sent because it would otherwise take
    these two from the model's ``generation_config.json``. Other servers get and return text,
    without the BOS that they add themselves; what a request leaves out is their own setting. If all
    responses to a prompt turn out to be the same at a temperature above 0, there is a warning.

    A server keeps the weights it was started with: it serves evaluation and curation, not training.

    A reply that cannot be read, in all its tries, costs one response: it is empty and not finished,
    and a warning gives the reason.

    Args:
        endpoint: where the server is; ``timeout_s`` are seconds one response may take.
        model: what the server calls the policy (None: as it is called here).
        concurrency: how many requests are under way at a time.
        log_probs: whether vLLM returns the log-prob of each token, some 100 bytes a token. They
            are those of the sampled distribution at temperature 1, or where the server runs with
            ``--logprobs-mode processed_logprobs``.
        extra: more keys for the body of every request.
        chat: use ``/v1/chat/completions`` instead, for servers that have nothing else: the prompt
            is one user message, so the data's template should be ``plain``. Thinking that a server
            returns apart stands in the response between ``<think>`` and ``</think>``.
        system_prompt: the system message of ``chat``; none if empty.
    """

    capabilities = Capabilities(tokens=False, needs_policy=False, weights="fixed")

    def __init__(
        self,
        endpoint: Endpoint = Endpoint(),
        model: str | None = None,
        concurrency: int = 64,
        log_probs: bool = False,
        extra: dict[str, Any] | None = None,
        chat: bool = False,
        system_prompt: str = "",
    ) -> None:
        if system_prompt and not chat:
            raise ValueError("system_prompt: is sent with chat: true alone")
        check_at_least("concurrency", concurrency, 1)
        self.client = Client(endpoint)
        self.served_name = model
        self.concurrency = concurrency
        self.log_probs = log_probs
        self.extra = dict(extra or {})
        self.chat = chat
        self.system_prompt = system_prompt
        self.capabilities = replace(self.capabilities, tokens=log_probs and not chat)
        self._sampling_check = SamplingCheck(endpoint.url)

    @classmethod
    def server_share(cls, options: Mapping[str, Any]) -> float:
        """Return 0: its server is elsewhere."""
        return 0.0

    def check(self, model: ModelSpec, prompt_tokens: int, max_tokens: int) -> None:
        """Raise a ValueError if vLLM, which gets and returns token ids, reads them otherwise."""
        once = None if self.chat else self._asked_once()
        if once is not None:
            served = self.served_name or model.name
            run(check_tokenizer(once, "../detokenize", served, model.tokenizer))
        self._expect_tokens(once is not None)

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on; see whether vLLM answers, which returns tokens."""
        super().bind(model)
        if self.capabilities.tokens:
            self._expect_tokens(self._asked_once() is not None)

    def _expect_tokens(self, from_vllm: bool) -> None:
        tokens = self.log_probs and not self.chat and from_vllm
        self.capabilities = replace(self.capabilities, tokens=tokens)

    def _asked_once(self) -> Client | None:
        """Return a client that does not try again; None if no vLLM answers it."""
        once = Client(replace(self.client.endpoint, timeout_s=10.0, max_retries=0))
        try:
            return once if is_vllm(once) else None
        except ValueError:
            return None

    def describe(self) -> dict[str, Any]:
        """Return the report's entries about this engine."""
        chat = {"chat": True, "system_prompt": self.system_prompt} if self.chat else {}
        return {"engine": "ServerEngine", "extra": self.extra, **chat}

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate`` and ``stream``."""
        return stream_to_list(self.stream, requests, on_finished)

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as they come; see ``RolloutEngine.stream``.

        Raises:
            ValueError: if the server refuses a request or gives no answer in all its tries. No
                further request is begun then; those under way are waited for and handed over.
        """
        samples = [(request, sample) for request in requests for sample in request.samples]
        if not samples:
            return
        tokens = not self.chat and is_vllm(self.client)
        path = "chat/completions" if self.chat else "completions"
        texts: dict[tuple[int, ...], str] = {}
        if not tokens:
            prompts = {request.prompt for request in requests}
            texts = as_texts(self.model.tokenizer, prompts, keep_special=not self.chat)
        stop, lock = threading.Event(), threading.Lock()
        failures: list[BaseException] = []  # the first broke; those after it were stopped

        def generate_one(index: int) -> None:
            if stop.is_set():
                return
            request, sample = samples[index]
            prompt = list(request.prompt) if tokens else texts[request.prompt]
            try:
                body = self._body(request, sample, prompt, tokens)
                try:
                    read = partial(self._read, tokens=tokens)
                    completion = self.client.request(path, read, body, stop)
                except MalformedReply as error:
                    warnings.warn(f"one response is left empty: {error}", stacklevel=2)
                    completion = Completion(text="", finish_reason="length")
                with lock:
                    on_finished([index], [completion])
                    if body["temperature"] > 0 and completion.text:
                        self._sampling_check.add(request.prompt, completion.text)
            except BaseException as error:
                failures.append(error)
                stop.set()
                raise

        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="server-engine") as pool:
            futures = [pool.submit(generate_one, index) for index in range(len(samples))]
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
        self._sampling_check.end()

    def _body(
        self, request: Request, sample: int, prompt: list[int] | str, tokens: bool
    ) -> dict[str, Any]:
        """Return the body of one request; ``extra`` has the last word but for prompt and seed."""
        sampling: Sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.served_name or self.model.name,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if tokens:
            body |= {"top_k": sampling.top_k or -1, "repetition_penalty": 1.0}
            body["return_token_ids"] = True
            if sampling.stop:
                body["include_stop_str_in_output"] = True
            if self.log_probs:
                body["logprobs"] = 1
        named = generator(request.seed, "server", request.iteration, sample)
        asked: dict[str, Any] = {"prompt": prompt}
        if self.chat:
            system = [{"role": "system", "content": self.system_prompt}]
            user = {"role": "user", "content": prompt}
            asked = {"messages": [*(system if self.system_prompt else []), user]}
        return body | self.extra | asked | {"seed": int(named.integers(2**31))}

    def _read(self, reply: dict[str, Any], tokens: bool) -> Completion:
        """Return the completion in a reply.

        Raises:
            MalformedReply: if it is not one choice with a text, or its tokens and log-probs are
                none.
        """
        choice = only_choice(reply)
        text = _chat_text(choice["message"]) if self.chat else choice["text"]
        if not isinstance(text, str):
            raise MalformedReply(f"text: {type(text).__name__}, not text")
        token_ids, logps = self._tokens(choice) if tokens else (None, None)
        counted = token_count(reply, "completion_tokens")
        if counted is None:
            counted = len(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])
        return Completion(
            text=text,
            token_ids=token_ids,
            logps=logps,
            num_tokens=counted,
            finish_reason="length" if choice.get("finish_reason") == "length" else "stop",
        )

    def _tokens(self, choice: dict[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the token ids and log-probs of vLLM's reply; None for what it does not hold."""
        ids = choice.get("token_ids")
        if ids is None:  # vLLM before 0.10.2 does not know return_token_ids
            return None, None
        known = len(self.model.tokenizer)
        if not isinstance(ids, list) or any(type(i) is not int or not 0 <= i < known for i in ids):
            raise MalformedReply(f"token_ids: {str(ids)[:200]} are not ids of {known} tokens")
        if not self.log_probs:
            return torch.tensor(ids, dtype=torch.long), None
        given = choice.get("logprobs")
        values = given.get("token_logprobs") if isinstance(given, dict) else None
        if not isinstance(values, list) or len(values) != len(ids):
            raise MalformedReply(f"logprobs: not one for each of {len(ids)} tokens")
        for value in values:
            # a NaN is not at most 0 either
            if type(value) not in (int, float) or not -math.inf < value <= 0:
                raise MalformedReply(f"logprobs: {value!r} is none")
        return torch.tensor(ids, dtype=torch.long), torch.tensor(values, dtype=torch.float32)


def is_vllm(client: Client) -> bool:
    """Request ``/version``, which vLLM has at its root and others refuse."""
    try:
        return client.request("../version", lambda reply: "version" in reply)
    except (PermanentError, MalformedReply):
        return False


def _chat_text(message: dict[str, Any]) -> Any:
    """Return the text of a chat's reply, its thinking in front."""
    thinking = message.get("reasoning_content") or message.get("reasoning")
    content = message.get("content")
    if not isinstance(thinking, str):
        return content
    return f"<think>\n{thinking.strip()}\n</think>\n\n{content or ''}"


def as_texts(
    tokenizer: PreTrainedTokenizerBase, prompts: set[tuple[int, ...]], keep_special: bool = True
) -> dict[tuple[int, ...], str]:
    """Return the prompts as text that the server's tokenizer turns into the same ids.

    Without special tokens they are what a chat template is to be put around.
    """
    bos = tokenizer.bos_token_id
    adds_bos = bos is not None and tokenizer("a")["input_ids"][0] == bos
    texts = {}
    for prompt in prompts:
        kept = prompt[1:] if adds_bos and prompt[:1] == (bos,) else prompt
        text = tokenizer.decode(list(kept), skip_special_tokens=not keep_special)
        assert isinstance(text, str)
        texts[prompt] = text
    control = control_tokens(tokenizer)
    ids = set(control.ids(tokenizer).values())
    held = [
        text
        for prompt, text in texts.items()
        if keep_special and len(control.pattern.findall(text)) > sum(i in ids for i in prompt)
    ]
    if held:
        warnings.warn(
            f"endpoint.url: {len(held)} of {len(texts)} prompts hold the text of a special token,"
            " which a server that takes texts reads as the token; vLLM takes token ids",
            stacklevel=2,
        )
    return texts


class SamplingCheck:
    """Compares the responses to each prompt, and warns once if none differs from another.

    It warns as soon as ``NUM_PROMPTS`` prompts have been repeated, ``NUM_REPEATS`` times together,
    so that a long evaluation need not end first; ``end`` must be called after a shorter one.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._first: dict[tuple[int, ...], int] = {}
        self._repeated: set[tuple[int, ...]] = set()
        self._num_repeats = 0
        self._settled = False

    def add(self, prompt: tuple[int, ...], text: str) -> None:
        """Add a response that was generated at a temperature above 0."""
        if self._settled:
            return
        if prompt not in self._first:
            self._first[prompt] = hash(text)
            return
        self._settled = self._first[prompt] != hash(text)
        self._repeated.add(prompt)
        self._num_repeats += 1
        if len(self._repeated) >= NUM_PROMPTS and self._num_repeats >= NUM_REPEATS:
            self.end()

    def end(self) -> None:
        """Warn once, if all repeats were the same."""
        if self._settled or not self._repeated:
            return
        self._settled = True
        warnings.warn(
            f"endpoint.url: the responses of {self.url} to each prompt are all the same"
            f" ({self._num_repeats} repeats of {len(self._repeated)} prompts) although the"
            " temperature is above 0. The server seems to decode greedily, so k responses contain"
            ' no more information than one. For `transformers serve` put "do_sample": true into the'
            " policy's generation_config.json; for other servers see their sampling settings",
            stacklevel=2,
        )
