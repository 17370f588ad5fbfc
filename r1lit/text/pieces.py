"""Token ids as pieces of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def pieces(decode: Callable[[list[int]], str], ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds; joined, they are the text of all.

    A token is decoded behind its neighbours, since some tokenizers drop a space at the beginning.
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
