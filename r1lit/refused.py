"""Refusals of a parser, in one line: the key, its value, and what would be right."""

from __future__ import annotations

import copy
import difflib
import importlib
import inspect
import sys
import types
from argparse import ArgumentError
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, get_args, get_origin

from r1lit.console import root_fault
from r1lit.errors import did_you_mean, hint, import_path
from r1lit.moved_keys import moved, moved_class

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

PACKAGES = ("modules", "data", "objectives", "rewards", "callbacks", "verifiers", "rollout",
            "search", "policy", "curation", "worlds", "environments",
            "collect", "steps")  # fmt: skip


INSTALL = {
    "peft": "lora",
    "bitsandbytes": "qlora",
    "optimi": "bf16",
    "vllm": "vllm",
    "jsonschema": "tools",
    "reasoning_gym": "real",
}
"""Packages of r1lit's extras -> the extra."""


OTHER_WORDS = {
    "learning_rate": "model.optimizer.init_args.lr",
    "lr": "model.optimizer.init_args.lr",
    "weight_decay": "model.optimizer.init_args.weight_decay",
    "batch_size": "model.train_batch_size",
    "mini_batch_size": "model.train_batch_size",
    "per_device_train_batch_size": "model.micro_batch_tokens",
    "gradient_accumulation_steps": "model.micro_batch_tokens",
    "num_generations": "data.rollout.group_size",
    "group_size": "data.rollout.group_size",
    "epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "max_steps": "data.num_iterations",
    "num_steps": "data.num_iterations",
    "temperature": "model.sampling.temperature",
    "top_p": "model.sampling.top_p",
    "max_tokens": "model.sampling.max_tokens",
    "max_completion_length": "model.sampling.max_tokens",
    "max_new_tokens": "model.sampling.max_tokens",
    "max_prompt_length": "data.prompts.max_tokens",
    "model_name_or_path": "model.policy",
    "adapter": "model.policy.adapter",
    "peft_config": "model.policy.adapter",
    "attention": "model.policy.attention",
    "attn_implementation": "model.policy.attention",
    "dtype": "model.policy.dtype",
    "quantization": "model.policy.quantization",
    "output_dir": "run",
}
"""Keys of other programs, with the keys here."""


def class_paths() -> dict[str, str]:
    """Return the public classes of r1lit: name -> class path."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"r1lit.{package}")
        found |= {name: f"r1lit.{package}.{name}" for name in module.__all__ if name[0].isupper()}
    return found


def load_classes(named_in: Any = None) -> None:
    """Import public classes, so that the parser knows their bare names and lists them in help.

    Args:
        named_in: a configuration, whose bare names alone are imported; all classes if left out.
    """
    known = class_paths()
    for name in known if named_in is None else known.keys() & set(_texts(named_in)):
        import_path(known[name])


def _texts(node: Any) -> Iterator[str]:
    """Yield the texts among the values of a configuration."""
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node


def given_keys(args: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return keys with their values, in order, and the other arguments.

    Help and ``--print_config`` are the parser's, with or without a value.

    >>> given_keys(["--a.b", "1", "--c=2", "--flag", "stray", "--c.help"])
    ([('a.b', '1'), ('c', '2'), ('flag', 'stray')], ['--c.help'])
    """
    rest, keys, left = list(args), [], []
    while rest:
        arg = rest.pop(0)
        key, has_value, text = arg.removeprefix("--").partition("=")
        is_key = arg.startswith("--") and not key.endswith("help") and key != "print_config"
        if is_key and not has_value and rest and not rest[0].startswith("--"):
            has_value, text = "=", rest.pop(0)
        if is_key and has_value:
            keys.append((key, text))
        else:
            left.append(arg)
    return keys, left


def instantiated(parser: ArgumentParser, args: Sequence[str] | None) -> Any:
    """Return the objects of a command's arguments; ``args`` is ``sys.argv[1:]`` if left out.

    Raises:
        ValueError: saying in one line which key is wrong.
    """
    load_classes()
    try:
        return parser.instantiate(parser.parse_args(args))
    except ArgumentError as error:
        given = dict(given_keys(args or sys.argv[1:])[0])
        raise Refused(parser, given).fault() or root_fault(error) from error


class Refused:
    """Says in one line what a parser has refused, by asking it for one key after another.

    Args:
        parser: what refused ``values``.
        values: files and keys merged: mappings, lists and values, or texts of the command line.
    """

    def __init__(self, parser: ArgumentParser, values: dict[str, Any]) -> None:
        self.parser = parser
        self.values = values

    def fault(self) -> ValueError | None:
        """Return the fault at the first key that is wrong, if one is."""
        load_classes()  # errors list what there is
        try:
            self._keys("", self.parser, self.values)
        except ValueError as fault:
            return fault
        return None

    def _keys(self, where: str, parser: ArgumentParser, values: dict[str, Any], owner: str = "",
              group: str = "") -> None:  # fmt: skip
        """Check the keys of a class, of a group of its keys, or of the whole."""
        kinds = _kinds(parser)
        for key, value in values.items():
            if str(key).endswith("+") and not isinstance(value, list):
                value = [value]
            name = group + str(key).removesuffix("+")
            path = f"{where}.{name}".lstrip(".")
            if name in kinds:
                self._value(path, kinds[name], value)
            elif isinstance(value, dict) and any(k.startswith(f"{name}.") for k in kinds):
                self._keys(where, parser, value, owner, f"{name}.")
            elif any(k.startswith(f"{name}.") for k in kinds):
                raise ValueError(f"{path}: {value!r} is not a mapping of its keys")
            elif name not in {action.dest for action in parser._actions}:
                while isinstance(value, dict) and len(value) == 1 and "class_path" not in value:
                    (key, value), name = next(iter(value.items())), f"{name}.{next(iter(value))}"
                self._unknown(where, owner, name, kinds)

    def _unknown(self, where: str, owner: str, name: str, kinds: dict[str, Any]) -> NoReturn:
        path = f"{where}.{name}".lstrip(".")
        if (now := moved(path)) is not None:
            raise ValueError(f"{path}: there is no such key any more; it is {now}")
        group, _, last = name.rpartition(".")
        if where and name.split(".")[0].isdigit():
            raise ValueError(
                f"{path}: elements of a list have no numbers; {where}.{last} is the key of the last"
                f" one, {owner}, and a file sets those of others"
            )
        own = [key.rpartition(".")[2] for key in kinds if group and key.rpartition(".")[0] == group]
        elsewhere = [
            f"{section}.{key}"
            for section in ("model", "data")
            for key in self._of_section(section)
            if f".{key}".endswith((f".{name}", f".{last}"))
        ]
        if not where:
            if group == "trainer":
                raise ValueError(f"{path}: the trainer has no such key{hint(last, own)}")
            first = name.split(".")[0]
            right = hint(first, dict.fromkeys(key.split(".")[0] for key in kinds))
            raise ValueError(f"{path}: there is no such key{_in_other_words(first) or right}")
        close = difflib.get_close_matches(last, own or kinds, n=1)
        right = hint(last, own) if own else hint(name, kinds)
        whole = [key for key in elsewhere if f".{key}".endswith(f".{name}")]
        if elsewhere and (whole or not close):
            right = f"; did you mean {min(elsewhere, key=lambda key: name not in key)}?"
        if not elsewhere and (not close or last in OTHER_WORDS):
            right = _in_other_words(last) or right
        raise ValueError(f"{path}: {owner} has no such key{right}")

    def _of_section(self, section: str) -> dict[str, Any]:
        """Return the keys of the class that is the model, or the data."""
        node = self.values.get(section)
        path = node.get("class_path") if isinstance(node, dict) else node
        try:
            return _kinds(_parser_of(_found("", str(path), ())))
        except (ValueError, TypeError):
            return {}

    def _value(self, where: str, kind: Any, value: Any) -> None:
        """Check one value, or what is in it."""
        if _fits(kind, value):
            return
        kinds = _alternatives(kind)
        for one in kinds:
            items, is_mapping = get_args(one), get_origin(one) is dict
            if isinstance(value, list) and items and not is_mapping:
                for item in value:
                    self._value(where, items[0], item)
            elif isinstance(value, dict) and "class_path" not in value and is_mapping:
                for key, item in value.items():
                    self._value(f"{where}.{key}", items[1], item)
        bases = [one for one in kinds if inspect.isclass(one) and one not in _PLAIN]
        may_be_class = (bases or Callable in kinds) and not {str, int, float} & {*kinds}
        if isinstance(value, dict) and (bases or "class_path" in value):
            self._class(where, bases, value)
        elif isinstance(value, str) and may_be_class:
            self._class(where, bases, {"class_path": value})
        whole = (
            f"; give it whole, as --{where} '[…]', or append to it, as --{where}+ ONE"
            if any(get_origin(one) is list for one in kinds)
            else ""
        )
        raise ValueError(f"{where}: {value!r} is not {_words(kinds)}{whole}")

    def _class(self, where: str, bases: list[Any], value: dict[str, Any]) -> None:
        """Check a class and its arguments."""
        path = value.get("class_path")
        base: Any = bases[0] if bases else None
        if path is None and base is not None and is_dataclass(base):
            self._keys(where, _parser_of(base), value, where.rpartition(".")[2])
            return
        if path is None:
            if where in ("model", "data"):
                keys = ", ".join(value.get("init_args") or value)
                raise ValueError(
                    f"{where}: no class is given that {keys} is a key of; {CONFIGURATION}"
                )
            known = [c for c in _below(base) if not inspect.isabstract(c)]
            shipped = [c for c in known if c.__module__.startswith("r1lit.")]
            names = [c.__name__ for c in shipped or known]
            raise ValueError(
                f"{where}: no class is given, and its keys are those of one; --{where} NAME gives"
                f" one{hint('', names)}"
            )
        for key in value.keys() - {"class_path", "init_args", "dict_kwargs"}:
            right = did_you_mean(key, ["init_args"]) or "; keys of the class stand under init_args"
            raise ValueError(f"{where}: {key!r} is no key beside class_path{right}")
        found, arguments = _found(where, path, bases), value.get("init_args") or {}
        is_class = inspect.isclass(found)
        owner = found.__name__ if is_class else path
        is_of_kind = not bases or (is_class and issubclass(found, tuple(bases)))
        for base in () if is_of_kind else bases:
            if not hasattr(base, "from_spec"):
                continue
            # from_spec takes plain functions and other classes too, and adds its ``own_keys``
            if is_class or inspect.isroutine(found):
                others = {key: x for key, x in arguments.items() if key not in base.own_keys}
                self._keys(where, _parser_of(found), others, owner)
            try:
                base.from_spec(value)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            return
        self._keys(where, _parser_of(found), arguments, owner)
        if is_class and not is_of_kind:
            wanted = " or ".join(base.__name__ for base in bases)
            raise ValueError(f"{where}: {path} is not of a kind of {wanted}")


def null_group(node: Any, where: str = "") -> ValueError | None:
    """Return the fault of a group of keys that is null, which the parser lets pass; or None."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(node, list):
        items = enumerate(node)
    elif isinstance(node, dict) and isinstance(node.get("init_args"), dict):
        kinds = _kinds(_parser_of(_found(where, node["class_path"], ())))
        items = node["init_args"].items()
        for key, value in items:
            if value is None and any(name.startswith(f"{key}.") for name in kinds):
                said = "null is not a mapping of its keys; leave it out for their defaults"
                return ValueError(f"{where}.{key}: {said}")
    elif isinstance(node, dict):
        items = node.items()
    faults = (null_group(value, f"{where}.{key}".lstrip(".")) for key, value in items)
    return next((fault for fault in faults if fault is not None), None)


def _in_other_words(name: str) -> str:
    """Return "; did you mean …?" for a word, or a slip of one, that another program has."""
    close = difflib.get_close_matches(name, OTHER_WORDS, n=1, cutoff=0.8)
    return f"; did you mean {OTHER_WORDS[close[0]]}?" if close else ""


CONFIGURATION = "name a configuration, as -c r1lit:mini/r1_zero.yaml"


_PLAIN = (str, int, float, bool, list, dict, type(None), object)


_NAMES = {type(None): "null", str: "a text"}


def _kinds(parser: ArgumentParser) -> dict[str, Any]:
    """Return the type of each key that a parser has."""
    return {a.dest: a._typehint for a in parser._actions if hasattr(a, "_typehint")
            and not a.dest.endswith(".help")}  # fmt: skip


def _parser_of(found: Any) -> ArgumentParser:
    """Return a parser of the arguments of a class or function."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    if inspect.isclass(found):
        parser.add_class_arguments(found, fail_untyped=False)
    else:
        parser.add_function_arguments(found, fail_untyped=False)
    return parser


def _fits(kind: Any, value: Any) -> bool:
    """Return whether the parser takes a value, or a text of the command line, for such a key."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", type=kind)
    try:
        if isinstance(value, str):
            parser.parse_args([f"--x={value}"])
        else:
            parser.parse_object({"x": copy.deepcopy(value)})  # it puts namespaces in it
    except Exception:
        return False
    return True


def _alternatives(kind: Any) -> list[Any]:
    """Return the forms of a value: a union's members, a literal's values, a callable's result."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return [one for member in get_args(kind) for one in _alternatives(member)]
    if origin is Literal:
        return list(get_args(kind))
    if origin is Callable:
        return [Callable, *_alternatives(get_args(kind)[1])]
    return [kind]


def _found(where: str, path: str, bases: Iterable[Any]) -> Any:
    """Return the class or function at a class path, or of the bare name of a class.

    Raises:
        ValueError: naming ``where``, if there is none.
    """
    if (now := moved_class(path)) is not None:
        raise ValueError(f"{where}: there is no {path} any more; it is {now}")
    module, _, name = path.rpartition(".")
    if not module:
        known = class_paths()
        known |= {c.__name__: f"{c.__module__}.{c.__name__}" for b in bases for c in _below(b)}
        if name not in known:
            raise ValueError(f"{where}: {path!r} names no class{hint(path, known)}")
        return import_path(known[name])
    try:
        holder = importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        how = "its folder must be on PYTHONPATH (PYTHONPATH=. for this one)"
        if missing.split(".")[0] != module.split(".")[0]:
            how = f"{module} imports it; install it"
        if (extra := INSTALL.get(missing.split(".")[0])) is not None:
            how = f"pip install 'r1lit[{extra}]'"
        raise ValueError(
            f"{where}: {path!r} cannot be imported, there is no module {missing!r}; {how}"
        ) from error
    if not hasattr(holder, name):
        takes_functions = any(hasattr(base, "from_spec") for base in bases)
        names = [
            n
            for n, x in vars(holder).items()
            if n[:1] != "_" and (inspect.isclass(x) or (takes_functions and inspect.isfunction(x)))
        ]
        right = hint(name, getattr(holder, "__all__", names))
        raise ValueError(f"{where}: {path} does not exist{right}")
    return getattr(holder, name)


def _below(base: Any) -> Iterator[Any]:
    """Yield all subclasses."""
    for found in base.__subclasses__():
        yield found
        yield from _below(found)


def _words(kinds: Iterable[Any]) -> str:
    """Return alternatives as words."""
    words = []
    for kind in kinds:
        name = getattr(kind, "__name__", str(kind))
        if kind in _NAMES:
            words.append(_NAMES[kind])
        elif get_args(kind) or kind is list:
            words.append("a mapping" if get_origin(kind) is dict else "a list")
        elif inspect.isclass(kind):
            words.append(f"an {name}" if name[0] in "aeiou" else f"a {name}")
        else:
            words.append("a class or function" if kind is Callable else str(kind))
    words = list(dict.fromkeys(words))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
