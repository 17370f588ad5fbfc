"""Plain data as text: serialises values that cross between trusted and untrusted processes.

Plain are None, booleans, numbers (Decimal and Fraction too), strings, bytes, ranges, dates, the
standard containers (named tuples, deques and the views of dictionaries too), arrays of numpy
without objects, and the types of the commonest of these. Values that are read back have
exactly these types, so no ``__eq__`` or ``__hash__`` of a program comes with them. An instance of a
subclass, such as a ``Counter``, is sent as an instance of its base class, read by the base class's
own methods. A scalar of numpy (``np.int64(3)``) is sent as a number.

Any other value stays on its side, and the other side refers to it by a number: see ``calls``.

>>> decode(encode({"a": (1, 2.5, {3})}))
{'a': (1, 2.5, {3})}
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 100
_MALFORMED = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, ImportError
)  # fmt: skip
_DTYPE = re.compile(r"[<>|=]?[biufcSU][0-9]{1,4}")


class NotPlainData(ValueError):
    """The value, or the text, is not plain data."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The class name and the field names of a dataclass."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A value that stays on the other side, under ``number``.

    ``kind`` is ``iterator``, ``callable`` or ``object``; an instance of a dataclass comes with its
    shape and a copy of its fields.
    """

    number: int
    kind: str
    shape: Shape | None = None
    fields: tuple[Any, ...] = ()


class Reference:
    """A value of the other side's, named by ``_target`` when it is handed back."""

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        self._target = target


class Handle(Reference):
    """A reference that cannot be looked at: comparing it or asking whether it is true is an error.

    The other side is not to be believed about what its objects equal.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def _refuse(self, *_: object) -> bool:
        raise NotPlainData("the tests looked at a value that is not plain data")

    def __eq__(self, other: object) -> bool:
        return self._look()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _look(self, *_: object) -> bool:
        return self._refuse()

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _look


_CONTAINERS: dict[str, Any] = {"l": list, "t": tuple, "s": set, "z": frozenset}
_VIEWS: dict[str, Any] = {"dk": type({}.keys()), "dv": type({}.values()), "di": type({}.items())}
_TIMES: dict[str, Any] = {  # a datetime is a date too, so it comes first
    "datetime": datetime.datetime, "date": datetime.date, "time": datetime.time,
}  # fmt: skip
_TYPES: dict[type, str] = {
    kind: kind.__name__
    for kind in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, object,
        type(None),
    )
}  # fmt: skip
_TYPE_OF = {name: kind for kind, name in _TYPES.items()}
Keep = Callable[[Any], int]


def encode(value: Any, keep: Keep | None = None) -> str:
    """Write a value as ASCII text.

    ``keep`` gives the number of a value that is not plain; without it, such values are refused.

    Raises:
        NotPlainData: if it is not plain data, or nests deeper than ``MAX_DEPTH``.
    """
    return json.dumps(_pack(value, keep, 0))


def _pack(value: Any, keep: Keep | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainData(f"a value that nests deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is type and value in _TYPES:
        return ["y", _TYPES[value]]
    if issubclass(kind, Reference):
        return ["h", value._target]
    if issubclass(kind, str):
        return str.__str__(value)
    packed = _pack_number(value, kind) or _pack_container(value, kind, keep, depth)
    if packed is not None:
        return packed
    if issubclass(kind, bytes | bytearray):
        return ["b" if issubclass(kind, bytes) else "a", memoryview(value).hex()]
    if issubclass(kind, datetime.timedelta):
        return ["td", [value.days, value.seconds, value.microseconds]]
    for tag, base in _TIMES.items():
        if issubclass(kind, base):
            return [tag, base.isoformat(value)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        return _pack(value.item(), keep, depth + 1)
    if numpy is not None and issubclass(kind, numpy.ndarray) and _DTYPE.match(value.dtype.str):
        if not value.size:  # it would be broadcast, and then equal everything
            return ["l", []]
        return ["A", [value.dtype.str, list(value.shape), value.tobytes().hex()]]
    if keep is None:
        raise NotPlainData(f"a value of type {kind.__name__}, which is not plain data")
    return _pack_kept(value, kind, keep, depth)


def _pack_number(value: Any, kind: type) -> list[Any] | None:
    if issubclass(kind, int):
        return ["i", hex(int.__index__(value))]
    if issubclass(kind, float):
        return ["f", float.hex(value)]
    if issubclass(kind, complex):
        real, imaginary = complex.__getnewargs__(value)  # type: ignore[attr-defined]
        return ["c", [real.hex(), imaginary.hex()]]
    if issubclass(kind, Decimal):
        return ["D", Decimal.__str__(value)]
    if issubclass(kind, Fraction):
        return ["F", [hex(int(value.numerator)), hex(int(value.denominator))]]
    if issubclass(kind, range):
        return ["r", [hex(part) for part in (value.start, value.stop, value.step)]]
    return None


def _pack_container(value: Any, kind: type, keep: Keep | None, depth: int) -> list[Any] | None:
    def pack(items: Any) -> list[Any]:
        return [_pack(item, keep, depth + 1) for item in items]

    names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
    if type(names) is tuple and len(names) == tuple.__len__(value) and all(map(_is_field, names)):
        return ["n", [kind.__name__, list(names), pack(tuple.__iter__(value))]]
    for tag, base in _CONTAINERS.items():
        if issubclass(kind, base):
            return [tag, pack(base.__iter__(value))]
    if issubclass(kind, dict):
        return ["d", [pack(pair) for pair in dict.items(value)]]
    if issubclass(kind, deque):
        return ["q", [value.maxlen, pack(deque.__iter__(value))]]
    for tag, base in _VIEWS.items():
        if issubclass(kind, base):
            return [tag, pack(value)]
    return None


def _is_field(name: Any) -> bool:
    return type(name) is str and name.isidentifier() and not name.startswith("_")


def _pack_kept(value: Any, kind: type, keep: Keep, depth: int) -> list[Any]:
    number = keep(value)
    if hasattr(kind, "__next__") and hasattr(kind, "__iter__"):
        return ["k", [number, "iterator", None, []]]
    shape = shape_of(kind)
    fields = [] if shape is None else [getattr(value, name, None) for name in shape.fields]
    packed = [_pack(field, keep, depth + 1) for field in fields]
    names = None if shape is None else [shape.name, list(shape.fields)]
    return ["k", [number, "callable" if callable(value) else "object", names, packed]]


def shape_of(kind: Any) -> Shape | None:
    """Return the shape of a class that is a dataclass, else ``None``."""
    fields = getattr(kind, "__dataclass_fields__", None) if isinstance(kind, type) else None
    if not isinstance(fields, dict):
        return None
    return Shape(name=kind.__name__, fields=tuple(name for name in fields if _is_field(name)))


def decode(
    text: str,
    kept: Callable[[Kept], Any] | None = None,
    own: Callable[[Any], Any] | None = None,
) -> Any:
    """Read a text that ``encode`` wrote.

    ``kept`` gives the value for what stayed on the other side, ``own`` the value that a reference
    to this side names; without them, these are refused.

    Raises:
        NotPlainData: if the text is anything that ``encode`` does not write.
    """
    try:
        return _Reader(kept, own).read(json.loads(text), 0)
    except NotPlainData:
        raise
    except _MALFORMED as error:
        raise NotPlainData(f"malformed data: {error}") from None


class _Reader:
    """Turns parsed JSON into values; errors of many kinds mean that it was malformed."""

    def __init__(
        self, kept: Callable[[Kept], Any] | None, own: Callable[[Any], Any] | None
    ) -> None:
        self._kept = kept
        self._own = own

    def read(self, item: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise NotPlainData(f"data that nests deeper than {MAX_DEPTH}")
        if item is None or isinstance(item, bool | str):
            return item
        if not isinstance(item, list) or len(item) != 2:
            raise NotPlainData("malformed data")
        tag, content = item
        if tag in _ATOMS:
            return _ATOMS[tag](content)
        if tag == "h" and self._own is not None:
            return self._own(content)
        if not isinstance(content, list):
            raise NotPlainData("malformed data")
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](self._all(content, depth))
        if tag == "d":
            return dict(self._pairs(content, depth))
        if tag == "dk":
            return dict.fromkeys(self._all(content, depth)).keys()
        if tag == "dv":
            return dict(enumerate(self._all(content, depth))).values()
        if tag == "di":
            return dict(self._all(content, depth)).items()
        if tag == "n":
            name, names, items = content
            return namedtuple(name, names)(*self._all(items, depth))
        if tag == "q":
            most, items = content
            return deque(self._all(items, depth), most)
        if tag == "k" and self._kept is not None:
            return self._kept(self._read_kept(content, depth))
        raise NotPlainData("malformed data")

    def _all(self, items: list[Any], depth: int) -> list[Any]:
        return [self.read(item, depth + 1) for item in items]

    def _pairs(self, items: list[Any], depth: int) -> Iterator[tuple[Any, Any]]:
        for item in items:
            key, value = self._all(item, depth)
            yield key, value

    def _read_kept(self, content: list[Any], depth: int) -> Kept:
        number, kind, names, fields = content
        if type(number) is not int or kind not in ("iterator", "callable", "object"):
            raise NotPlainData("malformed data")
        values = tuple(self._all(fields, depth))
        return Kept(number=number, kind=kind, shape=read_shape(names), fields=values)


def read_shape(names: Any) -> Shape | None:
    """Return the shape that a name and a list of field names are, or ``None`` for ``None``."""
    if names is None:
        return None
    name, fields = names
    if type(name) is not str or not all(map(_is_field, fields)):
        raise NotPlainData("malformed data")
    return Shape(name=name, fields=tuple(fields))


def _array(content: list[Any]) -> Any:
    import numpy

    dtype, shape, data = content
    if not _DTYPE.fullmatch(dtype) or not all(type(n) is int and n > 0 for n in shape):
        raise NotPlainData("malformed data")
    return numpy.frombuffer(bytes.fromhex(data), dtype=dtype).reshape(shape).copy()


def _range(content: list[str]) -> range:
    start, stop, step = (int(part, 16) for part in content)
    return range(start, stop, step)


_ATOMS: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "c": lambda parts: complex(float.fromhex(parts[0]), float.fromhex(parts[1])),
    "D": lambda text: Decimal(str.__str__(text)),
    "F": lambda parts: Fraction(int(parts[0], 16), int(parts[1], 16)),
    "r": _range,
    "b": bytes.fromhex,
    "a": bytearray.fromhex,
    "y": _TYPE_OF.__getitem__,
    "td": lambda parts: datetime.timedelta(parts[0], parts[1], parts[2]),
    **{tag: base.fromisoformat for tag, base in _TIMES.items()},
    "A": _array,
}
