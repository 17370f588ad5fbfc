"""Arguments and outcomes of calls as JSON, with instances of a library's own classes.

A packed value is ``[tree, things]``: a tree of `r1lit.sandbox.plain`, and what it refers to by
number. A thing is one of

    ["instance", module, class, attributes]     attributes is a tree
    ["member", module, enumeration, name]
    ["name", module, name]                      a class, or a function of a module
    ["items", items]                            of an iterator, whose items are a tree

Only the process under test and those that run trusted code unpack anything. Who decides compares
packed values as JSON: see `r1lit.sandbox.hidden_calls`.
"""

from __future__ import annotations

import builtins
import enum
import importlib
import json
import sys
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any

from r1lit.sandbox import plain
from r1lit.sandbox.plain import NotPlainData

MAX_THINGS = 100
MAX_ITEMS = 1000
_EXACT = (
    bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict,
)  # fmt: skip
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)


def pack_arguments(arguments: list[Any], keywords: dict[str, Any]) -> str:
    """Return the arguments of a call as JSON text.

    Raises:
        NotPlainData: if one could not be given to another process as it is: an iterator, a
            function without a name, an instance of a subclass of ``dict``.
    """
    if not _is_exact((arguments, keywords), 0):
        raise NotPlainData("an instance of a subclass of a built-in type")
    return _pack((arguments, keywords), items=False)


def pack_outcome(value: Any) -> str:
    """Return a call's result as JSON text; iterators are read, subclasses are their bases.

    Raises:
        NotPlainData: if it is not plain data.
    """
    return _pack(value, items=True)


def unpack(text: str) -> Any:
    """Return a packed value, with the classes that this process imports.

    Raises:
        NotPlainData: if it is none.
        ImportError, AttributeError, TypeError: if a class is not there or cannot be made.
    """
    tree, things = json.loads(text)
    made = [_blank(thing) for thing in things]

    def read(part: Any) -> Any:
        return plain.decode(json.dumps(part), lambda kept: made[kept.number])

    for value, (kind, *content) in zip(made, things, strict=True):
        for name, attribute in read(content[2]).items() if kind == "instance" else ():
            object.__setattr__(value, name, attribute)
    return read(tree)


def named(module: str, name: str) -> Any:
    """Return the object that a module has at a dotted name, without binding methods to classes."""
    owner: Any = importlib.import_module(module)
    *above, last = name.split(".")
    for part in above:
        owner = getattr(owner, part)
    for place in getattr(owner, "__mro__", ()):
        if last in vars(place):
            return vars(place)[last]
    return getattr(owner, last)


def callee(module: str, name: str) -> Any:
    """Return the function that a name stands for: a property's, or one without its class bound."""
    found = named(module, name)
    return getattr(found, "fget", None) or getattr(found, "__func__", found)


def _pack(value: Any, items: bool) -> str:
    things: list[Any] = []
    numbers: dict[int, int] = {}

    def keep(thing: Any) -> int:
        if id(thing) not in numbers:
            if len(things) == MAX_THINGS:
                raise NotPlainData(f"more than {MAX_THINGS} values that are not plain data")
            numbers[id(thing)] = len(things)
            things.append(thing)
        return numbers[id(thing)]

    tree = plain.encode(value, keep)
    packed: list[str] = []
    while len(packed) < len(things):  # to pack one may bring others
        packed.append(_thing(things[len(packed)], keep, items))
    return f"[{tree}, [{', '.join(packed)}]]"


def _thing(value: Any, keep: plain.Keep, items: bool) -> str:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return json.dumps(["member", kind.__module__, kind.__qualname__, value.name])
    if isinstance(value, _NAMED):
        return json.dumps(["name", *_name_of(value)])
    if hasattr(kind, "__next__") and hasattr(kind, "__iter__"):
        if not items:
            raise NotPlainData("an iterator")
        return f'["items", {plain.encode(list(islice(value, MAX_ITEMS)), keep)}]'
    where = json.dumps([kind.__module__, kind.__qualname__])[1:-1]
    return f'["instance", {where}, {plain.encode(_attributes(value), keep)}]'


def _name_of(value: Any) -> tuple[str, str]:
    """Return the module and the dotted name by which another process finds a class or function."""
    module, name = value.__module__ or builtins.__name__, value.__qualname__
    try:
        found = named(module, name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is not value:
        raise NotPlainData(f"{name} of {module}, which another process does not find by its name")
    return module, name


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an instance of a class that is written in Python."""
    kind = type(value)
    makes = kind.__new__
    slots = [
        name
        for base in kind.__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType) and base.__module__ != "builtins"
    ]
    has_own = hasattr(value, "__dict__") or slots
    if not has_own or not (makes is object.__new__ or isinstance(makes, types.FunctionType)):
        raise NotPlainData(f"a value of type {kind.__name__}, which is not plain data")
    found = dict(getattr(value, "__dict__", {}))
    return found | {name: getattr(value, name) for name in slots if hasattr(value, name)}


def _blank(thing: list[Any]) -> Any:
    kind, module, name, *rest = thing
    found = named(module, name)
    if kind == "instance":
        return object.__new__(found)
    if kind == "member":
        return found[rest[0]]
    if kind != "name":
        raise NotPlainData("malformed data")
    return found


def _is_exact(value: Any, depth: int) -> bool:
    """Return whether no part of a value is an instance of a subclass, which would lose its type."""
    kind = type(value)
    if depth > plain.MAX_DEPTH:
        return False
    if kind is dict:
        return all(_is_exact(part, depth + 1) for pair in value.items() for part in pair)
    if kind in (list, tuple, set, frozenset):
        return all(_is_exact(part, depth + 1) for part in value)
    return kind in _EXACT or not issubclass(kind, _EXACT)


def packages_in_use(folder: str = "/packages/") -> list[str]:
    """Return the installed packages that this process has imported, as names of their folder."""
    paths: Iterator[str] = (
        str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())
    )
    inside = [path.removeprefix(folder).split("/") for path in paths if path.startswith(folder)]
    return sorted({parts[1] for parts in inside if len(parts) > 1})
