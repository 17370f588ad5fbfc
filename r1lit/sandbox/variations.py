"""Fresh arguments: variations of packed ones that keep their types and, mostly, their form.

A variation changes letters to letters and digits to digits, or one word to another, everywhere
alike, so that a pattern still matches the text beside it; or it changes one part: a number, a
character, an element; or it takes an argument of another recorded call. An argument that every
recorded call sorts stays sorted, one without repetition stays so, and no number changes its sign:
the contract of a function is not known.
Whether a variation makes sense is decided by the right code: see `r1lit.sandbox.hidden_calls`.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SEQUENCES = ("l", "t", "s", "z")
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_ALPHABETS = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


def variation(
    text: str, texts: Sequence[str], contracts: Sequence[Contract], rng: random.Random
) -> str:
    """Return new packed arguments, made of recorded ones and sometimes of one of others."""
    tree, things = json.loads(text)
    if rng.random() < 0.3:
        _take_argument(tree, things, json.loads(rng.choice(texts)), rng)
    how = rng.random()
    if how < 0.25:
        tree = _substituted(tree, _substitution(rng))
    elif how < 0.6:
        tree = _with_another_word(tree, rng)
    if how > 0.5 or rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            tree = _with_one_change(tree, rng)
    _keep(contracts, tree[1][0][1])
    return json.dumps([tree, things])


@dataclass(frozen=True)
class Contract:
    """Properties of one argument that all recorded calls have in common."""

    is_sorted: bool
    is_distinct: bool


def contracts_of(texts: Sequence[str]) -> list[Contract]:
    """Return the contract of each argument by place, from all recorded packed arguments."""
    recorded = [json.loads(text)[0][1][0][1] for text in texts]
    contracts = []
    for place in range(max(map(len, recorded), default=0)):
        values = [arguments[place] for arguments in recorded if place < len(arguments)]
        lists = [value[1] for value in values if _is_list(value)]
        may_be = len(lists) == len(values) and all(map(_orderable, lists))
        is_sorted = any(len(x) > 2 for x in lists) and all(map(_is_sorted, lists))
        is_distinct = any(len(x) > 1 for x in lists) and all(map(_without_repetition, lists))
        contracts.append(Contract(may_be and is_sorted, may_be and is_distinct))
    return contracts


def _keep(contracts: Sequence[Contract], arguments: Any) -> None:
    """Sort an argument that all recorded calls have sorted, and drop repetitions where none has.

    One change keeps both of the list that it gets; several one after another may not.
    """
    for contract, argument in zip(contracts, arguments, strict=False):
        if not _is_list(argument) or not _orderable(argument[1]):
            continue
        if contract.is_distinct:
            argument[1] = list({_key(item): item for item in argument[1]}.values())
        if contract.is_sorted:
            argument[1].sort(key=_order)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and value[0] == "l"


def _take_argument(tree: Any, things: Any, other: Any, rng: random.Random) -> None:
    """Replace an argument by that of another call with as many; things stay where they are."""
    ours, theirs = tree[1][0][1], other[0][1][0][1]
    places = [n for n in range(min(len(ours), len(theirs))) if not _refers(ours[n], theirs[n])]
    if places and len(ours) == len(theirs):
        place = rng.choice(places)
        ours[place] = theirs[place]


def _refers(*trees: Any) -> bool:
    return any(part[0] == "k" for tree in trees for part in _parts(tree) if isinstance(part, list))


def _parts(tree: Any) -> Iterator[Any]:
    """Yield the values in a tree, from the outside in; what stays as it is has none."""
    yield tree
    if isinstance(tree, list) and tree[0] in SEQUENCES:
        for item in tree[1]:
            yield from _parts(item)
    elif isinstance(tree, list) and tree[0] == "d":
        for _, value in tree[1]:
            yield from _parts(value)


def _substitution(rng: random.Random) -> dict[int, str]:
    """Return a map of some letters and digits to others of their kind, one to one."""
    table: dict[int, str] = {}
    for alphabet in _ALPHABETS:
        chosen = [c for c in alphabet if rng.random() < 0.5]
        table |= {ord(a): b for a, b in zip(chosen, rng.sample(chosen, len(chosen)), strict=True)}
    return table


def _substituted(tree: Any, table: dict[int, str]) -> Any:
    """Return a tree with all texts but the keys of dictionaries changed alike."""
    if isinstance(tree, str):
        return tree.translate(table)
    if isinstance(tree, list) and tree[0] in SEQUENCES:
        return [tree[0], [_substituted(item, table) for item in tree[1]]]
    if isinstance(tree, list) and tree[0] == "d":
        return ["d", [[key, _substituted(value, table)] for key, value in _pairs(tree)]]
    return tree


def _with_another_word(tree: Any, rng: random.Random) -> Any:
    """Return a tree with one word, or one number in a text, replaced wherever it stands."""
    texts = [part for part in _parts(tree) if isinstance(part, str)]
    keys = [key for part in _parts(tree) if isinstance(part, list) and part[0] == "d"
            for key, _ in part[1] if isinstance(key, str)]  # fmt: skip
    words = [word for text in (*texts, *keys) for word in _WORD.findall(text)]
    if not words:
        return tree
    old = rng.choice(words)
    new = "".join(_alike(c, rng) for c in old) + rng.choice(("", "", old[-1]))
    pattern = re.compile(rf"(?<![^\W_]){re.escape(old)}(?![^\W_])")

    def renamed(part: Any) -> Any:
        if isinstance(part, str):
            return pattern.sub(new, part)
        if isinstance(part, list) and part[0] in SEQUENCES:
            return [part[0], [renamed(item) for item in part[1]]]
        if isinstance(part, list) and part[0] == "d":
            return ["d", [[renamed(key), renamed(value)] for key, value in _pairs(part)]]
        return part

    arguments, keywords = tree[1]
    named = ["d", [[key, renamed(value)] for key, value in _pairs(keywords)]]
    return ["t", [renamed(arguments), named]]


def _pairs(tree: Any) -> list[tuple[Any, Any]]:
    return [(pair[0], pair[1]) for pair in tree[1]]


def _with_one_change(tree: Any, rng: random.Random) -> Any:
    """Return the arguments with one value changed; the tuples that hold them stay."""
    arguments, keywords = tree[1]
    roots = [*((arguments[1], n) for n in range(len(arguments[1])))]
    roots += [(pair, 1) for pair in keywords[1]]
    if not roots:
        return tree
    owner, place = rng.choice(roots)
    owner[place] = _changed(owner[place], rng)
    return tree


def _changed(value: Any, rng: random.Random) -> Any:
    """Return a value with one part of it changed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return _changed_text(value, rng)
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "i":
        return ["i", hex(_changed_number(int(content, 16), rng))]
    if kind == "f":
        return ["f", _changed_float(float.fromhex(content), rng).hex()]
    if kind in SEQUENCES:
        return [kind, _changed_items(content, rng, fixed=kind == "t")]
    if kind == "d" and content:
        pairs = [list(pair) for pair in content]
        place = rng.randrange(len(pairs))
        if rng.random() < 0.2:
            del pairs[place]
        else:
            pairs[place][1] = _changed(pairs[place][1], rng)
        return ["d", pairs]
    return value


def _changed_number(number: int, rng: random.Random) -> int:
    """Return another whole number of the same sign and about the same size; 0 may become 1 to 9."""
    size = abs(number)
    far = size + rng.randint(1, 9) * rng.choice((10, 100, 1000))  # with the same last digits
    near = (size + 1, size - 1, rng.randint(0, 2 * size + 9), rng.randint(0, 10))
    found = rng.choice((*near, far))
    found = max(found, 1 if size else 0)
    return -found if number < 0 else found


def _changed_float(number: float, rng: random.Random) -> float:
    if number != number or number in (float("inf"), float("-inf")):
        return number
    if number.is_integer() and rng.random() < 0.5:
        return float(_changed_number(int(number), rng))
    return round(number * rng.uniform(0.25, 2.5), rng.choice((1, 2, 3, 6)))


def _changed_text(text: str, rng: random.Random) -> str:
    """Return a text with a character replaced by one of its kind, doubled, dropped, or two swapped.

    Half of the time all letters or digits of a word change.
    """
    if not text:
        return text
    if rng.random() < 0.3:
        return "".join(_alike(c, rng) if rng.random() < 0.5 else c for c in text)
    at = rng.randrange(len(text))
    how = rng.randrange(4)
    if how == 0:
        return text[:at] + _alike(text[at], rng) + text[at + 1 :]
    if how == 1:
        return text[:at] + text[at] + text[at:]
    if how == 2:
        return text[:at] + text[at + 1 :]
    start = rng.randrange(len(text))
    return text[start:at] + text if start < at else text[:start] + rng.choice(text) + text[start:]


def _alike(character: str, rng: random.Random) -> str:
    for alphabet in _ALPHABETS:
        if character in alphabet:
            return rng.choice(alphabet)
    return character


def _changed_items(items: Sequence[Any], rng: random.Random, fixed: bool) -> list[Any]:
    """Return items with one changed, dropped, repeated or moved; a tuple keeps its length."""
    made = list(items)
    if not made:
        return made
    at = rng.randrange(len(made))
    how = rng.randrange(2 if fixed else 5)
    if how <= 1:
        made[at] = _changed(made[at], rng)
    elif how == 2:
        del made[at]
    elif how == 3:
        made.insert(rng.randrange(len(made) + 1), _changed(made[at], rng))
    else:
        rng.shuffle(made)
    if len(items) > 1 and not fixed and _orderable(items) and _without_repetition(items):
        made = list({_key(item): item for item in made}.values())
    if len(items) > 2 and _is_sorted(items):
        made.sort(key=_order)
    return made


def _orderable(items: Sequence[Any]) -> bool:
    return all(_order(item) is not None for item in items)


def _key(item: Any) -> str:
    return json.dumps(item)


def _without_repetition(items: Sequence[Any]) -> bool:
    return len(set(map(_key, items))) == len(items)


def _order(item: Any) -> Any:
    """Return the sort key of a text or a number; ``None`` for anything else."""
    if isinstance(item, str):
        return item
    if isinstance(item, list) and item[0] == "i":
        return int(item[1], 16)
    if isinstance(item, list) and item[0] == "f":
        return float.fromhex(item[1])
    return None


def _is_sorted(items: Sequence[Any]) -> bool:
    if len({isinstance(_order(item), str) for item in items}) > 1 or not _orderable(items):
        return False
    orders = [_order(item) for item in items]
    return orders == sorted(orders)
