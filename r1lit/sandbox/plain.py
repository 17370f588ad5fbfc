"""Plain data as text: serialises values that cross between trusted and untrusted processes.

None, booleans, integers, floats (NaN and infinities too), complex numbers, strings, bytes, lists,
tuples, sets, frozensets and dictionaries of these, and these types themselves; nothing else.
What is read back has exactly
these types, so nobody's ``__eq__`` or ``__hash__`` comes with it. An instance of a subclass, such
as a ``Counter``, travels as what it is a subclass of, read by the base class's own methods; a
scalar of numpy (``np.int64(3)``) as the number that it is.

>>> decode(encode({"a": (1, 2.5, {3})}))
{'a': (1, 2.5, {3})}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100


class NotPlainData(ValueError):
    """The value, or the text, is not plain data."""


class Handle:
    """A value that stays on the other side, such as an object of a class defined there.

    It can be handed back and nothing else: comparing it or asking whether it is true is an error.
    """

    __slots__ = ("number",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: int) -> None:
        self.number = number

    def refuse(self, *_: object) -> bool:
        """Raise ``NotPlainData``: there is nothing here to look at."""
        raise NotPlainData("the tests looked at a value that is not plain data")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse
    __bool__ = __contains__ = refuse


_CONTAINERS: dict[str, Any] = {"l": list, "t": tuple, "s": set, "z": frozenset}
_TYPES: dict[type, str] = {
    kind: kind.__name__
    for kind in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, object,
        type(None),
    )
}  # fmt: skip
_TYPE_OF = {name: kind for kind, name in _TYPES.items()}


def encode(value: Any, other: Callable[[Any], int] | None = None) -> str:
    """Write a value as ASCII text.

    ``other`` gives the number of the handle for a value that is not plain; without it, such values
    are refused.

    Raises:
        NotPlainData: if it is not plain data, or nests deeper than ``MAX_DEPTH``.
    """
    return json.dumps(_pack(value, other, 0))


def _pack(value: Any, other: Callable[[Any], int] | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainData(f"a value that nests deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is type and value in _TYPES:
        return ["y", _TYPES[value]]
    if issubclass(kind, Handle):
        return ["h", value.number]
    if issubclass(kind, int):
        return ["i", hex(int.__index__(value))]
    if issubclass(kind, float):
        return ["f", float.hex(value)]
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, complex):
        real, imaginary = complex.__getnewargs__(value)  # type: ignore[attr-defined]
        return ["c", real.hex(), imaginary.hex()]
    if issubclass(kind, bytes | bytearray):
        return ["b" if issubclass(kind, bytes) else "a", memoryview(value).hex()]
    for tag, base in _CONTAINERS.items():
        if issubclass(kind, base):
            return [tag, [_pack(item, other, depth + 1) for item in base.__iter__(value)]]
    if issubclass(kind, dict):
        items = [[_pack(part, other, depth + 1) for part in pair] for pair in dict.items(value)]
        return ["d", items]
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        return _pack(value.item(), other, depth + 1)
    if other is not None:
        return ["h", other(value)]
    raise NotPlainData(f"a value of type {kind.__name__}, which is not plain data")


def decode(text: str, handle: Callable[[int], Any] | None = None) -> Any:
    """Read what ``encode`` wrote.

    ``handle`` gives the value for a handle's number; without it, handles are refused.

    Raises:
        NotPlainData: if the text is anything that ``encode`` does not write.
    """
    try:
        return _unpack(json.loads(text), handle, 0)
    except NotPlainData:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NotPlainData(f"malformed data: {error}") from None


def _unpack(item: Any, handle: Callable[[int], Any] | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainData(f"data that nests deeper than {MAX_DEPTH}")
    if item is None or isinstance(item, bool | str):
        return item
    if not isinstance(item, list) or len(item) not in (2, 3):
        raise NotPlainData("malformed data")
    tag, content, *rest = item
    if tag == "c" and len(rest) == 1:
        return complex(float.fromhex(content), float.fromhex(rest[0]))
    if rest:
        raise NotPlainData("malformed data")
    if tag == "i":
        return int(content, 16)
    if tag == "f":
        return float.fromhex(content)
    if tag in ("b", "a"):
        return bytes.fromhex(content) if tag == "b" else bytearray.fromhex(content)
    if tag == "y":
        return _TYPE_OF[content]
    if tag == "h" and handle is not None and type(content) is int:
        return handle(content)
    if tag in _CONTAINERS and isinstance(content, list):
        return _CONTAINERS[tag](_unpack(part, handle, depth + 1) for part in content)
    if tag == "d" and isinstance(content, list):
        return {
            _unpack(key, handle, depth + 1): _unpack(value, handle, depth + 1)
            for key, value in content
        }
    raise NotPlainData("malformed data")
