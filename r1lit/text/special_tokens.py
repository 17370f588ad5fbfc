"""Text that holds the texts of special tokens, tokenised as text.

A tokenizer turns "<|end|>" into the token that ends a turn, whoever wrote it. What templates write
may do so; questions, tool results and other data may not: they could close their turn and speak in
another role. `literal` breaks such texts before they are put into a template, and `token_ids`
tokenises the result. Text without any is tokenised by the tokenizer alone, and its ids stay.

Transformers' ``sanitize_control_tokens`` (5.24) does this for a chat as a whole. Here it also works
in text templates, for single turns of an episode, and for added tokens that no template holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

# noncharacters of Unicode, which no text may hold in interchange
BREAK = "\ufdd0"
"""Stands within the text of a control token that is to be read as text."""
MARK = "\ufdd1"
REPLACEMENT = "\ufffd"
_MARKUP = re.compile(r"[<\[{＜【].*[>\]}＞】]", re.DOTALL)
_NOT_TEXT = re.compile(f"[{BREAK}{MARK}\ud800-\udfff]")

Value = TypeVar("Value")


class ControlTokens:
    """The added tokens of a tokenizer that text must not turn into.

    These are the special tokens, and of the others those that are markup, such as ``<think>``, or
    stand in the chat template. Further added tokens are vocabulary: runs of spaces, words. A token
    of one character is vocabulary too, since nothing else could write that character.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        named, template = tokenizer.all_special_tokens, str(tokenizer.chat_template or "")
        tokens = [t for t in tokenizer.added_tokens_decoder.values() if len(t.content) > 1]
        special = {t.content for t in tokens if t.special or t.content in named}
        markup = {
            t.content
            for t in tokens
            if not t.content.isspace() and (_MARKUP.fullmatch(t.content) or t.content in template)
        }
        self.all = frozenset(special | markup)
        self.single_words = frozenset(t.content for t in tokens if t.single_word)
        self.strips = {t.content: (t.lstrip, t.rstrip) for t in tokens}
        self.is_normalized = any(t.normalized for t in tokens if t.content in self.all)
        self._starts = {True: _Starts(special), False: _Starts(self.all)}

    def starts(self, with_markup: bool) -> _Starts:
        """Return the finder of tokens in a text; ``with_markup`` leaves markup as tokens."""
        return self._starts[with_markup]

    def ids(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
        """Return the id of each."""
        return {
            t.content: i for i, t in tokenizer.added_tokens_decoder.items() if t.content in self.all
        }

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of the tokens as a tokenizer finds them: longest first, some only as words."""
        return re.compile(
            "|".join(
                rf"(?<!\w){re.escape(t)}(?!\w)" if t in self.single_words else re.escape(t)
                for t in sorted(self.all, key=len, reverse=True)
            )
            or "(?!)"
        )


class _Starts:
    """Finds where one of some texts begins, or is cut at an end of a text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.by_start: dict[str, tuple[str, ...]] = {}
        heads: dict[str, set[str]] = {}
        tails: dict[str, set[str]] = {}
        for text in texts:
            self.by_start[text[:2]] = (*self.by_start.get(text[:2], ()), text)
            for place in range(1, len(text)):
                heads.setdefault(text[place - 1], set()).add(text[:place])
                tails.setdefault(text[place], set()).add(text[place:])
        self.pattern = re.compile(f"(?=({'|'.join(map(re.escape, self.by_start)) or '(?!)'}))")
        self.heads = {last: tuple(own) for last, own in heads.items()}
        self.tails = {first: tuple(own) for first, own in tails.items()}

    def find(self, text: str) -> Iterator[int]:
        """Yield where one begins."""
        for found in self.pattern.finditer(text):
            if text.startswith(self.by_start[found[1]], found.start()):
                yield found.start()

    def broken(self, text: str) -> str:
        """Return a text with a break after each beginning, and where one may go on outside."""
        places = {place + 1 for place in self.find(text)}
        if text.startswith(self.tails.get(text[:1], ())):
            places.add(0)
        if text.endswith(self.heads.get(text[-1:], ())):
            places.add(len(text))
        if not places:
            return text
        cuts = sorted(places)
        pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        return BREAK.join(pieces)


_CONTROL: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[Any, ControlTokens]]
_CONTROL = WeakKeyDictionary()
_RENAMED: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[ControlTokens, Renamed]]
_RENAMED = WeakKeyDictionary()


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> ControlTokens:
    """Return the added tokens of a tokenizer that text must not turn into."""
    state = len(tokenizer), tokenizer.special_tokens_map, tokenizer.chat_template
    known = _CONTROL.get(tokenizer)
    if known is None or known[0] != state:
        known = _CONTROL[tokenizer] = state, ControlTokens(tokenizer)
    return known[1]


def well_formed(text: str) -> str:
    r"""Return a text without lone surrogates, which no file and no tokenizer takes.

    >>> well_formed("a\ud800b") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def literal(
    tokenizer: PreTrainedTokenizerBase, value: Value, *, with_markup: bool = False
) -> Value:
    """Return data in whose texts no control token can be read, for a template to take.

    Such texts get a ``BREAK``, which `token_ids` removes again. Lone surrogates and noncharacters
    become U+FFFD.

    Args:
        tokenizer: whose control tokens these are.
        value: a text, or lists and mappings of texts; keys count too.
        with_markup: leave markup, such as ``<think>``, as tokens: what a model has written.
    """
    made: Any = value
    if isinstance(value, str):
        made = _literal_text(tokenizer, value, with_markup)
    elif isinstance(value, Mapping):
        made = {
            literal(tokenizer, key, with_markup=with_markup): literal(
                tokenizer, item, with_markup=with_markup
            )
            for key, item in value.items()
        }
    elif isinstance(value, list | tuple):
        made = type(value)(literal(tokenizer, item, with_markup=with_markup) for item in value)
    return made


def _literal_text(tokenizer: PreTrainedTokenizerBase, text: str, with_markup: bool) -> str:
    control = control_tokens(tokenizer)
    starts = control.starts(with_markup)
    text = _NOT_TEXT.sub(REPLACEMENT, well_formed(text))
    broken = starts.broken(text)
    if broken == text and control.is_normalized:
        normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        read = text if normalizer is None else normalizer.normalize_str(text)
        if next(starts.find(read), None) is not None:
            return BREAK + text  # such as full-width letters, which become ASCII
    return broken


def held_control_token(
    tokenizer: PreTrainedTokenizerBase, text: str, *, with_markup: bool = False
) -> str | None:
    """Return the text of the first control token in a text, or None; see `literal`."""
    starts = control_tokens(tokenizer).starts(with_markup)
    place = next(starts.find(text), None)
    if place is None:
        return None
    return max((t for t in starts.by_start[text[place : place + 2]]
                if text.startswith(t, place)), key=len)  # fmt: skip


def unbroken(text: str) -> str:
    """Return a text as it was before `literal`."""
    return text.replace(BREAK, "")


def token_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], add_special_tokens: bool = True
) -> list[list[int]]:
    """Return the ids of texts, in which `literal` has broken what data says.

    Raises:
        ValueError: if the tokenizer cannot write the text of a control token as text.
    """
    texts = [well_formed(text) for text in texts]
    plain = [text for text in texts if BREAK not in text]
    encoded = iter(
        tokenizer(plain, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
        if plain
        else ()
    )
    return [
        _ids_of_broken(tokenizer, text, add_special_tokens) if BREAK in text else next(encoded)
        for text in texts
    ]


def _ids_of_broken(
    tokenizer: PreTrainedTokenizerBase, text: str, add_special_tokens: bool
) -> list[int]:
    control = control_tokens(tokenizer)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        return _ids_in_pieces(tokenizer, control, text, add_special_tokens)
    renamed = _renamed(tokenizer, control)
    text = unbroken(control.pattern.sub(lambda found: renamed.names[found[0]], text))
    ids: list[int] = renamed.backend.encode(text, add_special_tokens=add_special_tokens).ids
    return ids


def _ids_in_pieces(
    tokenizer: PreTrainedTokenizerBase, control: ControlTokens, text: str, add_special_tokens: bool
) -> list[int]:
    """Return the ids of a tokenizer in Python: the template's tokens, and the text between them."""
    ids: list[int] = []
    kept = control.ids(tokenizer)
    pieces = re.split(f"({control.pattern.pattern})", text)
    for i in range(1, len(pieces), 2):
        strips_left, strips_right = control.strips[pieces[i]]
        pieces[i - 1] = pieces[i - 1].rstrip() if strips_left else pieces[i - 1]
        pieces[i + 1] = pieces[i + 1].lstrip() if strips_right else pieces[i + 1]
    for piece in pieces:
        if piece in control.all:
            ids.append(kept[piece])
        elif piece:
            plain = unbroken(piece)
            own = tokenizer.encode(plain, add_special_tokens=False, split_special_tokens=True)
            if {*kept.values()} & set(own) - {tokenizer.unk_token_id}:
                _refuse(tokenizer, plain)
            ids += own
    return tokenizer.build_inputs_with_special_tokens(ids) if add_special_tokens else ids


def _refuse(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    raise ValueError(
        f"model: the tokenizer {type(tokenizer).__name__} cannot write {text[:60]!r} as text, only"
        " as its special token; take the model's fast tokenizer"
    )


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """A tokenizer that knows its control tokens by names that no text holds.

    All else is the same: what it adds, how it splits, and the ids.
    """

    backend: Tokenizer
    names: Mapping[str, str]


def _renamed(tokenizer: PreTrainedTokenizerBase, control: ControlTokens) -> Renamed:
    known = _RENAMED.get(tokenizer)
    if known is not None and known[0] is control:
        return known[1]
    from tokenizers import Tokenizer

    names = {token: f"{MARK}{i}{MARK}" for i, token in enumerate(sorted(control.all))}
    backend = tokenizer.backend_tokenizer
    described = json.loads(backend.to_str())
    _rename(described, names)
    made = Tokenizer.from_str(json.dumps(described))
    made.no_truncation()
    made.no_padding()
    for token, name in names.items():
        if made.token_to_id(name) != backend.token_to_id(token):
            _refuse(tokenizer, token)
    renamed = Renamed(backend=made, names=names)
    _RENAMED[tokenizer] = (control, renamed)
    return renamed


def _rename(described: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename tokens in the description of a tokenizer, in its vocabulary too."""
    for token in described["added_tokens"]:
        if token["content"] in names:
            # a normalizer could take the marks away; the pattern has looked at single words
            token |= {"content": names[token["content"]], "normalized": False, "single_word": False}
    model = described["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): i for text, i in vocabulary.items()}
    else:  # Unigram
        model["vocab"] = [[names.get(text, text), *rest] for text, *rest in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        pairs = [m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"]]
        model["merges"] = [p for p in pairs if not {*p, "".join(p)} & names.keys()]
