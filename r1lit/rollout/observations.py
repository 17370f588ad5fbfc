"""An environment's answers, cut to their limit, as messages and as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from transformers import PreTrainedTokenizerBase

from r1lit.environments import TurnFormat
from r1lit.text.special_tokens import REPLACEMENT, literal, token_ids, well_formed

MARK = " …[cut]"
SHORT = 16
"""Characters a token, up to which a text is tokenised without a look at the vocabulary."""
_LONGEST: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def observe(
    tokenizer: PreTrainedTokenizerBase,
    turns: TurnFormat,
    messages: Sequence[Mapping[str, Any]],
    max_tokens: int,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return an environment's messages as the model reads them, and their tokens.

    Contents that are too long together are cut, each to its share, with a mark. Before it is
    tokenised a content is cut to characters of which there are more than ``max_tokens`` tokens: a
    result of megabytes takes minutes to tokenise.
    """
    shown = [
        {**m, "content": turns.escaped(_tokenisable(tokenizer, m["content"], max_tokens))}
        for m in messages
    ]
    ids = turns.encode(tokenizer, shown)
    if len(ids) > max_tokens:
        shown = _shortened(tokenizer, shown, max_tokens)
        ids = turns.encode(tokenizer, shown)
    return shown, ids


def _tokenisable(tokenizer: PreTrainedTokenizerBase, text: str, max_tokens: int) -> str:
    """Return a text, cut with a mark where it has more than ``max_tokens`` tokens for certain."""
    if len(text) > SHORT * max_tokens:
        if tokenizer not in _LONGEST:
            _LONGEST[tokenizer] = max(map(len, tokenizer.get_vocab()))
        most = max(SHORT, _LONGEST[tokenizer]) * max_tokens
        text = text if len(text) <= most else text[:most] + MARK
    return well_formed(text)


def _shortened(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], max_tokens: int
) -> list[dict[str, Any]]:
    """Return messages whose contents are cut, each to its share of the limit, with a mark."""
    share = max(1, max_tokens // len(messages))
    cut = []
    for message in messages:
        content = message["content"]
        (ids,) = token_ids(tokenizer, [literal(tokenizer, content)], add_special_tokens=False)
        if len(ids) > share:
            content = _first_of(tokenizer, content, ids, share) + MARK
        cut.append({**message, "content": content})
    return cut


def _first_of(tokenizer: Any, text: str, ids: Sequence[int], most: int) -> str:
    """Return the text of the first ``most`` tokens, or of a few less, which end a character.

    Some tokenizers decode a character's first bytes, and all bytes before it, as replacements.
    """
    num_replaced = text.count(REPLACEMENT)
    for num in range(most, max(0, most - 4), -1):
        first = str(tokenizer.decode(ids[:num]))
        if first.count(REPLACEMENT) <= num_replaced:
            return first
    return first
