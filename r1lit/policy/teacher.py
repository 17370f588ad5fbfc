"""Teachers: models whose next-token distributions a student learns, in process or on a server.

B rows   T response tokens   R rows of L tokens   K tokens that count, k some of them
D hidden size   V vocabulary   C tokens that a server scores at each   X outcomes
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.endpoint.client import Client, Endpoint, MalformedReply, in_parallel, only_choice
from r1lit.errors import check_at_least
from r1lit.policy.divergences import Scores, TopScores
from r1lit.policy.held import NO_MODELS, HeldModels
from r1lit.policy.loading import context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.outputs import Logits, LogProbs, States
from r1lit.policy.policy import HiddenStates, Policy, Responses
from r1lit.policy.source import ModelSource
from r1lit.supervised_batches import PackedRows


class Teacher(ABC):
    """A constant policy that scores tokens; no part of a checkpoint, and never trained.

    ``name`` is what errors call it. ``full_distributions``: whether its
    scores are of the whole vocabulary. ``held``: its models in this process.
    """

    name: str
    full_distributions: bool
    held: HeldModels = NO_MODELS

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the teacher's tokenizer, which must be the student's."""

    def context_length(self) -> int | None:
        """Return the most tokens that the teacher attends over, if known."""
        return None

    def load(self, device: torch.device) -> None:
        """Make ready for scoring on a device; a second call does nothing."""
        return

    @abstractmethod
    def score_documents(self, rows: PackedRows) -> Scores:
        """Score the targets of packed rows, within their documents, in order."""

    @abstractmethod
    def score_responses(self, responses: Responses) -> Scores:
        """Score the tokens of responses, row after row."""


class ModelTeacher(Teacher):
    """A teacher in this process, in evaluation mode and without gradients.

    Each rank holds a whole copy. It computes under the trainer's precision, as the student does.

    Args:
        model: a Hugging Face directory, or a model's name on the hub. Its weights are never
            updated, so ``dtype: bfloat16`` loses little and halves memory.
    """

    full_distributions = True
    held = HeldModels(whole=1)

    def __init__(self, model: str | ModelSource) -> None:
        self.source = ModelSource.frozen(model, "teacher")
        self.name = self.source.path
        self._policy: Policy | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer."""
        return load_tokenizer(self.source)

    def context_length(self) -> int | None:
        """Return the context length that the configuration states."""
        return context_length(load_config(self.source))

    def load(self, device: torch.device) -> None:
        """Load the weights, once, and move them to the device."""
        if self._policy is None:
            self._policy = load_policy(self.source).eval().requires_grad_(False)
        self._policy.to(device)

    @property
    def policy(self) -> Policy:
        """The teacher's policy, once loaded."""
        assert self._policy is not None, "load comes first"
        return self._policy

    def score_documents(self, rows: PackedRows) -> Scores:
        """Run the teacher over the rows."""
        return FullScores.of(self.policy, rows)

    def score_responses(self, responses: Responses) -> Scores:
        """Run the teacher over prompts and responses."""
        return FullScores.of(self.policy, responses)


@dataclass(frozen=True, kw_only=True)
class FullScores(Scores):
    """Scores of a teacher in this process: X = V.

    Heads of one tokenizer may differ in width (Qwen2.5 pads its to 151,936 or to 152,064). Logits
    beyond the narrower one belong to no token, and are left out.
    """

    policy: Policy
    states_KD: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, policy: Policy, inputs: Responses | PackedRows) -> FullScores:
        """Run a policy, and keep its last hidden states."""
        return cls(policy=policy, states_KD=policy(inputs, States()).states_KD)

    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log softmax(logits / temperature) of both."""
        teacher_kV = self._logits(self.states_KD[chunk])
        width = min(logits_kV.shape[-1], teacher_kV.shape[-1])
        student_kV, teacher_kV = logits_kV[:, :width], teacher_kV[:, :width]
        return (
            (student_kV / temperature).log_softmax(-1),
            (teacher_kV / temperature).log_softmax(-1),
        )

    @torch.no_grad()
    def _logits(self, states_kD: Tensor) -> Tensor:
        no_target = torch.zeros(len(states_kD), dtype=torch.long, device=states_kD.device)
        return self.policy(
            HiddenStates(states_KD=states_kD, target_K=no_target), Logits()
        ).logits_KV

    @torch.no_grad()
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""
        states = HiddenStates(states_KD=self.states_KD, target_K=target_K)
        return self.policy(states, LogProbs(temperature=temperature)).logp_K


class Teachers(Teacher):
    """Several teachers in this process as one, whose distribution is their mixture.

    P = sum over j of w_j P_j. With ForwardKL it is, up to a constant, the weighted sum of the
    divergences from each. Worked example: P_1 = (0.9, 0.1) and P_2 = (0.5, 0.5) with weights 3 and
    1 are P = (0.8, 0.2).

    Args:
        teachers: all with the student's vocabulary.
        weights: of each, scaled to a sum of 1; equal ones if left out.
    """

    full_distributions = True

    def __init__(self, teachers: list[ModelTeacher], weights: list[float] | None = None) -> None:
        weights = [1.0] * len(teachers) if weights is None else weights
        if len(weights) != len(teachers) or not teachers or not all(w > 0 for w in weights):
            raise ValueError(
                f"teacher.weights: {weights} are not a number above 0 for each of the"
                f" {len(teachers)} teachers"
            )
        self.teachers = teachers
        self.weights = [weight / sum(weights) for weight in weights]
        self.name = " + ".join(teacher.name for teacher in teachers)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the first one's; the others' must be the same.

        Raises:
            ValueError: if one is not.
        """
        first, *others = [(teacher.name, teacher.tokenizer()) for teacher in self.teachers]
        for name, tokenizer in others:
            check_same_vocabulary(first[1], tokenizer, name)
        return first[1]

    def context_length(self) -> int | None:
        """Return the shortest of those known."""
        known = [teacher.context_length() for teacher in self.teachers]
        return min((length for length in known if length is not None), default=None)

    def load(self, device: torch.device) -> None:
        """Load each."""
        for teacher in self.teachers:
            teacher.load(device)

    def score_documents(self, rows: PackedRows) -> Scores:
        """Run each over the rows."""
        return MixedScores([FullScores.of(t.policy, rows) for t in self.teachers], self.weights)

    def score_responses(self, responses: Responses) -> Scores:
        """Run each over prompts and responses."""
        scores = [FullScores.of(teacher.policy, responses) for teacher in self.teachers]
        return MixedScores(scores, self.weights)


class MixedScores(Scores):
    """The mixture of some teachers' distributions, over the vocabulary of the narrowest."""

    def __init__(self, scores: Sequence[FullScores], weights: Sequence[float]) -> None:
        self._scores = scores
        self._log_weights = [math.log(weight) for weight in weights]

    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of the student and of the mixture."""
        each = [own._logits(own.states_KD[chunk]) for own in self._scores]
        width = min(logits_kV.shape[-1], *(logits.shape[-1] for logits in each))
        parts = [
            (logits[:, :width] / temperature).log_softmax(-1) + log_weight
            for logits, log_weight in zip(each, self._log_weights, strict=True)
        ]
        student_kV = (logits_kV[:, :width] / temperature).log_softmax(-1)
        return student_kV, torch.stack(parts).logsumexp(0)

    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the mixture's log-probs of the targets."""
        parts = [
            own.target_logp(target_K, temperature) + log_weight
            for own, log_weight in zip(self._scores, self._log_weights, strict=True)
        ]
        return torch.stack(parts).logsumexp(0)


def check_same_vocabulary(
    student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, name: str
) -> None:
    """Check that next-token distributions of student and teacher are over the same tokens.

    Args:
        student: the policy's tokenizer.
        teacher: the teacher's tokenizer.
        name: what errors call the teacher.

    Raises:
        ValueError: naming both sizes, or a token that differs, or the two EOS tokens.
    """
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    remedy = (
        "; take a teacher with the policy's tokenizer, or learn from its responses alone with"
        " logit_weight: 0"
    )
    if len(ours) != len(theirs):
        raise ValueError(
            f"teacher: {name!r} has a vocabulary of {len(theirs):,} tokens and the policy one of"
            f" {len(ours):,}, so their next-token distributions cannot be compared{remedy}"
        )
    if ours != theirs:
        their_token = {token_id: token for token, token_id in theirs.items()}
        differ = sorted(
            (token_id, token)
            for token, token_id in ours.items()
            if their_token.get(token_id) != token
        )
        token_id, token = differ[0]
        raise ValueError(
            f"teacher: {name!r} and the policy have vocabularies of {len(ours):,} tokens each, but"
            f" other ones: {len(differ):,} differ, such as {token_id}, which is"
            f" {their_token.get(token_id)!r} to the teacher and {token!r} to the policy{remedy}"
        )
    if student.eos_token_id != teacher.eos_token_id:
        raise ValueError(
            f"teacher: {name!r} ends its responses with {teacher.eos_token!r} and the policy with"
            f" {student.eos_token!r}, which the teacher would teach it never to say; set the same"
            " eos_token in both tokenizer_config.json"
        )


LogprobsFormat = Literal["prompt_logprobs", "echo"]
TopLogps = dict[int, float]
"""Log-probs by token id, the token of the text first."""
MAX_SUM = 1.01
"""Largest sum of the probabilities of one position: servers round."""


class ServerTeacher(Teacher):
    """Requests the log-probs of a text's own tokens and of the likeliest from ``/v1/completions``.

    What is computed then: a divergence over C + 1 outcomes, the token that stands there, the
    ``top_k`` likeliest and all others as one, which is a lower bound of that over the vocabulary
    (``objectives.distillation``). With ``top_k`` 0 it is over two outcomes, the token and the rest;
    ``SampledReverseKL`` needs no more than the token's own log-prob.

    ``prompt_logprobs`` is vLLM's form: the answer is by token id. ``echo`` is OpenAI's older one,
    ``echo`` with ``logprobs`` and no new tokens. It is by text; vLLM spells ids on request, which
    is made, and for other servers a text counts as the one token that decodes to it. A likely token
    whose text several tokens share cannot be named and joins the rest.

    A text is one request, sent as token ids. A reply that cannot be read, in all its tries, costs
    that text: its divergence is 0, and a warning gives the reason. Start vLLM with
    ``--max-logprobs`` of at least ``top_k`` (20 is its default). The server's distributions are
    those of temperature 1.

    Args:
        model: what the server calls the teacher.
        tokenizer: a directory or name of the teacher's tokenizer, to compare with the student's.
        endpoint: where the server is.
        top_k: how many of the likeliest tokens are requested at each position.
        logprobs_format: ``prompt_logprobs`` or ``echo``.
        max_tokens: the longest text it scores; None leaves it to the server.
        concurrency: how many requests are under way at a time.
        extra: more keys for the body of every request.
    """

    full_distributions = False

    def __init__(
        self,
        model: str,
        tokenizer: str | ModelSource,
        endpoint: Endpoint = Endpoint(timeout_s=600.0),
        top_k: int = 20,
        logprobs_format: LogprobsFormat = "prompt_logprobs",
        max_tokens: int | None = None,
        concurrency: int = 16,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if top_k < 0:
            raise ValueError(f"top_k: {top_k} is negative; 0 requests the text's own tokens only")
        check_at_least("concurrency", concurrency, 1)
        if logprobs_format not in ("prompt_logprobs", "echo"):
            raise ValueError(
                f"logprobs_format: {logprobs_format!r} is neither prompt_logprobs nor echo"
            )
        self.name = model
        self.top_k = top_k
        self.logprobs_format = logprobs_format
        self.max_tokens = max_tokens
        self.concurrency = concurrency
        self.extra = dict(extra or {})
        self.client = Client(endpoint)
        self._tokenizer_source = ModelSource.frozen(tokenizer, "teacher")
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._ids: dict[str, int] | None = None
        self._sizes: tuple[int, int] | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, once."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._tokenizer_source)
        return self._tokenizer

    def context_length(self) -> int | None:
        """Return ``max_tokens``, less the one that vLLM must generate."""
        return None if self.max_tokens is None else self.max_tokens - 1

    def score_documents(self, rows: PackedRows) -> Scores:
        """Score every document of the rows."""
        ids = rows.input_ids_RL.flatten().tolist()
        targets = rows.loss_mask_RL.flatten().tolist()
        starts = (rows.position_ids_RL.flatten() == 0).nonzero().flatten().tolist()
        texts, positions = [], []
        for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
            here = [position for position in range(stop - start) if targets[start + position]]
            if here:
                texts.append(ids[start : start + here[-1] + 1])
                positions.append(here)
        return self._score(texts, positions, rows.input_ids_RL.device)

    def score_responses(self, responses: Responses) -> Scores:
        """Score every response after its prompt."""
        texts, positions = [], []
        rows = zip(responses.prompts, responses.response_BT, responses.mask_BT, strict=True)
        for prompt, response_T, mask_T in rows:
            text = [*prompt, *response_T[mask_T].tolist()]
            texts.append(text)
            positions.append(list(range(len(prompt), len(text))))
        return self._score(texts, positions, responses.response_BT.device)

    def _score(
        self, texts: Sequence[list[int]], positions: Sequence[list[int]], device: torch.device
    ) -> TopScores:
        self._vocabulary()  # loaded before there are threads

        def request(
            item: tuple[list[int], list[int]], stop: threading.Event
        ) -> list[TopLogps] | None:
            text, here = item
            read = partial(self._read, text, here)
            try:
                return self.client.request("completions", read, self._body(text), stop)
            except MalformedReply as error:
                warnings.warn(
                    f"teacher: a text of {len(text)} tokens is left out (logprobs_format:"
                    f" {self.logprobs_format}): {error}",
                    stacklevel=2,
                )
                return None

        items = list(zip(texts, positions, strict=True))
        answers = in_parallel(request, items, self.concurrency)
        rows: list[TopLogps] = []
        known: list[bool] = []
        for (text, here), answer in zip(items, answers, strict=True):
            rows += [{text[position]: 0.0} for position in here] if answer is None else answer
            known += [answer is not None] * len(here)
        width = max((len(row) for row in rows), default=1)
        # what is missing repeats the first token, which counts once
        token_KC = [[*row, *[next(iter(row))] * (width - len(row))] for row in rows]
        logp_KC = [[*row.values(), *[0.0] * (width - len(row))] for row in rows]
        return TopScores(
            token_KC=torch.tensor(token_KC, dtype=torch.long, device=device).view(-1, width),
            logp_KC=torch.tensor(logp_KC, dtype=torch.float32, device=device).view(-1, width),
            known_K=None if all(known) else torch.tensor(known, device=device),
        )

    def _body(self, text: list[int]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, "prompt": text, "temperature": 0.0}
        if self.logprobs_format == "prompt_logprobs":
            body |= {"max_tokens": 1, "prompt_logprobs": self.top_k}
        else:
            body |= {"max_tokens": 0, "echo": True, "logprobs": self.top_k}
            body["return_tokens_as_token_ids"] = True
        return body | self.extra

    def _read(self, text: list[int], positions: list[int], reply: dict[str, Any]) -> list[TopLogps]:
        """Return the log-probs at some positions of the text; its first token has none."""
        choice = only_choice(reply)
        if self.logprobs_format == "prompt_logprobs":
            tops = [{}, *(by_id(top) for top in choice["prompt_logprobs"][1:])]
            own = [top.get(token) for top, token in zip(tops, text, strict=True)]
        else:
            own = choice["logprobs"]["token_logprobs"]
            given = choice["logprobs"].get("top_logprobs") or [None] * len(own)
            tops = [self._by_text(top or {}) for top in given]
        all_positions = list(zip(text, own, tops, strict=True))
        return [self._checked(position, *all_positions[position]) for position in positions]

    def _checked(self, position: int, token: int, logp: Any, top: dict[int, Any]) -> TopLogps:
        """Return the log-probs at one position, that of its token first.

        Ids that only pad the vocabulary join the rest.

        Raises:
            MalformedReply: if one is no log-prob, or an id is no token.
        """
        num_tokens, num_logits = self._vocabulary()
        found = {token: logp, **{**top, token: logp}}
        for one, value in found.items():
            if not 0 <= one < num_logits:
                raise MalformedReply(f"token {position}: id {one} is not in the vocabulary")
            if type(value) not in (int, float) or not -1e4 <= value <= 1e-3:
                raise MalformedReply(f"token {position}: {str(value)[:40]} is not a log-prob")
        kept = {i: float(p) for i, p in found.items() if i == token or i < num_tokens}
        if sum(map(math.exp, kept.values())) > MAX_SUM:
            raise MalformedReply(f"token {position}: probabilities add up to more than 1")
        return kept

    def _vocabulary(self) -> tuple[int, int]:
        """Return how many tokens the tokenizer has, and how many logits the model may have."""
        if self._sizes is None:
            num_tokens = len(self.tokenizer())
            try:
                config = load_config(self._tokenizer_source).get_text_config(decoder=True)
                self._sizes = num_tokens, max(num_tokens, config.vocab_size)
            except ValueError:  # a tokenizer alone
                self._sizes = num_tokens, num_tokens
        return self._sizes

    def _by_text(self, top: dict[str, Any]) -> dict[int, Any]:
        found = {}
        for text, logp in top.items():
            token = text.removeprefix("token_id:")
            if token != text and token.isdecimal():
                found[int(token)] = logp
            elif text in self._ids_by_text():
                found[self._ids_by_text()[text]] = logp
        return found

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


def by_id(top: dict[str, Any]) -> dict[int, Any]:
    """Read one position of vLLM's ``prompt_logprobs``.

    >>> by_id({"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}})
    {17: -0.5}
    """
    return {int(token): entry["logprob"] for token, entry in top.items()}
