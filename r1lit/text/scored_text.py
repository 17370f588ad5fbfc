"""The input of a reward model, the same in training and in scoring.

prompt in its template · the scored part of the response · EOS
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from r1lit.text.conversation import Conversation
from r1lit.text.extract import thinking_and_answer
from r1lit.text.pieces import pieces
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.text.steps import token_places

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ScoreOn = Literal["summary", "response"]
"""R1's helpful reward model scores the final summary only, the safety one the whole response."""


@dataclass(frozen=True, kw_only=True)
class ScoredRow:
    """Token ids of one row, of which the last ``num_response_tokens`` before EOS are a response's.

    ``num_cut`` tokens at the beginning of the prompt were left out.
    """

    tokens: tuple[int, ...]
    num_response_tokens: int
    num_cut: int = 0

    @property
    def response_start(self) -> int:
        """The index of the response's first token; below 1 where some of it was cut."""
        return len(self.tokens) - 1 - self.num_response_tokens

    def places(self, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int]) -> tuple[int, ...]:
        """Return which tokens of the row hold the characters before offsets into the response."""
        start, decode = self.response_start, cast(Callable[[list[int]], str], tokenizer.decode)
        if not ends:
            return ()
        texts = pieces(decode, self.tokens[start:-1])
        return tuple(start + place for place in token_places(texts, ends))


def scored_part(response: str, score_on: ScoreOn, think_prefilled: bool = False) -> str:
    """Return the part of a response that is scored, stripped of white space.

    With ``think_prefilled``, the prompt template ended in ``<think>``: a response without tags is
    thinking that was cut off, and has no summary.

    >>> scored_part("<think> 3 + 4 </think> It is 7.", "summary")
    'It is 7.'
    >>> scored_part("3 + 4 is", "summary", think_prefilled=True)
    ''
    """
    if score_on == "summary":
        response = thinking_and_answer("<think>" + response if think_prefilled else response)[1]
    return response.strip()


def encode_scored(
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str | Conversation],
    texts: Sequence[str],
    *,
    template: str,
    max_tokens: int | None = None,
) -> list[ScoredRow]:
    """Return one row for each question and scored text.

    Prompt and text are tokenised apart, as in a rollout. EOS always follows, even if the response
    was cut: the score is read there. A row longer than ``max_tokens`` loses the beginning of its
    prompt, but keeps BOS: without the first token of its training a model fails.

    Raises:
        ValueError: if there is no such template.
    """
    templated = {question: prompt_text(tokenizer, template, question) for question in questions}
    tokens_of = dict(
        zip(templated, encode_prompts(tokenizer, list(templated.values())), strict=True)
    )
    encoded = (
        tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        if texts
        else []
    )
    rows = []
    for question, ids in zip(questions, encoded, strict=True):
        tokens = (*tokens_of[question], *ids, tokenizer.eos_token_id)
        num_cut = 0 if max_tokens is None else max(0, len(tokens) - max_tokens)
        if num_cut:
            keep = int(tokens[0] == tokenizer.bos_token_id)
            tokens = (*tokens[:keep], *tokens[keep + num_cut :])
        rows.append(ScoredRow(tokens=tokens, num_response_tokens=len(ids), num_cut=num_cut))
    return rows
