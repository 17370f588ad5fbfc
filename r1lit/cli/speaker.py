"""A policy that replies to questions, in a run's template, one reply at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from r1lit.cli.trained import Trained
from r1lit.data.datamodule import PromptOptions
from r1lit.data.packing import encode_questions
from r1lit.device import inference_dtype, threads
from r1lit.policy import ModelSource, context_length, load_config, load_policy, load_tokenizer
from r1lit.problems import Problem
from r1lit.rollout import ModelSpec, Request, Sampling, texts_of
from r1lit.rollout.streaming import StreamingEngine
from r1lit.text.prompts import CHAT, Conversation, Message, question_of
from r1lit.verifiers import Grader

OWN = Sampling(temperature=0.6, top_p=0.95, max_tokens=1024)
"""Sampling of a model without a run: DeepSeek-R1's in evaluation, and shorter."""

SMALL = 20_000_000
"""Parameters up to which one thread decodes a row as fast as several on a CPU.

Several wait for each other at every product: slow where other work keeps the cores busy."""

OnText = Callable[[str, bool], bool]
"""Takes a piece of text and whether it is thinking; returns whether the reply goes on."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply with its length, and whether it ended by itself."""

    text: str
    num_tokens: int
    finished: bool
    seconds: float
    seed: int


class Speaker:
    """Loads a policy, and replies to questions.

    Args:
        name: what it is called.
        path: the policy: a Hugging Face directory, a PEFT folder, a name on the hub.
        trained: what it was trained with, if it is of a run.
        template: that of prompts; the run's if left out, else the chat template, else r1_zero.
        changes: of the sampling.

    Raises:
        ValueError: if there is no such policy or template.
    """

    def __init__(
        self,
        name: str,
        path: str,
        trained: Trained | None,
        template: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.trained = name, trained
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        source = ModelSource.frozen(path, "run")
        source = source.but(dtype=inference_dtype(self.device))
        self.context = context_length(load_config(source))
        self.tokenizer = load_tokenizer(source)
        self.prompts = self._prompts(template)
        self.sampling = self._sampling(changes or {})
        self.ids_of("Hello")  # an unknown template is named before the weights are loaded
        policy = load_policy(source).eval().to(self.device)
        is_small = sum(weight.numel() for weight in policy.parameters()) <= SMALL
        self.one_thread = is_small and self.device.type == "cpu"
        self.engine = StreamingEngine()
        self.engine.bind(
            ModelSpec(
                name=name,
                tokenizer=self.tokenizer,
                policy=policy,
                turn_end=self.prompts.turn_end(self.tokenizer),
            )
        )
        self.turns: list[Message] = []
        self.last_prompt = ""

    def _prompts(self, template: str | None) -> PromptOptions:
        own = PromptOptions() if self.trained is None else self.trained.prompts(self.tokenizer)
        if template is None and self.trained is None:
            template = CHAT if self.tokenizer.chat_template else "r1_zero"
        if template in (None, own.template):
            return own
        system_prompt = own.system_prompt if template == CHAT else ""
        return replace(own, template=template, system_prompt=system_prompt)

    def _sampling(self, changes: Mapping[str, Any]) -> Sampling:
        own = self.trained.sampling if self.trained is not None else None
        sampling = replace(own or OWN, **changes)
        if self.context is not None and "max_tokens" not in changes and own is None:
            half = max(1, self.context // 2)
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, half))
        return sampling

    @property
    def template_name(self) -> str:
        """The template's name, or its beginning if it is a text of the user's own."""
        name = self.prompts.template
        return name if len(name) <= 40 else f"{name[:40]}…"

    @property
    def converses(self) -> bool:
        """True where a question is asked after the earlier turns of the conversation."""
        return self.prompts.template == CHAT

    def ids_of(self, question: str | Conversation) -> tuple[int, ...]:
        """Return the prompt of a question as training makes it.

        Raises:
            ValueError: if it leaves no room for a reply.
        """
        (ids,) = encode_questions(
            [self.prompts.literal(self.tokenizer, question)],
            self.tokenizer,
            template=self.prompts.template,
            wording=self.prompts.wording,
            system_prompt=self.prompts.system_prompt,
        )
        if self.context is not None and len(ids) >= self.context:
            forget = ", or forget the turns before it with /new" if self.turns else ""
            raise ValueError(
                f"the prompt has {len(ids)} tokens, which leaves no room for a reply in the model's"
                f" context of {self.context}; ask a shorter question{forget}"
            )
        return ids

    def reply(
        self,
        question: str,
        problem: Problem | None,
        sampling: Sampling,
        seed: int,
        on_text: OnText,
    ) -> Reply:
        """Reply to a question; a problem is asked by itself, as it was in training.

        Raises:
            ValueError: if the prompt leaves no room for a reply.
        """
        if problem is not None or not self.converses:
            self.turns = []
        asked: Message = {"role": "user", "content": question}
        opening: str | Conversation = question if problem is None else question_of(problem)
        if self.turns:
            opening = Conversation.of([*self.turns, asked])
        ids = self.ids_of(opening)
        self.last_prompt = str(self.tokenizer.decode(list(ids)))
        if self.context is not None:
            room = self.context - len(ids)
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        request = Request(prompt=ids, samples=(0,), sampling=sampling, seed=seed)
        thinking = Thinking(self.last_prompt)
        start = time.perf_counter()
        with threads(1) if self.one_thread else nullcontext():
            completion = self.engine.reply(request, lambda text: on_text(text, thinking.add(text)))
        (text,) = texts_of([completion], self.tokenizer)
        self.turns += [asked, {"role": "assistant", "content": text}]
        return Reply(
            text=text,
            num_tokens=completion.num_tokens,
            finished=completion.finished,
            seconds=time.perf_counter() - start,
            seed=seed,
        )

    def verdict(self, reply: Reply, problem: Problem) -> str:
        """Return the verdict of the run's grader in words, with the gold answer if it is wrong."""
        grader = self.trained.grader if self.trained is not None else Grader()
        (verdict,) = grader.verdicts([reply.text], [problem])
        if verdict.status == "right":
            return "right"
        reason = f" ({verdict.reason})" if verdict.reason else ""
        value = f", value {verdict.value:.2f}" if verdict.value else ""
        gold = grader.verifier_of(problem).gold_text(problem)
        answer = f", gold answer {gold}" if gold and len(gold) <= 60 else ""
        return f"{verdict.status}{reason}{value}{answer}"

    def take_back(self) -> None:
        """Forget the last question and its reply."""
        del self.turns[-2:]

    def forget(self) -> None:
        """Forget the conversation."""
        self.turns = []


class Thinking:
    """A reader of text in pieces, which knows what is within <think> and </think>."""

    def __init__(self, prompt: str) -> None:
        self._text = ""
        self._opened = prompt.rstrip().endswith("<think>")

    def add(self, text: str) -> bool:
        """Return whether a piece is of the thinking, its tags included."""
        closed_before = "</think>" in self._text
        self._text += text
        opened = self._opened or "<think>" in self._text
        return opened and not closed_before
