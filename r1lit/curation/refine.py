"""Refiners rewrite kept responses so that they read well.

R1's cold start came from "gathering DeepSeek-R1-Zero outputs in a readable format, and refining the
results through post-processing by human annotators" (arXiv 2501.12948v1, Sec. 2.3.1). A refiner
returns the text with the thinking between think tags and the summary after them, or why there is
none. A refined text is graded again before it is kept. Refiners work by rule, or have a language
model rewrite the response.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from r1lit.batches import Problem
from r1lit.curation.candidate import Context, OfKinds
from r1lit.curation.filters import digest
from r1lit.device import inference_dtype
from r1lit.endpoint import ChatReply, ReplyCache
from r1lit.errors import check_at_least, import_path
from r1lit.metrics.language import language_of
from r1lit.policy import ModelSource, context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.source import policy_fingerprint
from r1lit.rollout import (
    Completion,
    InProcessEngine,
    ModelSpec,
    Request,
    RolloutEngine,
    Sampling,
    texts_of,
)
from r1lit.text.extract import extract_final, thinking_and_answer
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.text.special_tokens import literal

_THINK = re.compile(r"</?think>")
_ANSWER = re.compile(r"</?answer>[^\S\n]?")

Rule = Callable[..., str | None]
"""``rule(problem, response, **options)`` returns the refined text, or None to drop it."""


@dataclass(frozen=True, kw_only=True)
class Refined:
    """A rewritten response; if there is none, ``text`` is None and ``why`` is the reason."""

    text: str | None
    why: str = ""


class Refiner(OfKinds, ABC):
    """Rewrites responses to problems of ``kinds``; others stay as they are."""

    def begin(self, context: Context) -> None:
        """Prepare; called once before the first response of a run."""

    @abstractmethod
    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return one ``Refined`` for each response; ``problems`` are aligned with them."""


class RuleRefiner(Refiner):
    """A plain callable as a refiner.

    Args:
        rule: the callable, or in YAML its dotted path: ``my_rules.tidy``. It takes the problem
            (`r1lit.batches.Problem`) and the response, and returns the refined text, or None.
        options: keyword arguments of every call.
        kinds: see ``Refiner``.
    """

    def __init__(
        self,
        rule: str | Rule,
        options: Mapping[str, Any] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.rule = rule if isinstance(rule, str) else getattr(rule, "__qualname__", repr(rule))
        self.options = dict(options or {})
        self._rule = import_path(rule, "rule") if isinstance(rule, str) else rule
        if not callable(self._rule):
            raise ValueError(f"rule: {rule!r} is not a function")

    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return the rule's text for each response.

        Raises:
            ValueError: if it returns something else than a text or None.
        """
        refined = []
        for problem, response in zip(problems, responses, strict=True):
            text = self._rule(problem, response, **self.options)
            if text is not None and not isinstance(text, str):
                raise ValueError(
                    f"rule: {self.rule} returned {type(text).__name__} for problem"
                    f" {problem.uid!r}, where a text or None is needed"
                )
            refined.append(Refined(text=text, why="" if text else f"{self.rule} dropped it"))
        return refined


class ToR1Template(Refiner):
    r"""Rewrites ``<think>…</think> <answer>…</answer>`` as a chain and a summary in words.

    R1's template: ``|special_token|<reasoning_process>|special_token|<summary>`` (Sec. 2.3.1). The
    final answer is the last ``<answer>`` or ``\boxed{}`` outside the thinking. A response without
    think tags, as after few-shot and direct prompting, is a chain as a whole: its final answer
    stays in it, and the summary repeats it. A response without a final answer is dropped.

    Args:
        summary: the wording, with {answer} in it.
        summaries: other wordings by ``meta["language"]`` of the problem, such as
            ``{zh: "得到 <answer> {answer} </answer>。"}``.
        kinds: see ``Refiner``.
    """

    def __init__(
        self,
        summary: str = "The answer is <answer> {answer} </answer>.",
        summaries: Mapping[str, str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.summary = summary
        self.summaries = dict(summaries or {})
        for text in (summary, *self.summaries.values()):
            if "{answer}" not in text:
                raise ValueError(f"summary: {text!r} does not contain {{answer}}")

    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return each rewritten, without a model."""
        return [self._refine(p, r) for p, r in zip(problems, responses, strict=True)]

    def _refine(self, problem: Problem, response: str) -> Refined:
        answer = extract_final(response)
        if not answer:
            return Refined(text=None, why="no final answer to put into the summary")
        thinking, rest = thinking_and_answer(response)
        if _THINK.search(response) is None:
            thinking = _ANSWER.sub("", rest)
        wording = self.summaries.get(str(problem.meta.get("language")), self.summary)
        summary = wording.replace("{answer}", answer)
        return Refined(text=f"<think> {thinking.strip()} </think> {summary}")


R1_REFINING = Sampling(temperature=0.6, top_p=0.95, max_tokens=32768)
"""R1's evaluation protocol; how its refiner was sampled is not reported."""

INSTRUCTION = """\
Below are a question and a solution to it, worked out by a model and right, but hard to read. \
Rewrite the solution so that a person reads it with ease.

First the reasoning: in the first person, as somebody who thinks it through ("I try …", "Wait …"). \
Keep every step that leads to the result, the doubts and the checks that matter, and a wrong path \
where something is learned from it. Leave out what is repeated. Write whole sentences in short \
paragraphs, without code blocks, and in the language of the question only ({language}).

Then a summary, in the same language: in a few sentences, how the result comes about, and the \
final answer. Do not change the final answer. If it stands between <answer> and </answer> or in \
\\boxed{} in the solution, write it in the same way, once, in the summary, and nowhere else.

Reply with these two parts and nothing else:
<reasoning> the reasoning </reasoning>
<summary> the summary </summary>

Question:
{question}

Solution:
{response}
"""

_TAGS = ("<reasoning>", "</reasoning>", "<summary>", "</summary>")
_REPLY = re.compile(r"\s*<reasoning>(.*)</reasoning>\s*<summary>(.*)</summary>\s*", re.DOTALL)


class EngineRefiner(Refiner):
    """Has a model rewrite each response as a readable first-person chain and a summary.

    R1's cold start keeps R1-Zero outputs and refines them (arXiv 2501.12948v1, Sec. 2.3.1). The
    wording of ``INSTRUCTION`` is ours, and may be replaced. The reply is parsed strictly: both
    parts, once each, and nothing else but the refiner's own thinking. Any other reply is requested
    again, up to ``attempts`` times in all; then the response is dropped.

    Every reply is written to ``cache`` immediately, so an interrupted run continues and a
    repeated one sends no request. The key is a digest of question, response, model and settings.

    Args:
        engine: generates replies: `r1lit.rollout.InProcessEngine` (the default, 256 at a
            time), or `r1lit.rollout.ServerEngine` for any OpenAI-compatible server, with its
            concurrency and retries.
        policy: the refining model, a Hugging Face directory or name; with a server its tokenizer is
            read, and its weights are not. None: the policy that generated the responses.
        sampling: how replies are sampled.
        instruction: holds {question} and {response}; {language} is optional.
        template: a name, a text with {question} for the instruction, or "chat".
        attempts: the most requests for one response.
        cache: the file of replies; ``refined_replies.sqlite`` beside the curated files if left out.
        kinds: see ``Refiner``.
    """

    slots = ("{question}", "{response}")
    """Places that the instruction must hold."""

    def __init__(
        self,
        engine: RolloutEngine | None = None,
        policy: str | ModelSource | None = None,
        sampling: Sampling = R1_REFINING,
        instruction: str = INSTRUCTION,
        template: str = "chat",
        attempts: int = 3,
        cache: str | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        for field in self.slots:
            if field not in instruction:
                raise ValueError(f"instruction: {instruction[:60]!r}… does not contain {field}")
        check_at_least("attempts", attempts, 1)
        self.engine = engine or InProcessEngine(max_rows=256)
        self.source = None if policy is None else ModelSource.frozen(policy, "policy")
        self.sampling = sampling
        self.instruction = instruction
        self.template = template
        self.attempts = attempts
        self.cache = cache
        self._model: ModelSpec | None = None
        self._replies: ReplyCache | None = None
        self._context: int | None = None
        self._seed = 0

    def begin(self, context: Context) -> None:
        """Open the cache, and load the model unless it is loaded.

        Raises:
            ValueError: if the responses came from a server and no ``policy`` is named to refine in
                this process.
        """
        self._seed = context.seed
        path = Path(self.cache) if self.cache else context.folder / "refined_replies.sqlite"
        self._replies = ReplyCache(path)
        self._context = context_length(load_config(self.source or context.model.name))
        if self.source is None:
            self._model = context.model
        elif self._model is None:
            self._model = self._load(self.source, context)
        if self.engine.capabilities.needs_policy and self._model.policy is None:
            raise ValueError(
                "policy: the responses came from a server, so no policy is loaded to refine them;"
                " name one, or give the refiner a ServerEngine too"
            )
        self.engine.bind(self._model)

    def _load(self, source: ModelSource, context: Context) -> ModelSpec:
        model = None
        if self.engine.capabilities.needs_policy:
            loaded = context.model.policy
            here = loaded.device if loaded is not None else _device()
            self.source = source = source.but(dtype=source.dtype or inference_dtype(here))
            model = load_policy(source).eval().to(here)
        return ModelSpec(name=source.path, tokenizer=load_tokenizer(source), policy=model)

    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return the refined responses; those without a cached reply are requested first.

        Raises:
            ValueError: if the engine fails; replies already received are kept.
        """
        spec, replies = self._model, self._replies
        assert spec is not None and replies is not None, "begin comes first"
        keys = [self._key(p, r) for p, r in zip(problems, responses, strict=True)]
        texts = [self._prompt(p, r) for p, r in zip(problems, responses, strict=True)]
        prompts = dict(zip(keys, encode_prompts(spec.tokenizer, texts), strict=True))
        response_of = dict(zip(keys, responses, strict=True))
        found: dict[str, Refined] = {}
        for key, prompt in prompts.items():
            room = None if self._context is None else self._context - self.sampling.max_tokens
            if room is not None and len(prompt) > room:
                why = f"its {len(prompt)} tokens with the instruction exceed the {room} that fit"
                found[key] = Refined(text=None, why=why)
        for attempt in range(self.attempts):
            left = [key for key in prompts if key not in found or found[key].why in _AGAIN]
            new = [key for key in left if replies.get(f"{key}-{attempt}") is None]
            self._request({key: prompts[key] for key in new}, attempt)
            for key in left:
                reply = ChatReply(**replies.get(f"{key}-{attempt}"))
                found[key] = self.read(reply, response_of[key])
        return [found[key] for key in keys]

    def read(self, reply: ChatReply, response: str) -> Refined:
        """Return the refined text of a reply, or why it cannot be read."""
        return read_reply(reply)

    def _request(self, prompts: dict[str, tuple[int, ...]], attempt: int) -> None:
        if not prompts:
            return
        spec, replies, keys = self._model, self._replies, list(prompts)
        assert spec is not None and replies is not None
        requests = [
            Request(
                prompt=prompts[key],
                samples=(int(key[:14], 16) * 64 + attempt,),
                sampling=self.sampling,
                seed=self._seed,
            )
            for key in keys
        ]

        def keep(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            texts = texts_of(completions, spec.tokenizer)
            for index, text, completion in zip(indices, texts, completions, strict=True):
                reply = ChatReply(
                    text=text,
                    completion_tokens=completion.num_tokens,
                    finished=completion.finished,
                )
                replies.put(f"{keys[index]}-{attempt}", asdict(reply))

        self.engine.stream(requests, keep)

    def _prompt(self, problem: Problem, response: str) -> str:
        assert self._model is not None
        text = refining_text(self.instruction, problem, response)
        text = literal(self._model.tokenizer, text, with_markup=True)
        return prompt_text(self._model.tokenizer, self.template, text)

    def _key(self, problem: Problem, response: str) -> str:
        settings = repr(sorted(self.describe().items()))
        return f"{digest(settings, problem.question, response, size=16):032x}"

    def describe(self) -> dict[str, Any]:
        """Return everything that the replies depend on."""
        source = self.source or ModelSource(self._model.name if self._model else "")
        return {
            "class": type(self).__name__,
            "kinds": None if self.kinds is None else list(self.kinds),
            "policy": source.path or None,
            "fingerprint": policy_fingerprint(source.path) if source.path else None,
            "engine": self.engine.describe(),
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "instruction": self.instruction,
            "template": self.template,
            "attempts": self.attempts,
            "seed": self._seed,
            "dtype": source.dtype,
            "attention": source.attention,
        }


def refining_text(instruction: str, problem: Problem, response: str) -> str:
    """Return the refiner's prompt: ``instruction`` with question, response and language in it."""
    fields = {
        "question": problem.question,
        "response": response,
        "thought_process": thinking_and_answer(response)[0] or response,
        "language": str(problem.meta.get("language") or language_of(problem.question)),
    }
    # one pass, so that braces in a response are never filled in
    return re.sub(
        r"\{(question|response|thought_process|language)\}", lambda m: fields[m[1]], instruction
    )


CUT, NO_PARTS = "the refiner was cut at its token limit", "the refiner's reply lacks its two parts"
NO_REPLY = "the server's reply to the refiner could not be read"
EMPTY = "the refiner's reply is empty"
_AGAIN = (CUT, NO_PARTS, NO_REPLY, EMPTY)


def read_reply(reply: ChatReply) -> Refined:
    """Return the refined text of a reply, or why it cannot be parsed.

    >>> read_reply(ChatReply(text="<reasoning> 3 + 4 </reasoning><summary> 7. </summary>",
    ...                  completion_tokens=9)).text
    '<think> 3 + 4 </think> 7.'
    """
    if not reply.finished:
        return Refined(text=None, why=CUT if reply.completion_tokens else NO_REPLY)
    _, answer = thinking_and_answer(reply.text)
    match = _REPLY.fullmatch(answer)
    parts = [part.strip() for part in match.groups()] if match else []
    if any(answer.count(tag) != 1 for tag in _TAGS) or not parts or not all(parts):
        return Refined(text=None, why=NO_PARTS)
    return Refined(text=f"<think> {parts[0]} </think> {parts[1]}")


THINKING = """\
Translate the thinking process to the same language as the question.

Write it in the first person ("I"), as somebody who begins with understanding the problem and then \
reasons in detail, with the reflection and the verification that are in it. Keep paragraphs short, \
in a natural, conversational tone, without markdown. Add no step and leave none out that leads to \
the result. Reply with the thinking process and nothing else.

## Question
{question}

## Thinking process
{thought_process}
"""
"""The first sentence is the paper's (arXiv 2501.12948v2, B.3.2). The paper says what thinking it
prefers (B.3.2, B.3.3) and prints no prompt for it; the rest of the wording is ours."""

LISTING_1 = """\
## Question
{question}

## Thought process
{thought_process}

---
Based on the above thought process, provide a clear, easy-to-follow, and well-formatted solution \
to the question. Use the same language as the question.

The solution must strictly follow these requirements:
- Stay faithful and consistent with the given thought process. Do not add new reasoning steps or \
conclusions not shown in the original.
- Show key steps leading to final answer(s) in clear, well-formatted LaTeX.
- Use \\boxed{} for final answer(s).
- Be clean and concise. Avoid colloquial language. Do not use phrases like "thought process" in \
the solution.

Your response should start with the solution right away, and do not include anything else. Your \
task is solely to write the solution based on the provided thought process. Do not try to solve \
the question yourself.
"""
"""The paper's prompt for a human-readable solution (arXiv 2501.12948v2, Listing 1)."""


class ThinkingRefiner(EngineRefiner):
    """Has a model rewrite the thinking in the first person and the question's language.

    What follows the thinking stays as it is, for ``SummaryRefiner`` to replace.

    Args:
        instruction: holds {question} and {thought_process}.
        **options: of ``EngineRefiner``.
    """

    slots = ("{question}", "{thought_process}")

    def __init__(self, instruction: str = THINKING, **options: Any) -> None:
        super().__init__(instruction=instruction, **options)

    def read(self, reply: ChatReply, response: str) -> Refined:
        """Return the response with the reply as its thinking."""
        thinking, why = plain_reply(reply)
        answer = thinking_and_answer(response)[1]
        return Refined(text=f"<think> {thinking} </think> {answer.strip()}" if thinking else None,
                       why=why)  # fmt: skip


class SummaryRefiner(EngineRefiner):
    """Has a model write the solution that follows the thinking, by the paper's Listing 1.

    "Since DeepSeek-R1-Zero's summary only provided the final answer", R1's cold start makes one
    with this prompt.

    Args:
        instruction: holds {question} and {thought_process}.
        **options: of ``EngineRefiner``.
    """

    slots = ("{question}", "{thought_process}")

    def __init__(self, instruction: str = LISTING_1, **options: Any) -> None:
        super().__init__(instruction=instruction, **options)

    def read(self, reply: ChatReply, response: str) -> Refined:
        """Return the response's thinking with the reply as what follows."""
        solution, why = plain_reply(reply)
        thinking = thinking_and_answer(response)[0] or response
        return Refined(text=f"<think> {thinking.strip()} </think> {solution}" if solution else None,
                       why=why)  # fmt: skip


def plain_reply(reply: ChatReply) -> tuple[str, str]:
    """Return a reply without the refiner's own thinking, or "" and why there is none."""
    if not reply.finished:
        return "", CUT if reply.completion_tokens else NO_REPLY
    text = _THINK.sub("", thinking_and_answer(reply.text)[1]).strip()
    return text, "" if text else EMPTY


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
