"""A teacher behind an OpenAI-compatible server: log-probs of a few tokens at each position.

B rows   T response tokens   R rows of L tokens   K tokens that count   C tokens told of each
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.batches import PackedRows
from r1lit.endpoint import Endpoint
from r1lit.policy.loading import load_tokenizer
from r1lit.policy.outputs import Scores, TopScores
from r1lit.policy.policy import Responses
from r1lit.policy.teacher import Teacher

Form = Literal["prompt_logprobs", "echo"]
Told = dict[int, float]
"""Log-probs by token id, the token that stands there first."""


class ServerTeacher(Teacher):
    """Asks ``/v1/completions`` for the log-probs of a text's own tokens and of the likeliest.

    What is computed then: a divergence over C + 1 outcomes, the token that stands there, the
    ``top_k`` likeliest and all others as one, which is a lower bound of that over the vocabulary
    (``r1lit.objectives.top_k``). With ``top_k`` 0 it is over two outcomes, the token and the rest;
    ``SampledReverseKL`` needs no more than the token's own log-prob.

    ``prompt_logprobs`` is vLLM's form: the answer is by token id. ``echo`` is OpenAI's older one,
    ``echo`` with ``logprobs`` and no new tokens. It is by text; vLLM spells ids when asked, as it
    is here, and for other servers a text counts as the one token that decodes to it. A likely token
    whose text several tokens share cannot be named and joins the rest.

    A text is one request, sent as token ids. Start vLLM with ``--max-logprobs`` of at least
    ``top_k`` (20 is its default). The server's distributions are those of temperature 1.

    Args:
        model: what the server calls the teacher.
        tokenizer: a directory or name of the teacher's tokenizer, to compare with the student's.
        base_url: up to and including the version.
        top_k: likeliest tokens to be told of each position.
        form: ``prompt_logprobs`` or ``echo``.
        max_tokens: the longest text it scores; None leaves it to the server.
        concurrency: how many requests are under way at a time.
        timeout_s: seconds one answer may take.
        max_retries: how often a request is made again; see ``Endpoint``.
        backoff_s: the pause before the first retry, in seconds; it doubles.
        api_key_env: the environment variable that holds the key, if the server wants one.
        extra: more keys for the body of every request.
    """

    tells_all = False

    def __init__(
        self,
        model: str,
        tokenizer: str,
        base_url: str = "http://127.0.0.1:8000/v1",
        top_k: int = 20,
        form: Form = "prompt_logprobs",
        max_tokens: int | None = None,
        concurrency: int = 16,
        timeout_s: float = 600.0,
        max_retries: int = 6,
        backoff_s: float = 1.0,
        api_key_env: str = "OPENAI_API_KEY",
        extra: dict[str, Any] | None = None,
    ) -> None:
        if top_k < 0:
            raise ValueError(f"top_k: {top_k} is negative; 0 tells the token's own log-prob alone")
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is not at least 1")
        if form not in ("prompt_logprobs", "echo"):
            raise ValueError(f"form: {form!r} is neither prompt_logprobs nor echo")
        self.name = model
        self.top_k = top_k
        self.form = form
        self.max_tokens = max_tokens
        self.concurrency = concurrency
        self.extra = dict(extra or {})
        self.endpoint = Endpoint(
            base_url,
            timeout_s=timeout_s,
            max_retries=max_retries,
            backoff_s=backoff_s,
            api_key_env=api_key_env,
        )
        self._tokenizer_path = tokenizer
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._ids: dict[str, int] | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, once."""
        if self._tokenizer is None:
            try:
                self._tokenizer = load_tokenizer(self._tokenizer_path)
            except ValueError as error:
                raise ValueError(f"teacher: {str(error).removeprefix('policy: ')}") from error
        return self._tokenizer

    def context_length(self) -> int | None:
        """Return ``max_tokens``, less the one that vLLM must be asked to make."""
        return None if self.max_tokens is None else self.max_tokens - 1

    def score_documents(self, rows: PackedRows) -> Scores:
        """Ask about every document of the rows."""
        ids = rows.input_ids_RL.flatten().tolist()
        targets = rows.loss_mask_RL.flatten().tolist()
        starts = (rows.position_ids_RL.flatten() == 0).nonzero().flatten().tolist()
        texts, places = [], []
        for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
            here = [place for place in range(stop - start) if targets[start + place]]
            if here:
                texts.append(ids[start : start + here[-1] + 1])
                places.append(here)
        return self._score(texts, places, rows.input_ids_RL.device)

    def score_responses(self, responses: Responses) -> Scores:
        """Ask about every prompt and its response."""
        texts, places = [], []
        rows = zip(responses.prompts, responses.response_BT, responses.mask_BT, strict=True)
        for prompt, response_T, mask_T in rows:
            text = [*prompt, *response_T[mask_T].tolist()]
            texts.append(text)
            places.append(list(range(len(prompt), len(text))))
        return self._score(texts, places, responses.response_BT.device)

    def _score(
        self, texts: Sequence[list[int]], places: Sequence[list[int]], device: torch.device
    ) -> TopScores:
        stop = threading.Event()

        def ask(text: list[int]) -> list[Told]:
            try:
                return self._told(text, self.endpoint.post("completions", self._body(text), stop))
            except BaseException:
                stop.set()  # the others need not try again
                raise

        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="teacher") as pool:
            answers = list(pool.map(ask, texts))
        rows = [
            answer[place] for answer, here in zip(answers, places, strict=True) for place in here
        ]
        width = max((len(row) for row in rows), default=1)
        # what is missing repeats the first token, which counts once
        token_KC = [[*row, *[next(iter(row))] * (width - len(row))] for row in rows]
        logp_KC = [[*row.values(), *[0.0] * (width - len(row))] for row in rows]
        return TopScores(
            token_KC=torch.tensor(token_KC, dtype=torch.long, device=device).view(-1, width),
            logp_KC=torch.tensor(logp_KC, dtype=torch.float32, device=device).view(-1, width),
        )

    def _body(self, text: list[int]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, "prompt": text, "temperature": 0.0}
        if self.form == "prompt_logprobs":
            body |= {"max_tokens": 1, "prompt_logprobs": self.top_k}
        else:
            body |= {"max_tokens": 0, "echo": True, "logprobs": self.top_k}
            body["return_tokens_as_token_ids"] = True
        return body | self.extra

    def _told(self, text: list[int], answer: dict[str, Any]) -> list[Told]:
        """Return what was told of each token; nothing of the first, which is predicted by none."""
        try:
            choice = answer["choices"][0]
            if self.form == "prompt_logprobs":
                tops = choice["prompt_logprobs"]
                told = [{}, *(by_id(top) for top in tops[1:])]
                own = [at.get(token) for at, token in zip(told, text, strict=True)]
            else:
                own = choice["logprobs"]["token_logprobs"]
                tops = choice["logprobs"].get("top_logprobs") or [None] * len(own)
                told = [self._by_text(top or {}) for top in tops]
            pairs = list(zip(text, own, told, strict=True))
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"teacher: {self.endpoint.base_url}/completions did not tell the log-probs of"
                f" {len(text)} tokens as form: {self.form} says ({type(error).__name__}: {error});"
                " does the server know this form, and take token ids?"
            ) from error
        lacking = [place for place, (_, logp, _) in enumerate(pairs) if place and logp is None]
        if lacking:
            raise ValueError(
                f"teacher: {self.endpoint.base_url}/completions told no log-prob of token"
                f" {lacking[0]} of {len(text)}, its own text's"
            )
        return [
            {token: float(logp or 0.0), **{t: p for t, p in top.items() if t != token}}
            for token, logp, top in pairs
        ]

    def _by_text(self, top: dict[str, float]) -> Told:
        told = {}
        for text, logp in top.items():
            token = text.removeprefix("token_id:")
            if token != text and token.isdigit():
                told[int(token)] = logp
            elif text in self._ids_by_text():
                told[self._ids_by_text()[text]] = logp
        return told

    def _ids_by_text(self) -> dict[str, int]:
        """Return the tokens that alone decode to their text."""
        if self._ids is None:
            tokenizer = self.tokenizer()
            texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
            ids: dict[str, int] = {}
            shared = set()
            for token, text in enumerate(texts):
                if text in ids:
                    shared.add(text)
                ids[text] = token
            self._ids = {text: token for text, token in ids.items() if text not in shared}
        return self._ids


def by_id(top: dict[str, Any]) -> Told:
    """Read one position of vLLM's ``prompt_logprobs``.

    >>> by_id({"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}})
    {17: -0.5}
    """
    return {int(token): float(said["logprob"]) for token, said in top.items()}
