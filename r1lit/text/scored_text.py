"""The input of a reward model, the same in training and in scoring, and steps of a response.

prompt in its template · the scored part of the response · EOS

A step ends at a separator of the text, and so at a token.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, cast

from r1lit.text.extract import thinking_and_answer
from r1lit.text.prompts import Conversation, encode_prompts, literal_question, prompt_text
from r1lit.text.special_tokens import literal, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def pieces(decode: Callable[[list[int]], str], ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the text of all.

    A token is decoded after its neighbours, since some tokenizers drop a space at the beginning.
    A character of several tokens stands with the last of them, the others add nothing.

    >>> pieces(lambda ids: bytes(ids).decode(errors="replace"), [72, 195, 164, 33])
    ['H', '', 'ä', '!']
    """
    found = [""] * len(ids)
    before, read = 0, 0  # tokens before ``read`` have their text; ``before`` is a neighbour's
    for end in range(1, len(ids) + 1):
        known = decode(list(ids[before:read]))
        text = decode(list(ids[before:end]))
        if len(text) > len(known) and (end == len(ids) or not text.endswith("�")):
            found[end - 1] = text[len(known) :]
            before, read = read, end
    return found


Aggregate = Literal["last", "min", "product"]
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
}
"""Aggregates of the steps' scores into a response's (Let's Verify 2305.20050, App. F)."""


def step_ends(text: str, separators: Sequence[str]) -> list[int]:
    r"""Return where each step of a text ends, as offsets.

    A separator ends a step and stays part of it; several in a row end one. What follows the last
    one is a step too. White space alone is none.

    >>> step_ends("3 + 4 = 7.\n\nSo 7.", ["\n\n"])
    [12, 17]

    Raises:
        ValueError: if there is no separator, or an empty one.
    """
    if not separators or not all(separators):
        raise ValueError(f"separators: {list(separators)} are not texts that end a step")
    longest_first = sorted(separators, key=len, reverse=True)
    pattern = f"(?:{'|'.join(map(re.escape, longest_first))})+"
    ends = [match.end() for match in re.finditer(pattern, text)]
    ends += [len(text)] * (ends[-1:] != [len(text)])
    return [end for start, end in zip([0, *ends], ends, strict=False) if text[start:end].strip()]


def cut_steps(text: str, separators: Sequence[str]) -> list[str]:
    r"""Return the steps of a text; joined, they are the text but for white space at its end.

    >>> cut_steps("3 + 4 = 7.\n\nSo 7.", ["\n\n"])
    ['3 + 4 = 7.\n\n', 'So 7.']
    """
    ends = step_ends(text, separators)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def token_places(pieces: Sequence[str], ends: Sequence[int]) -> list[int]:
    """Return which token holds the character before each offset into a text.

    >>> token_places(["3", " + 4", ".", " So"], [6, 9])
    [2, 3]

    Args:
        pieces: the text of each token, see ``r1lit.text.scored_text``; at least one.
        ends: offsets from 1 on; the last token's where they exceed the text.
    """
    lengths = list(accumulate(map(len, pieces)))
    return [min(bisect_left(lengths, end), len(pieces) - 1) for end in ends]


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
    prompt, but keeps BOS: without the first token of its training a model fails. A text that spells
    a special token does not become it: what is scored could speak in another role.

    Raises:
        ValueError: if there is no such template.
    """
    templated = {
        question: prompt_text(tokenizer, template, literal_question(tokenizer, question))
        for question in questions
    }
    tokens_of = dict(
        zip(templated, encode_prompts(tokenizer, list(templated.values())), strict=True)
    )
    written = [literal(tokenizer, text, with_markup=True) for text in texts]
    encoded = token_ids(tokenizer, written, add_special_tokens=False)
    rows = []
    for question, ids in zip(questions, encoded, strict=True):
        tokens = (*tokens_of[question], *ids, tokenizer.eos_token_id)
        num_cut = 0 if max_tokens is None else max(0, len(tokens) - max_tokens)
        if num_cut:
            keep = int(tokens[0] == tokenizer.bos_token_id)
            tokens = (*tokens[:keep], *tokens[keep + num_cut :])
        rows.append(ScoredRow(tokens=tokens, num_response_tokens=len(ids), num_cut=num_cut))
    return rows
