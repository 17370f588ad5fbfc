"""Errors for the user in one line: the key, its value, and what would be right.

Checks of settings, crashes in a user's own code, console scripts, and the parser's reports.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import inspect
import math
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


def check_at_least(key: str, value: float, least: float) -> None:
    """Check the least value of a setting.

    Raises:
        ValueError: naming key, value and what would be right.
    """
    if not value >= least:
        raise ValueError(f"{key}: {value} is not at least {least}")
    if math.isinf(value):
        raise ValueError(f"{key}: {value} is not a finite number from {least} on")


@contextmanager
def named(key: str) -> Iterator[None]:
    """Name another key than ``policy`` in the ValueErrors of what loads a model."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"^policy:", f"{key}:", str(error))) from error


class OwnCodeError(ValueError):
    """A reward function, a verifier or the like of the user's crashed; its cause is the crash."""


@contextmanager
def own_code(what: str, owner: object) -> Iterator[None]:
    """Turn a crash within into an error that names ``what`` and where it crashed.

    A ``ValueError`` of r1lit's own classes is meant for the user already, and passes.

    Raises:
        OwnCodeError: in the place of any exception within.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and type(owner).__module__.startswith("r1lit."):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        raise OwnCodeError(
            f"{what} crashed with {cause} ({place.filename}, line {place.lineno})"
        ) from error


_GO_ON = "then the same command with --ckpt_path last goes on, or begins again without a checkpoint"
_ROOM = f"free some, {_GO_ON}"
_RIGHTS = "name a folder that you may write to, such as --run runs/mine"
_IN_THE_WAY = "a file stands where a folder is to be; move it away"
REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: f"raise the limit (ulimit -f), {_GO_ON}",
    errno.EIO: "the disk failed; go on elsewhere, from a copy of the last checkpoint, if any",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: "a folder stands where a file is to be; move it away",
}
"""What to do about an error of the system."""


def run_script(name: str, main: Callable[[], object]) -> None:
    """Run ``main``: bad input, or a disk that refuses, ends in one line and exit status 2.

    Ctrl-C ends in one line, or in a run's message about its folder, and 130; SIGTERM in 143.
    Below the line about a crash in the user's own code stands its traceback. With
    ``R1LIT_TRACEBACK`` in the environment every error ends in the whole traceback. A warning is one
    line too.
    """
    shown = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{name}: warning: {message}\n"
    try:
        main()
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as stop:  # Lightning takes Ctrl-C, and exits with 1; with 0 on SIGTERM
        if isinstance(stop.__context__, KeyboardInterrupt):
            sys.exit(130)
        if type(stop).__name__ == "SIGTERMException":
            sys.exit(128 + signal.SIGTERM)
        raise
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in REMEDIES:
            raise
        if os.environ.get("R1LIT_TRACEBACK"):
            raise
        message = of_the_disk(error) if isinstance(error, OSError) else str(error)
        print(f"{name}: error: {message}", file=sys.stderr)
        if isinstance(error, OwnCodeError):
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                print(f"  {line}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = shown


def of_the_disk(error: OSError) -> str:
    """Say which file it is about, what the system says, and what to do.

    >>> of_the_disk(OSError(errno.EACCES, "Permission denied", "/a"))
    '/a: Permission denied; name a folder that you may write to, such as --run runs/mine'
    """
    assert error.errno is not None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {REMEDIES[error.errno]}"


PACKAGES = (
    "modules",
    "data",
    "objectives",
    "rewards",
    "callbacks",
    "verifiers",
    "rollout",
    "search",
    "policy",
    "curation",
    "worlds",
)
SECTIONS = ("model", "data", "trainer", "run", "seed_everything", "ckpt_path")
CONFIGURATION = "name a configuration, as -c r1lit:mini/r1_zero.yaml"
LIGHTNING = {
    r"accumulate_grad_batches=(\d+)": r"trainer.accumulate_grad_batches: \1 is not 1; the model's"
    " micro_batch_tokens bounds what a backward pass holds, its train_batch_size is an update",
    r"gradient_clip_val=([\d.e-]+)": r"trainer.gradient_clip_val: \1 is not null; the model's"
    " max_grad_norm clips gradients",
    r"accelerator name: `accelerator='(.*?)'`. Available names are: (.*)\.": r"trainer.accelerator:"
    r" '\1' is not one of \2",
    r"No supported gpu backend found": "trainer.accelerator: 'gpu' is not on this machine; auto"
    " takes what there is, cpu the processor",
    r"`(\w+)Accelerator` can not run on your system": r"trainer.accelerator: there is no \1 device"
    " on this machine; auto takes what there is, cpu the processor",
    r"strategy name: `strategy='(.*?)'`": r"trainer.strategy: '\1' is not one of auto, ddp and"
    " Lightning's other names",
    r"`devices` selected with `(\w+)Accelerator` should be (.*)": r"trainer.devices: for \1 it"
    r" should be \2",
    r"`val_check_interval` \((\d+)\) must be less than or equal to the number of the training"
    r" batches \((\d+)\)": r"trainer.val_check_interval: \1 is more than the \2 iterations of an"
    r" epoch; at most \2, or limit_val_batches: 0 for no validation",
    r"Found more than one stateful callback of type `(\w+)`": r"trainer.callbacks: \1 is there"
    " twice; leave one of them out",
    r"Invalid learning rate: (\S+)": r"optimizer.lr: \1 is not 0 or above",
    r"No `training_step\(\)` method": "model: this class does not train; EvaluationModule is for"
    " test and predict",
    r"required: \S*(?:model|data)": f"model, data: not given; {CONFIGURATION}",
    r"invalid choice: '(.*?)'.*'fit'": r"'\1' is no command; there are fit, validate, test and"
    " predict",
    r"No module named 'peft'|import of peft halted": "adapter: peft is not installed; pip install"
    " 'r1lit[lora]'",
    r"\"subcommand\" to be one of": "no command is given; there are fit, validate, test and"
    " predict, each with --help",
}
"""What Lightning and the parser say of all keys -> what is right here."""

_QUOTED = r"['\"](.*?)['\"]"
_KEY = re.compile(rf"Parser key {_QUOTED}:")
_CLASS = re.compile(rf"Problem with given class_path {_QUOTED}:")
_NOISE = re.compile(
    r"Does not validate|Subtypes:|Errors:|Given value type|.*does not correspond to a subclass"
    r"|class_path: .*(?:cannot be imported: No module|init_args do not fit)"
)
_LITERAL = re.compile(r"typing\.Literal\[(.*?)\]")
_KINDS = {"NoneType": "null", **dict.fromkeys(("list", "Sequence", "Iterable"), "a list")}


class _Fault(NamedTuple):
    """One complaint of the report: where, about an argument of which class, in which words."""

    key: str
    class_path: str
    text: str


def explain(message: str, trainer_keys: Iterable[str] = ()) -> str:
    r"""Return one line for a report of jsonargparse, which is nested and lists every alternative.

    ``trainer_keys`` are what a misspelt key of the trainer is compared with.

    >>> explain('Parser key "model":\n  Expected a <class \'int\'>. Got value: many')
    "model: 'many' is not an int"
    """
    known = explain_lightning(message)
    if known is not None:
        return known
    faults, value = _faults(message)
    for fault in faults:
        explanation = _about_name(fault, trainer_keys)
        if explanation is not None:
            return explanation
    free = [fault for fault in faults if not fault.text.startswith("Expected ")]
    if free:
        explanation = " ".join(dict.fromkeys(" ".join(fault.text.split()) for fault in free))
        return (
            explanation
            if ":" in explanation or not free[0].key
            else f"{free[0].key}: {explanation}"
        )
    wanted = _wanted(fault.text for fault in faults)
    last = faults[-1] if faults else _Fault("", "", message)
    unknown = next((m for f in faults if (m := re.search(r"path string: (.*)", f.text))), None)
    if wanted and value is not None and not (unknown and wanted == "null"):
        return f"{last.key}: {value!r} is not {wanted}"
    if unknown:
        return f"{last.key or '--help'}: {unknown[1]!r} names no class{hint(unknown[1], names())}"
    return " ".join(message.split())


def explain_lightning(message: str) -> str | None:
    """Return what is right where Lightning says ``message``; None if it is not known here."""
    found = ((re.search(pattern, message), words) for pattern, words in LIGHTNING.items())
    return next((match.expand(words) for match, words in found if match), None)


def hint(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known name closest to ``name``, or the known ones.

    >>> hint("max_epoch", ["max_epochs", "min_steps"]), hint("x", ["max_epochs", "min_steps"])
    ('; did you mean max_epochs?', '; there are max_epochs, min_steps')
    """
    candidates = list(known)
    if not candidates:
        return ""
    longer = [c for c in candidates if name and c.lower().startswith(name.lower())]
    close = difflib.get_close_matches(name, candidates, n=1) or longer
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(candidates)}" if len(candidates) <= 12 else ""


def names() -> dict[str, str]:
    """Return the public classes of r1lit: name -> class path."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"r1lit.{package}")
        found |= {name: f"r1lit.{package}.{name}" for name in module.__all__ if name[0].isupper()}
    return found


def _faults(message: str) -> tuple[list[_Fault], str | None]:
    """Return the complaints of a report, and the value given at the innermost key."""
    keys: list[tuple[int, str]] = []
    faults: list[_Fault] = []
    class_path, value, value_depth = "", None, -1
    # a key that stands within a sentence begins a level of its own
    for line in re.sub(r"(\n *)(.*\S) Parser key", r"\1\2\1  Parser key", message).splitlines():
        text = line.strip().removeprefix("- ").removeprefix("Not of type PlainReward: ")
        depth = len(line) - len(line.lstrip())
        if match := _KEY.match(text):
            keys = [*((d, key) for d, key in keys if d < depth), (depth, match[1])]
        elif match := _CLASS.match(text):
            class_path = match[1]
        elif text.startswith("Given value: "):
            if depth > value_depth and "NestedArg(" not in text:
                value, value_depth = text[len("Given value: ") :].split(". Got value")[0], depth
        elif text and not _NOISE.match(text) and "expects a function or a callable" not in text:
            if match := re.search(r"Got value: (.*)", text):
                value, value_depth = match[1], depth
            path = ".".join(key for at, key in keys if at < depth)
            faults.append(_Fault(path, class_path, text))
        elif "has no attribute" in text:
            path = ".".join(key for at, key in keys if at < depth)
            faults.append(_Fault(path, class_path, text.split(". Got value")[0]))
    depth_of = max((len(fault.key) for fault in faults), default=0)
    return [f for f in faults if len(f.key) == depth_of or _about_name(f)], value


def _about_name(fault: _Fault, trainer_keys: Iterable[str] = ()) -> str | None:
    """Return the line about a key, a class or a module that does not exist."""
    key = fault.key
    if match := re.search(rf"Option {_QUOTED} is not accepted", fault.text):
        return _no_key(fault, match[1]) if fault.class_path else _unknown(match[1], trainer_keys)
    if match := re.search(rf"Group {_QUOTED} does not accept option {_QUOTED}", fault.text):
        name = f"{match[1]}.{match[2]}"
        return _no_key(fault, name) if fault.class_path else _unknown(name, trainer_keys)
    if match := re.search(rf"does not accept option {_QUOTED}", fault.text):
        return _unknown(match[1], trainer_keys)
    if match := re.search(r"unrecognized arguments: --([\w.+]+)", fault.text):
        return _no_key(fault, match[1]) if fault.class_path else _unknown(match[1], trainer_keys)
    if match := re.search(r"an instantiatable class, but (\S+) is abstract", fault.text):
        base = _imported(match[1])
        found = vars(importlib.import_module(match[1].rpartition(".")[0])).values()
        known = [c.__name__ for c in found if _makes(c, base)]
        return f"{key}: no class is given, and its keys are those of one{hint('', known)}"
    # without a key it is r1lit's own message, and names one
    match = re.search(rf"module {_QUOTED} has no attribute {_QUOTED}", fault.text)
    if key and match:
        known = getattr(importlib.import_module(match[1]), "__all__", [])
        return f"{key}: {match[1]}.{match[2]} does not exist{hint(match[2], known)}"
    if match := re.search(rf"No module named {_QUOTED}", fault.text):
        return (
            f"{key}: {fault.class_path or match[1]!r} cannot be imported, there is no module"
            f" {match[1]!r}; its folder must be on PYTHONPATH (PYTHONPATH=. for this one)"
        )
    return None


def _no_key(fault: _Fault, name: str) -> str:
    owner = fault.class_path.split(".")[-1]
    if fault.class_path.startswith("lightning.") and fault.key in ("model", "data"):
        return f"{fault.key}: no class is given that {name} is a key of; {CONFIGURATION}"
    group, _, last = name.rpartition(".")
    keys = _keys_of(fault.class_path)
    known = [key.rpartition(".")[2] for key in keys if key.rpartition(".")[0] == group]
    right = hint(last, known) if known else hint(name, keys)
    return f"{fault.key}.{name}: {owner} has no such key{right}"


def _makes(found: Any, base: type) -> bool:
    return inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found)


def _keys_of(class_path: str) -> list[str]:
    """Return a class's arguments, and of r1lit's those of groups and bases too."""
    found = _imported(class_path)
    if not class_path.startswith("r1lit."):
        return [*inspect.signature(found).parameters]
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(found, fail_untyped=False)
    return list(parser.get_defaults().keys())


def _unknown(key: str, trainer_keys: Iterable[str]) -> str:
    section, _, name = key.partition(".")
    if section == "trainer" and name:
        return f"{key}: the trainer has no such key{hint(name, trainer_keys)}"
    return f"{key}: there is no such key{hint(section, SECTIONS if trainer_keys else ())}"


def _wanted(texts: Iterable[str]) -> str:
    """Return what would be right, of the alternatives listed."""
    kinds: list[str] = []
    for text in texts:
        if literal := _LITERAL.search(text):
            kinds += [part.strip().strip("'") for part in literal[1].split(",")]
        elif match := re.search(r"Expected a <class '(?:[\w.]*\.)?(\w+)'>", text):
            name = match[1]
            kinds.append(_KINDS.get(name, f"an {name}" if name[0] in "aeiou" else f"a {name}"))
    kinds = list(dict.fromkeys(kinds))
    return " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)


def _imported(class_path: str) -> Any:
    module, _, name = class_path.rpartition(".")
    return getattr(importlib.import_module(module), name)
